"""Models that answer texts: what they read is what the prepared data of the same texts holds."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import glue_samples
import numpy as np
import pytest
import torch
from support import write_encoder, write_questions, write_wsc
from tiny import glue_model, kept, save

from fairseq_adv import load
from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.predict import Request, predict
from fairseq_adv.evaluation.validate import evaluate

CPU = InferenceConfig(cpu=True)
ENCODERS = {
    "wordpiece": glue_samples.small_wordpiece,
    "gpt2": glue_samples.small_bpe,
    "unigram": glue_samples.small_unigram,
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of pairs, of a BERT."""
    folder = glue_model(tmp_path_factory.mktemp("pairs"), "RTE", "--max-positions", "64")
    save(folder / "data", folder / "b.pt", "--max-positions", "64", "--seed", "8")
    return folder


def texts(task: str) -> list[Any]:
    """The texts of the test split, in its order."""
    rows = glue_samples.pairs()
    return [first for first, _ in rows] if task == "SST-2" else rows


@pytest.mark.parametrize(
    ("encoder", "task", "positions"),
    [
        ("wordpiece", "SST-2", "64"), ("gpt2", "SST-2", "16"), ("wordpiece", "RTE", "24"),
        ("gpt2", "RTE", "64"), ("wordpiece", "STS-B", "64"), ("gpt2", "STS-B", "32"),
        ("unigram", "SST-2", "64"), ("unigram", "RTE", "24"),
    ],
)  # fmt: skip
def test_the_scores_are_those_of_the_prepared_texts(
    encoder: str, task: str, positions: str, tmp_path: Path
) -> None:
    """Cut where they are longer than the model, too."""
    folder = glue_model(tmp_path, task, "--max-positions", positions, encoder=ENCODERS[encoder])
    predict(Request(None, tmp_path / "out", [folder / "a.pt"], data=folder / "data", running=CPU))
    prepared = kept(tmp_path / "out")[0]
    answers = load(folder / "a.pt", device="cpu").predict(texts(task))
    if task == "STS-B":
        found = np.array([[answer.value] for answer in answers])
        assert {answer.label for answer in answers} == {""} and not answers[0].probabilities
    else:
        names = prepared.labels[0].tolist()
        found = np.log([[answer.probabilities[name] for name in names] for answer in answers])
        assert [answer.label for answer in answers] == [names[k] for k in prepared.log_probs.argmax(axis=1)]
        assert {answer.value for answer in answers} == {None}
    assert len({round(float(row[0]), 4) for row in found}) > 10  # the rows differ
    np.testing.assert_allclose(found, prepared.log_probs, atol=1e-6)


def test_an_ensemble_answers_as_the_command_does(pairs: Path, tmp_path: Path) -> None:
    checkpoints = [pairs / "a.pt", pairs / "b.pt"]
    predict(Request(None, tmp_path, checkpoints, data=pairs / "data", running=CPU))
    rows = [line.split("\t") for line in (tmp_path / "predictions.tsv").read_text().splitlines()]
    answers = load(checkpoints, device="cpu").predict(texts("RTE"), batch_size=3)
    assert rows[0] == ["index", "prediction", *answers[0].probabilities]
    assert [row[1] for row in rows[1:]] == [answer.label for answer in answers]
    shares = np.array([[float(cell) for cell in row[2:]] for row in rows[1:]])
    np.testing.assert_allclose(shares, [list(a.probabilities.values()) for a in answers], atol=5e-6)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=2e-6)
    alone = [load(path, device="cpu").predict(texts("RTE")) for path in checkpoints]
    log_means = np.mean([np.log([list(a.probabilities.values()) for a in one]) for one in alone], axis=0)
    expected = np.exp(log_means) / np.exp(log_means).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, expected, atol=5e-6)


