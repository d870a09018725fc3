"""The embedded index: its ranking against the plain formula, and its builds."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from bm25 import scores
from retrieval_samples import SENTENCES

from fairseq_adv.data.errors import DataError
from fairseq_adv.retrieval.documents import ladder
from fairseq_adv.retrieval.sentences import survey
from fairseq_adv.retrieval.tantivy_index import (
    Built,
    Query,
    TantivyIndex,
    build,
    open_index,
    slice_ends,
    text_analyzer,
)


def built(path: Path, out: Path) -> TantivyIndex:
    build(survey([str(path)]), out)
    return open_index(out)


def all_hits(index: TantivyIndex, query: Query, limit: int = 1000) -> list[tuple[int, float]]:
    return [(hit.number, hit.score) for hit in index.search(query, limit)]


@pytest.mark.parametrize("longest", [40, 400])
def test_ranking_and_scores_are_bm25(tmp_path: Path, longest: int) -> None:
    """tantivy keeps a sentence's length in one byte: exact up to 40 terms, then up to 6% too short."""
    rng = random.Random(5)
    words = [f"w{i}" for i in range(60)]
    weights = [1 / (i + 1) for i in range(60)]
    lines = [" ".join(rng.choices(words, weights, k=rng.randint(1, longest))) for _ in range(300)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines) + "\n")
    index = built(tmp_path / "corpus.txt", tmp_path / "index")
    for _ in range(30):
        query = Query(tuple(rng.sample(words, 5)), ())
        exact = scores(list(query.terms), [line.split() for line in lines])
        expected = sorted(
            ((i, s) for i, s in enumerate(exact) if s), key=lambda pair: (-round(pair[1], 4), pair[0])
        )
        found = all_hits(index, query)
        if longest == 40:
            assert [number for number, _ in found] == [number for number, _ in expected]
            assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-5)
        else:
            assert dict(found) == pytest.approx(dict(expected), rel=0.06)


def test_same_scores_on_real_sentences(shared_data: Path, tmp_path: Path) -> None:
    with open(shared_data / "science_text" / "sentences.txt", encoding="utf-8", newline="\n") as file:
        lines = [line.strip() for line, _ in zip(file, range(5000))]
    (tmp_path / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    index = built(tmp_path / "corpus.txt", tmp_path / "index")
    documents = [text_analyzer().analyze(line) for line in lines]
    with open(shared_data / "arc" / "ARC-Easy-Dev.jsonl", encoding="utf-8") as file:
        questions = [json.loads(line)["question"] for line, _ in zip(file, range(20))]
    for question in questions:
        query = ladder(question["stem"], question["choices"][0]["text"], "any")[-1]
        exact = scores(list(query.terms), documents)
        top = all_hits(index, query, 11)[:10]
        for number, score in top:
            assert score == pytest.approx(exact[number], rel=0.06 if len(documents[number]) > 40 else 1e-4)
        short = [s for s, terms in zip(exact, documents) if len(terms) <= 40]
        assert top[0][1] >= max(short) * (1 - 1e-4)


def test_required_words(corpus_file: Path, tmp_path: Path) -> None:
    index = built(corpus_file, tmp_path / "index")
    words = ("sunlight", "water", "plant")

    def found(*required: str, every: bool = False) -> set[str]:
        return {hit.text for hit in index.search(Query(words, required, every), 100)}

    holding = {term: {s for s in SENTENCES if term in text_analyzer().analyze(s)} for term in words}
    assert found() == holding["sunlight"] | holding["water"] | holding["plant"]
    assert found("water", "sunlight") == holding["water"] | holding["sunlight"]
    assert found("water", "sunlight", every=True) == holding["water"] & holding["sunlight"] == {SENTENCES[0]}
    ranked = {hit.number: hit.score for hit in index.search(Query(words, ()), 100)}
    for query in (Query(words, ("water",)), Query(words, ("water",), every=True)):
        for hit in index.search(query, 100):  # what is required doesn't change the score
            assert hit.score == pytest.approx(ranked[hit.number], rel=1e-5)


def test_ties_come_in_the_corpus_order(tmp_path: Path) -> None:
    lines = [f"same words here {'x' * (i % 3)}" for i in range(200)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    index = built(tmp_path / "corpus.txt", tmp_path / "index")
    numbers = [hit.number for hit in index.search(Query(("same",), ()), 500)]
    assert numbers == [i for i in range(200) if i % 3 == 0] + [i for i in range(200) if i % 3]
    whole = [hit.number for hit in index.search(Query(("same",), ()), 500, whole_ties=True)]
    assert whole == numbers  # there are no others with the last one's score
    cut = [hit.number for hit in index.search(Query(("same",), ()), 100, whole_ties=True)]
    assert cut == numbers[:67]
    assert len(list(index.search(Query(("same",), ()), 100))) == 100
    assert len(list(index.search(Query(("same",), ()), 50, whole_ties=True))) == 50  # one score only


def test_slices() -> None:
    assert slice_ends(100_000) == {100_000}
    assert slice_ends(800_001) == {100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_001}
    assert len(slice_ends(14_300_000)) == 8 and len(slice_ends(90_000_000)) == 10


def test_a_large_corpus_is_one_segment(large_corpus: Path, tmp_path: Path) -> None:
    corpus = survey([str(large_corpus)])
    assert build(corpus, tmp_path / "index") == Built(240_000, 1, reused=False)
    assert build(corpus, tmp_path / "index").reused


def test_damaged_and_foreign_folders(corpus_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    with pytest.raises(DataError, match=r"not an index. Make one with fairseq-adv retrieve index"):
        open_index(out)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="not an index"):
        open_index(tmp_path / "empty")


def test_any_damaged_byte_is_found_when_it_is_opened(corpus_file: Path, tmp_path: Path) -> None:
    """tantivy itself reads most of them, and finds other sentences."""
    out = tmp_path / "index"
    built(corpus_file, out)
    files = json.loads((out / "manifest.json").read_text())["files"]
    assert {Path(name).suffix for name in files} >= {".fieldnorm", ".store", ".idx", ".term", ".json"}
    for name in files:
        path = out / name
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :]):
            if damaged == whole:  # an empty file
                continue
            path.write_bytes(damaged)
            told = rf"{re.escape(str(path))}: missing, or it has changed .* Build it again\."
            with pytest.raises(DataError, match=told):
                open_index(out)
        path.write_bytes(whole)
    open_index(out)


def test_made_by_another_version(corpus_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    built(corpus_file, out)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["made_from"]["analysis"]["stemmer"] = "none"
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="made by another version"):
        open_index(out)
