"""Answers of tagging and span_qa models in their files: equal to the scores of a validation, and by hand."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from support import CommandMain
from token_data import span_question, write_spans, write_squad, write_tags

from fairseq_adv import load
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.spans_dataset import SpansDataset, cut_into_windows
from fairseq_adv.data.spans.squad import read_squad
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.predict import Predicted, Request, predict
from fairseq_adv.evaluation.predict.predictors import InputFile
from fairseq_adv.evaluation.predict.span_predictor import SpanAnswers, SpanRows
from fairseq_adv.evaluation.predict.text_model import answer_lines
from fairseq_adv.evaluation.trained import Trained
from fairseq_adv.evaluation.validate import validate


@pytest.fixture(scope="module")
def tagging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = write_tags(tmp_path_factory.mktemp("tagging") / "data")
    return tiny.save(data, data.parent / "model.pt", "--seed", "1", task="tagging")


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = write_spans(tmp_path_factory.mktemp("squad") / "data", impossible=True)
    return tiny.save(data, data.parent / "model.pt", task="span_qa")


def answered(checkpoint: Path, out: Path, task: str | None, split: str, **how: Any) -> Predicted:
    running = InferenceConfig(cpu=True, **how)
    return predict(Request(task, out, [checkpoint], (), checkpoint.parent / "data", split, running=running))


# ---- tags


def test_tags_stand_in_a_column_beside_the_input(tagging: Path, tmp_path: Path) -> None:
    """In their order, whatever mini-batches they came in; the scores are those of a validation."""
    found = answered(tagging, tmp_path, "tagging", "valid", batch_size=3)
    assert found.file == tmp_path / "predictions-valid.tsv" and found.rows == 8
    lines = (tagging.parent / "data" / "valid.tsv").read_text().split("\n")
    ours = found.file.read_text().split("\n")
    assert [line.rsplit("\t", 1)[0] if line else "" for line in ours[:-1]] == lines[: len(ours) - 1]
    tags = {line.rsplit("\t", 1)[1] for line in ours if line}
    assert tags <= {"O", "B-Cell", "I-Cell", "B-Gene", "I-Gene"} and len(tags) > 1
    scores = validate(str(tagging), cpu=True)
    assert found.report is not None
    for name in ("precision", "recall", "f1", "accuracy", "f1_Gene"):
        assert round({**found.measured, **found.report.values()}[name], 2) == scores[name], name
    again = answered(tagging, tmp_path / "one", "tagging", "valid", batch_size=1)
    assert again.file.read_text() == found.file.read_text()


def test_words_alone_blanks_comments_and_documents(tagging: Path, tmp_path: Path) -> None:
    data = tagging.parent / "data"
    (data / "other.txt").write_text("-DOCSTART- -X- O\n\nw1 NN O\n\n# id 2\nw2_w2 NN B-Gene\nw3 NN O\n")
    found = answered(tagging, tmp_path, "tagging", "other")
    lines = found.file.read_text().split("\n")
    assert lines[0] == "-DOCSTART- -X- O O" and lines[1] == lines[3] == "" and lines[4] == "# id 2"
    assert lines[5].startswith("w2_w2 NN B-Gene ") and len(lines[5].split(" ")) == 4
    alone = answered(tagging, tmp_path, "tagging", "test")
    assert alone.file.name == "predictions.tsv" and alone.measured == {}
    assert all(line.count("\t") == 1 for line in alone.file.read_text().splitlines() if line)


# ---- spans


def test_answers_are_scored_as_in_validation(
    squad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And by the verb that reads the files."""
    found = answered(squad, tmp_path, "squad", "valid", batch_size=2)
    names = {"predictions-valid.json", "nbest_predictions-valid.json", "null_odds-valid.json"}
    assert {path.name for path in tmp_path.iterdir()} == names and found.rows == 8
    scores = validate(str(squad), cpu=True)
    for ours, theirs in [
        ("exact", "em"),
        ("f1", "f1"),
        ("best_f1", "best_f1"),
        ("HasAns_f1", "f1_answerable"),
    ]:
        assert round(found.measured[ours], 2) == scores[theirs], ours
    gold = squad.parent / "data" / "valid.json"
    done = CommandMain("score squad", capsys)(gold, found.file, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {name: found.measured[name] for name in report} == report
    with_odds = CommandMain("score squad", capsys)(
        gold, found.file, "--null-odds", tmp_path / "null_odds-valid.json", "--threshold", "-999", "--json"
    )
    assert (
        json.loads(with_odds.stdout)["NoAns_exact"] == 100 and json.loads(with_odds.stdout)["HasAns_f1"] == 0
    )


def test_answers_in_bf16(tagging: Path, squad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near those in fp32, from fp32 numbers."""
    seen: set[torch.dtype] = set()
    plain = Trained.predictions

    def recording(*args: Any) -> Iterator[Any]:
        for sample, predictions in plain(*args):
            seen.add(predictions.dtype)
            yield sample, predictions

    monkeypatch.setattr(Trained, "predictions", recording)
    exact, near = (
        answered(tagging, tmp_path / how, "tagging", "valid", precision=how).file.read_text().split()
        for how in ("fp32", "bf16")
    )
    assert len(near) == len(exact) and sum(a != b for a, b in zip(near, exact)) <= len(exact) // 20
    found = [answered(squad, tmp_path / how, "squad", "valid", precision=how) for how in ("fp32", "bf16")]
    odds = [json.loads((one.file.parent / "null_odds-valid.json").read_text()) for one in found]
    assert odds[0].keys() == odds[1].keys() and odds[0] != odds[1]
    # Differences of logits: each is rounded by up to 1/256 of it, in several layers.
    assert all(abs(odds[1][name] - value) < 4 / 64 for name, value in odds[0].items())
    assert seen == {torch.float32}


def logits(dataset: SpansDataset, window: int, **places: tuple[float, float]) -> torch.Tensor:
    """Begin and end of some places of a window; "_5" is place 5, all others lie low."""
    found = torch.full((2, int(dataset.sizes[window])), -20.0)
    found[:, 1:5] = found[:, -1] = -math.inf
    for name, (begin, end) in places.items():
        found[0, int(name[1:])], found[1, int(name[1:])] = begin, end
    return found


def dataset_of(folder: Path, *questions: dict[str, Any], version: str = "1.1") -> SpansDataset:
    """Contexts of ten words, in two windows each: words 0 to 5 and 4 to 9, from place 5 on."""
    context = " ".join(f"w{k}" for k in range(10))
    path = write_squad(folder / "data.json", (context, list(questions)))
    path.write_text(path.read_text().replace('"1.1"', f'"{version}"'))
    from support import write_encoder

    tokenizer = tokenizer_for_encoder(write_encoder(folder / "encoder"))
    squad = read_squad(path)
    windows = cut_into_windows(squad, tokenizer, 12, 2)
    return SpansDataset(squad, windows, "data", 0, 2, 1, seed=None)


def decoded(dataset: SpansDataset, batches: dict[int, torch.Tensor]) -> SpanAnswers:
    """The answers in the predictions for some windows, each in a mini-batch of its own."""
    found = [({"id": torch.tensor([window])}, rows.unsqueeze(0)) for window, rows in batches.items()]
    model: Any = SimpleNamespace(predictions=lambda *args: iter(found))
    return SpanRows(dataset, 4).decode(model, progress=False)


CONTEXT = " ".join(f"w{k}" for k in range(10))


def test_windows_compete_and_texts_are_joined(tmp_path: Path) -> None:
    """w1 (3) in the first window; w5 (4) in both, once; w8 w9 (2.5) in the second."""
    dataset = dataset_of(tmp_path, span_question("a", CONTEXT, "w5"))
    rows = [
        logits(dataset, 0, _6=(2.0, 1.0), _10=(1.0, 1.0)),
        logits(dataset, 1, _6=(2.0, 2.0), _9=(1.5, 0.0), _10=(0.0, 1.0)),
    ]
    answers = decoded(dataset, {1: rows[1], 0: rows[0]})
    assert answers.answers() == {"a": "w5"}
    best = answers.nbest()["a"]
    assert [one["text"] for one in best][:3] == ["w5", "w1", "w8 w9"]
    assert best[0]["start_logit"] == 2.0 and best[0]["end_logit"] == 2.0
    assert sum(one["probability"] for one in best) == pytest.approx(1.0) and len(best) == 20
    assert best[0]["probability"] / best[1]["probability"] == pytest.approx(math.e)
    assert len({one["text"] for one in best}) == 20
    assert answers.measured()["exact"] == 100


def test_the_least_score_of_no_answer_counts(tmp_path: Path) -> None:
    """5 in one window and 3 in the other, against a span of 4: 3 - 4 is below 0."""
    rows = [span_question("a", CONTEXT, "w5"), span_question("b", CONTEXT, None)]
    dataset = dataset_of(tmp_path, *rows)
    nulls = enumerate([2.5, 1.5, 2.5, 2.25])
    answers = decoded(dataset, {k: logits(dataset, k, _0=(null, null), _6=(2.0, 2.0)) for k, null in nulls})
    assert answers.null_odds() == {"a": -1.0, "b": 0.5}
    assert answers.answers()["b"] == "" != answers.answers()["a"]
    assert answers.nbest()["b"][0]["text"] == "" and answers.nbest()["a"][0]["text"] != ""
    files = {path.name: content for path, content in answers.files(tmp_path / "predictions.json").items()}
    assert set(files) == {"predictions.json", "nbest_predictions.json", "null_odds.json"}
    answers.candidates["a"].clear()  # as of a context that has no token
    files = {path.name: content for path, content in answers.files(tmp_path / "predictions.json").items()}
    odds = json.loads(files["null_odds.json"], parse_constant=pytest.fail)
    assert odds["a"] > 1e8 and answers.answers()["a"] == ""


# ---- rows of a file or a program


def test_words_of_a_file_and_of_a_program(
    tagging: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same tags as for the split, whatever stands in the other columns."""
    split = answered(tagging, tmp_path, "tagging", "valid").file.read_text()
    rows = [line.split("\t") for line in split.splitlines()]
    file = tmp_path / "words.conll"
    file.write_text("".join(f"{row[0]}\tNN\t?\n" if row[0] else "\n" for row in rows))
    done = CommandMain("predict", capsys)(tagging, "--input", file, "--cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "\t".join([row[0], "NN", "?", row[-1]]) if row[0] else "" for row in rows
    ]
    written = CommandMain("predict", capsys)(tagging, "--input", file, "--out", tmp_path / "out", "--cpu")
    assert written.stdout == f"wrote {tmp_path}/out/predictions-words.tsv (8 rows)\n"
    assert (tmp_path / "out" / "predictions-words.tsv").read_text() == done.stdout
    model = load(tagging, device="cpu")
    assert (model.kind, model.labels, model.takes_questions) == ("tags", [], False)
    sentences = [[line.split("\t") for line in part.splitlines()] for part in split.strip().split("\n\n")]
    found = model.predict([[row[0] for row in sentence] for sentence in sentences])
    assert [list(one.tags) for one in found] == [[row[-1] for row in sentence] for sentence in sentences]


def test_a_tagged_file_is_scored_by_type(
    tagging: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the column that --label names; validate and score find the same."""
    rows = [line.split("\t") for line in (tagging.parent / "data" / "valid.tsv").read_text().splitlines()]
    file = tmp_path / "tagged.conll"
    file.write_text("".join(f"{row[0]} {row[1]} NN\n" if len(row) > 1 else "\n" for row in rows))
    words = (tagging, "--input", file, "--label", "2", "--out", tmp_path, "--cpu")
    done = CommandMain("predict", capsys)(*words)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("\n\n")[1]
    assert [line.split()[0] for line in table.splitlines()] == ["precision", "Cell", "Gene"]
    assert "_Gene" not in done.stdout and re.search(r"\n  total: \d+\n", done.stdout)
    validated = CommandMain("validate", capsys)(tagging, "--cpu")
    assert validated.stdout.split("\n\n")[1] == table and "_Gene" not in validated.stdout
    found = json.loads(CommandMain("predict", capsys)(*words, "--json").stdout)
    assert (
        found["entities"]
        == json.loads(CommandMain("validate", capsys)(tagging, "--cpu", "--json").stdout)["entities"]
    )
    assert found["entities"]["Gene"]["f1"] == found["f1_Gene"]
    refused = CommandMain("validate", capsys)(tagging, "--cpu", "--calibrate")
    assert refused.returncode == 2 and "not a classifier of texts. Leave --calibrate out." in refused.stderr
    assert "validating" not in refused.stderr
    for column, told in (("tag", "--label tag: pass the number of the column"), ("3", "'NN' is not a tag")):
        done = CommandMain("predict", capsys)(tagging, "--input", file, "--label", column, "--cpu")
        assert done.returncode == 2 and told in done.stderr


def test_questions_of_a_file_and_of_a_program(
    squad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same answers as for the split; a program's questions are always answered by a span."""
    data = squad.parent / "data"
    expected = answered(squad, tmp_path / "split", "squad", "test").file.read_text()
    done = CommandMain("predict", capsys)(squad, "--input", data / "test.json", "--cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    written = CommandMain("predict", capsys)(squad, "--input", data / "test.json", "--out", tmp_path, "--cpu")
    assert written.stdout == f"wrote {tmp_path}/predictions-test.json (4 rows)\n"
    words = (squad, "--input", data / "valid.json", "--out", tmp_path, "--cpu", "--json")  # which has answers
    known = json.loads(CommandMain("predict", capsys)(*words).stdout)
    scores = answered(squad, tmp_path / "split", "squad", "valid").measured
    assert scores and {name: known[name] for name in scores} == scores
    nbest = json.loads((tmp_path / "nbest_predictions-test.json").read_text())
    asked = read_squad(data / "test.json", answered=False)
    rows = [(question.text, asked.contexts[question.context]) for question in asked.questions]
    found = load(squad, device="cpu").predict(rows, batch_size=2)
    assert [one.label for one in found] == list(json.loads(expected).values())
    for one, candidates in zip(found, nbest.values()):
        shares = {best["text"]: best["probability"] for best in candidates}
        assert one.probabilities == pytest.approx(shares, rel=1e-4)


def test_bad_rows_are_told(tagging: Path, squad: Path, tmp_path: Path) -> None:
    tags, spans = load(tagging, device="cpu"), load(squad, device="cpu")
    for model, rows, message in [
        (tags, ["some words"], "sentence 0: expected a list of words"),
        (tags, [["w1"] * 600], "sentence:0: the sentence has"),
        (spans, [("w1 ?",)], r"question 0: expected \(question, context\)"),
        (spans, [("w1 ?", "w2"), ("w1 " * 600, "w2")], "question 1: has 600 tokens"),
    ]:
        with pytest.raises(DataError, match=message):
            model.predict(rows)  # type: ignore[arg-type]
    assert tags.predict([]) == []
    with pytest.raises(DataError, match="models of tags can't form an ensemble"):
        load([tagging, tagging])
    with pytest.raises(DataError, match="this model takes words in columns: pass them as a file"):
        answer_lines(tags, io.BytesIO(b"w1\n"), io.StringIO())
    with pytest.raises(DataError, match="for models of texts, but this one takes words in columns"):
        tags.answer_file(InputFile(tagging.parent / "data" / "test.tsv", text="words"))
    (tmp_path / "plain.txt").write_text("w1 w2 w3\n\nw4 w5 w6\n")
    with pytest.raises(DataError, match=r"plain.txt:1: a sentence in one line. Write each word"):
        tags.answer_file(InputFile(tmp_path / "plain.txt"))
    request = Request("tagging", tmp_path, [tagging] * 2, data=tagging.parent / "data", split="valid")
    with pytest.raises(DataError, match="--task tagging takes one checkpoint, without --scores"):
        predict(request)


# ---- what is refused


def test_scores_that_are_not_finite_are_refused(tagging: Path, tmp_path: Path) -> None:
    state = torch.load(tagging, weights_only=False)
    state["model"]["classification_heads.token_head.out_proj.bias"][0] = math.nan
    torch.save(state, tagging.with_name("nan.pt"))
    with pytest.raises(DataError, match="scores are not finite"):
        answered(tagging.with_name("nan.pt"), tmp_path, "tagging", "valid")
    assert not any(tmp_path.iterdir())