def test_the_tokenizer_is_found_beside_the_checkpoint_first(pairs: Path, tmp_path: Path) -> None:
    row = [("A cat sat.", "It did.")]
    expected = load(pairs / "a.pt", device="cpu").predict(row)
    assert load(pairs / "a.pt", tokenizer_dir=pairs / "encoder", device="cpu").predict(row) == expected
    shutil.copy(pairs / "a.pt", tmp_path)
    shutil.copytree(pairs / "data" / "tokenizer", tmp_path / "tokenizer")
    assert load(tmp_path / "a.pt", device="cpu").predict(row) == expected
    (tmp_path / "tokenizer" / "hf_vocabulary.json").unlink()
    with pytest.raises(DataError, match="tokenizer: neither"):
        load(tmp_path / "a.pt", device="cpu")


def without_data(folder: Path, to: Path, **task: Any) -> Path:
    """A copy of a.pt with its tokenizer beside it, whose training data is gone."""
    state = torch.load(folder / "a.pt", weights_only=False)
    cfg = state["cfg"]["task"]
    for name, value in {"data": str(to / "gone"), **task}.items():
        cfg[name] = value
    torch.save(state, to / "a.pt")
    kept_at = next(place for place in (folder / "tokenizer", folder / "data" / "tokenizer") if place.is_dir())
    shutil.copytree(kept_at, to / "tokenizer")
    return to / "a.pt"


def test_names_of_classes_come_from_the_training_data(pairs: Path, tmp_path: Path) -> None:
    path = without_data(pairs, tmp_path)
    with pytest.raises(DataError, match=r"class names are unknown, because .*gone/label"):
        load(path, device="cpu")
    row = [("A cat sat.", "It did.")]
    found = load(path, device="cpu", data=pairs / "data").predict(row)
    assert found == load(pairs / "a.pt", device="cpu").predict(row)


def test_names_of_classes_come_from_the_checkpoint(pairs: Path, tmp_path: Path) -> None:
    save(pairs / "data", tmp_path / "a.pt", "--max-positions", "64", "--task", "text_classification")
    row = [("A cat sat.", "It did.")]
    shares = load(tmp_path / "a.pt", device="cpu").predict(row)[0].probabilities.values()
    (tmp_path / "alone").mkdir()
    shutil.copytree(pairs / "data" / "tokenizer", tmp_path / "tokenizer")
    path = without_data(tmp_path, tmp_path / "alone", class_names=["yes", "no"])
    model = load(path, device="cpu")
    assert model.labels == ["yes", "no"]
    assert model.predict(row)[0].probabilities == dict(zip(("yes", "no"), shares))
    with pytest.raises(DataError, match="was trained on pairs of texts, but was given single texts"):
        model.predict(["one text"])


def test_a_cut_text_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = glue_model(tmp_path, "SST-2", "--max-positions", "16")
    model = load(folder / "a.pt", device="cpu")
    long = "a " * 30
    with caplog.at_level(logging.WARNING, "fairseq_adv"):
        first = model.predict([long, "a film", "a " * 14])
        assert "a.pt: 1 of 3 rows are truncated to 16 tokens" in caplog.text
        model.predict([long])
    assert caplog.text.count("truncated") == 1
    assert first[0] != first[1]
    assert model.predict([]) == []


