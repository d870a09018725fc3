"""WNLI's rows and WSC's examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.wsc.superglue import PronounExample, read_wsc
from fairseq_adv.data.wsc.wnli import bare, examples_from_wnli, match_wnli, read_wnli, words_of


def tsv(tmp_path: Path, *pairs: tuple[str, str]) -> Path:
    path = tmp_path / "test.tsv"
    rows = [f"{number}\t{one}\t{other}" for number, (one, other) in enumerate(pairs)]
    path.write_text("\n".join(["index\tsentence1\tsentence2", *rows]) + "\n")
    return path


def example(prefix: str, pronoun: str, suffix: str, query: str) -> PronounExample:
    return PronounExample("0", prefix, pronoun, suffix, query, (), None, "here:1")


TEXT = "Ann saw Beth 's holiday photos when she and Carl came, as she said ."
PREMISE = "Ann saw Beth's holiday photos when she and Carl came, as she said."
EXAMPLES = [
    example("Ann saw Beth 's holiday photos when ", "she", " and Carl came, as she said .", "Ann"),
    example("Ann saw Beth 's holiday photos when ", "she", " and Carl came, as she said .", "Beth"),
    example("Ann saw Beth 's holiday photos when she and Carl came, as ", "she", " said .", "Ann"),
    example("Ann saw Beth 's holiday photos when she and Carl came, as ", "she", " said .", "holiday photos"),
]


def test_matched_by_text_phrase_and_pronoun(tmp_path: Path) -> None:
    hypotheses = ["Beth and Carl came.", "Ann said", "The photos said.", "Ann and Carl came, as she said."]
    path = tsv(tmp_path, *[(PREMISE, hypothesis) for hypothesis in hypotheses])
    assert match_wnli(path, EXAMPLES) == [1, 2, 3, 0]
    assert match_wnli(path, EXAMPLES[::-1]) == [2, 1, 0, 3]


def test_reworded_but_not_another_phrase(tmp_path: Path) -> None:
    heard = example("A bus came and I couldn't hear Mary over ", "it", ".", "the bus")
    row = "A bus came and I couldn't hear Mary over it."
    path = tsv(tmp_path, (row, "I couldn't hear Mary because of the bus."))
    assert match_wnli(path, [replace(heard, query="Mary"), heard]) == [1]
    tucked = example("Mary put her daughter to bed so that ", "she", " slept.", "Mary")
    path = tsv(tmp_path, (tucked.text, "Mary put her daughter to bed so that Mary's daughter slept."))
    with pytest.raises(DataError, match="no example has its phrase as query"):
        match_wnli(path, [tucked])


def test_rows_that_match_nothing_are_named(tmp_path: Path) -> None:
    path = tsv(tmp_path, (PREMISE, "Beth and Carl came."), (PREMISE, "Carl said."), ("He ran.", "Carl ran."))
    with pytest.raises(DataError) as caught:
        match_wnli(path, EXAMPLES)
    message = str(caught.value)
    assert "2 of 3 rows match none of the 4 WSC examples" in message and "test.tsv:2" not in message
    assert f"{path}:3: no example has its phrase as query: 'Carl said.'" in message
    assert f"{path}:4: its sentence1 is not the text of any example" in message


@pytest.mark.parametrize(
    ("premise", "hypothesis", "prefix", "query"),
    [
        ("The cup fell on Al. It broke.", "The cup broke.", "The cup fell on Al. ", "The cup"),
        ("The cup fell when it broke.", "The cup broke.", "The cup fell when ", "the cup"),
        ("Al hit Bo so he ran.", "Bo ran.", "Al hit Bo so ", "Bo"),
        ("The cup fell there. It broke.", "There the cup broke.", "The cup fell there. ", "The cup"),
        ("Al hit Bo and his dog ran.", "Bo's dog ran.", "Al hit Bo and ", "Bo"),
        ("He saw Al, as he ran and he sat.", "Al ran and he sat.", "He saw Al, as ", "Al"),
        ("Al saw Bo, and they ran.", "Al and Bo ran.", "Al saw Bo, and ", "Al and Bo"),
    ],
)
def test_examples_from_the_rows(
    premise: str, hypothesis: str, prefix: str, query: str, tmp_path: Path
) -> None:
    (found,) = examples_from_wnli(tsv(tmp_path, (premise, hypothesis)))
    assert (found.prefix, found.query, found.text) == (prefix, query, premise)
    assert (found.id, found.candidates, found.label) == ("0", None, None)


def same(one: PronounExample, other: PronounExample) -> tuple[bool, bool]:
    places = [len(words_of(each.prefix)) for each in (one, other)]
    queries = [bare([word.text for word in words_of(each.query or "")]) for each in (one, other)]
    size = min(map(len, queries))
    return places[0] == places[1], queries[0][-size:] == queries[1][-size:]


def test_the_real_test_file(shared_data: Path) -> None:
    path = shared_data / "glue" / "WNLI" / "test.tsv"
    examples = read_wsc(shared_data / "wsc" / "test.jsonl")
    matches = match_wnli(path, examples)
    assert sorted(matches) == list(range(146))  # each question once
    assert matches != sorted(matches)  # so taking the rows in their order would be wrong
    for own, number in zip(examples_from_wnli(path), matches):
        assert same(own, examples[number]) == (True, True)


@pytest.mark.slow
def test_the_real_labels_agree(shared_data: Path, tmp_path: Path) -> None:
    examples = [
        example for split in ("train", "val") for example in read_wsc(shared_data / "wsc" / f"{split}.jsonl")
    ]
    texts = [[word.text for word in words_of(example.text)] for example in examples]
    matched = 0
    for name in ("train", "dev"):
        path = shared_data / "glue" / "WNLI" / f"{name}.tsv"
        lines = path.read_text(encoding="utf-8").splitlines()
        rows, own = read_wnli(path), examples_from_wnli(path)
        with pytest.raises(DataError) as caught:  # SuperGLUE left some schemas out
            match_wnli(path, examples)
        assert "rows match none of the 658" in str(caught.value)
        for number, row in enumerate(rows):
            words = [word.text for word in words_of(row.premise)]
            same_text = [one for one, its in zip(examples, texts) if its == words]
            if not same_text:
                continue
            one = tmp_path / "one.tsv"
            one.write_text(f"{lines[0]}\n{lines[number + 1]}\n", encoding="utf-8")
            try:
                (found,) = match_wnli(one, same_text)
            except DataError:
                continue
            matched += 1
            assert same_text[found].label == row.label, row
            assert same(own[number], same_text[found]) == (True, True), row
    assert matched == 516
