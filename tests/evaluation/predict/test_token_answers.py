"""Answers of tagging and span_qa models in their files: equal to the scores of a validation, and by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from support import CommandMain, train_args
from token_data import span_question, write_spans, write_squad, write_tags

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.spans_dataset import SpansDataset
from fairseq_adv.data.spans.squad import read_squad
from fairseq_adv.data.spans.windows import cut_into_windows
from fairseq_adv.data.tokenizers.text_to_ids import tokenizer_for_encoder
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.predict import Predicted, Request, predict
from fairseq_adv.evaluation.predict.span_answers import SpanAnswers
from fairseq_adv.evaluation.predict.tag_answers import TagAnswers
from fairseq_adv.evaluation.validate import validate


@pytest.fixture(scope="module")
def tagging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = write_tags(tmp_path_factory.mktemp("tagging") / "data")
    return tiny.save(data, data.parent / "model.pt", "--seed", "1", task="tagging")


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = write_spans(tmp_path_factory.mktemp("squad") / "data", impossible=True)
    return tiny.save(data, data.parent / "model.pt", task="span_qa")


def answered(checkpoint: Path, out: Path, task: str, split: str, **how: Any) -> Predicted:
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
    for name in ("precision", "recall", "f1", "accuracy", "f1_Gene"):
        assert round(found.measured[name], 2) == scores[name], name
    again = answered(tagging, tmp_path / "one", "tagging", "valid", batch_size=1)
    assert again.file.read_text() == found.file.read_text()


def test_words_alone_blanks_and_documents(tagging: Path, tmp_path: Path) -> None:
    data = tagging.parent / "data"
    (data / "other.txt").write_text("-DOCSTART- -X- O\n\nw1 NN O\n\n\nw2_w2 NN B-Gene\nw3 NN O\n")
    found = answered(tagging, tmp_path, "tagging", "other")
    lines = found.file.read_text().split("\n")
    assert lines[0] == "-DOCSTART- -X- O O" and lines[1] == lines[3] == lines[4] == ""
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
    for kind in (TagAnswers, SpanAnswers):
        monkeypatch.setattr(kind, "add", recording(kind.add, seen))
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


def recording(plain: Any, seen: set[torch.dtype]) -> Any:
    def add(self: Any, sample: Any, predictions: torch.Tensor) -> None:
        seen.add(predictions.dtype)
        plain(self, sample, predictions)

    return add


def test_a_file_without_answers(squad: Path, tmp_path: Path) -> None:
    found = answered(squad, tmp_path, "squad", "test")
    assert found.measured == {} and set(json.loads(found.file.read_text())) == {f"test-{k}" for k in range(4)}
    assert not (tmp_path / "null_odds.json").exists()  # of version 1.1


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


CONTEXT = " ".join(f"w{k}" for k in range(10))


def test_windows_compete_and_texts_are_joined(tmp_path: Path) -> None:
    """w1 (3) in the first window; w5 (4) in both, once; w8 w9 (2.5) in the second."""
    dataset = dataset_of(tmp_path, span_question("a", CONTEXT, "w5"))
    answers = SpanAnswers(dataset, 4)
    rows = [
        logits(dataset, 0, _6=(2.0, 1.0), _10=(1.0, 1.0)),
        logits(dataset, 1, _6=(2.0, 2.0), _9=(1.5, 0.0), _10=(0.0, 1.0)),
    ]
    for window in (1, 0):  # in different mini-batches
        answers.add({"id": torch.tensor([window])}, rows[window].unsqueeze(0))
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
    answers = SpanAnswers(dataset, 4)
    for window, null in enumerate([2.5, 1.5, 2.5, 2.25]):
        one = logits(dataset, window, _0=(null, null), _6=(2.0, 2.0))
        answers.add({"id": torch.tensor([window])}, one.unsqueeze(0))
    assert answers.null_odds() == {"a": -1.0, "b": 0.5}
    assert answers.answers()["b"] == "" != answers.answers()["a"]
    assert answers.nbest()["b"][0]["text"] == "" and answers.nbest()["a"][0]["text"] != ""
    assert {path.name for path in answers.files(tmp_path / "predictions.json")} == {
        "predictions.json", "nbest_predictions.json", "null_odds.json",
    }  # fmt: skip


def test_version_2_is_told_by_the_file(tmp_path: Path) -> None:
    assert dataset_of(tmp_path, span_question("a", CONTEXT, "w5"), version="v2.0").has_impossible
    assert not dataset_of(tmp_path, span_question("a", CONTEXT, "w5"), version="1.1").has_impossible


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vote": True}, "--task tagging takes one checkpoint, without --scores and --vote"),
        ({"checkpoints": "two"}, "--task tagging takes one checkpoint"),
        ({"task": "squad"}, "was trained with --task tagging, but squad needs a model of span_qa"),
        ({"split": "gone"}, "no split 'gone'"),
    ],
)
def test_what_is_refused(tagging: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"task": "tagging", "split": "valid", "checkpoints": [tagging], **change}
    if given["checkpoints"] == "two":
        given["checkpoints"] = [tagging, tagging]
    how = InferenceConfig(cpu=True)
    with pytest.raises(DataError, match=message):
        predict(Request(out=tmp_path, data=tagging.parent / "data", running=how, **given))
    assert not any(tmp_path.iterdir())


def test_scores_that_are_not_finite_are_refused(tagging: Path, tmp_path: Path) -> None:
    state = torch.load(tagging, weights_only=False)
    state["model"]["classification_heads.token_head.out_proj.bias"][0] = math.nan
    torch.save(state, tagging.with_name("nan.pt"))
    with pytest.raises(DataError, match="scores are not finite"):
        answered(tagging.with_name("nan.pt"), tmp_path, "tagging", "valid")
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_starts_another_training_with_other_tags(tagging: Path, tmp_path: Path) -> None:
    """fairseq takes a new head where the old one has other outputs, and the old one where it has the same."""
    from support import build

    head = "classification_heads.token_head.out_proj.weight"
    saved = torch.load(tagging, weights_only=False)["model"][head]
    same = write_tags(tmp_path / "same", seed=5)
    other = write_tags(tmp_path / "other", seed=5)
    for split in ("train", "valid"):
        path = other / f"{split}.tsv"
        path.write_text(path.read_text().replace("-Cell", "-Gene").replace("O\t", "O\t"))
    for data, kept in ((same, True), (other, False)):
        run = build(train_args(data, None, "standard", "--finetune-from-model", str(tagging), task="tagging"))
        run.trainer.load_checkpoint(str(tagging), reset_optimizer=True)
        ours = run.model.state_dict()[head]
        assert (ours.shape == saved.shape and torch.equal(ours, saved)) is kept