def test_a_model_reads_new_texts_as_in_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer to a long text is the mean of its logits for the windows."""
    options = ["--max-positions", "16", "--shorten-method", "truncate", "--task", "text_classification"]
    folder = glue_model(tmp_path, "SST-2", *options, "--long-texts", "windows")
    model = load(folder / "a.pt", device="cpu")
    words = ["a", "t", "s", "i", "e"] * 4  # each is a token
    with caplog.at_level(logging.WARNING, "fairseq_adv"):
        whole = model.predict([" ".join(words)])[0].probabilities
    assert "a.pt: 1 of 1 rows are read in windows of 16 tokens, at most 2 for one text" in caplog.text
    parts = model.predict([" ".join(words[:14]), " ".join(words[-14:])])
    logits = torch.tensor([list(part.probabilities.values()) for part in parts]).log().mean(0)
    expected = logits.softmax(0).tolist()
    assert list(whole.values()) == pytest.approx(expected, abs=1e-6)
    assert len({tuple(part.probabilities.values()) for part in parts}) == 2
    found = evaluate(str(folder / "a.pt"), str(folder / "data"), batch_size=3, cpu=True)
    assert len(found.logits) == len(found.right) == found.scores["examples"]
    right = (found.logits.argmax(axis=1) == found.right).mean()
    assert found.scores["accuracy"] == pytest.approx(100 * right, abs=0.01)


@pytest.mark.parametrize("task", ["commonsense_qa", "arc_retrieval"])
def test_questions_with_choices(task: str, tmp_path: Path) -> None:
    """A program's choices are named by their texts, whatever these contain."""
    data = write_questions(tmp_path / "data", para=task == "arc_retrieval")
    path = save(data, tmp_path / "a.pt", task=task)
    predict(Request(None, tmp_path / "out", [path], data=data, running=CPU))
    questions = read_questions(data / "test.jsonl")
    texts = [[choice.text.replace(" ", "\n") for choice in question.choices] for question in questions]
    rows: list[Any] = [
        (q.stem, [(text, c.context) if c.context else text for text, c in zip(texts[row], q.choices)])
        for row, q in enumerate(questions)
    ]
    model = load(path, device="cpu")
    answers = model.predict(rows)
    assert [list(one.probabilities) for one in model.predict(questions[:1])] == [["A", "B", "C"]]
    scores = kept(tmp_path / "out")[0]
    for row, (question, answer) in enumerate(zip(questions, answers)):
        expected = np.exp(scores.log_probs[row, : len(question.choices)])
        assert list(answer.probabilities) == texts[row]
        np.testing.assert_allclose(list(answer.probabilities.values()), expected, atol=1e-6)
        assert answer.label == texts[row][int(expected.argmax())]
    lines = (tmp_path / "out" / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction\tchoice 1\tchoice 2\tchoice 3\tchoice 4\tchoice 5"
    index, label, *shares = lines[1].split("\t")  # a question with three choices
    assert (index, label) == ("test-0", "ABC"[int(scores.log_probs[0].argmax())])
    assert shares[3:] == ["", ""] and sum(map(float, shares[:3])) == pytest.approx(1, abs=2e-6)


def test_rows_of_another_kind_are_told(pairs: Path, tmp_path: Path) -> None:
    model = load(pairs / "a.pt", device="cpu")
    ranking = load(
        save(write_questions(tmp_path / "questions"), tmp_path / "r.pt", task="commonsense_qa"), device="cpu"
    )
    rows: list[tuple[Any, Any, str]] = [
        (model, "a text", "a list of texts, not 'a text'"),
        (model, iter(["a text"]), "was trained on pairs of texts, but was given single texts"),
        (model, [("a", "b"), "c"], "pairs and single texts can't be mixed"),
        (model, [("a", 3)], "text 0: expected a text or a pair of texts"),
        (ranking, ["a text"], r"question 0: expected \(question, choices\)"),
        (ranking, [("w1", "w2")], "question 0: expected"),
        (ranking, [("w1", ["w2"]), ("w1", [("w2",)])], "question 1: expected"),
        (ranking, [("w1", ["w2", " "])], "question 0: a choice is empty"),
        (ranking, [("w1", ["w2", "w2"])], "two choices are the same text"),
        (ranking, [("w1 " * 40, ["w2", "w3"])], "question 0: the question with its answer has"),
    ]
    for asked, given, message in rows:
        with pytest.raises(DataError, match=message):
            asked.predict(given)
    shutil.copy(without_data(pairs, tmp_path), tmp_path / "alone.pt")
    shutil.rmtree(tmp_path / "tokenizer")
    loads: list[tuple[Any, dict[str, Any], str]] = [
        ([pairs / "a.pt", tmp_path / "r.pt"], {}, r"an ensemble needs models of one kind: .*a.pt: classes"),
        (tmp_path, {}, "a folder. Pass a checkpoint in it, such as .*/checkpoint_best.pt"),
        (
            save(write_wsc(tmp_path / "wsc"), tmp_path / "w.pt", task="wsc"),
            {},
            "--task wsc, but your own data needs",
        ),
        (tmp_path / "alone.pt", {}, "no tokenizer next to it or its data"),
        (pairs / "a.pt", {"tokenizer_dir": write_encoder(tmp_path / "other")}, "its weights don't match"),
    ]
    for path, options, message in loads:
        with pytest.raises(DataError, match=message):
            load(path, **{"device": "cpu", **options})
