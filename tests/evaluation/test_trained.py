"""Attacks on checkpoints of every task."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import tiny
from support import (
    VOCABULARY,
    CommandMain,
    build,
    train_args,
    write_corpus,
    write_encoder,
    write_json_lines,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_tags

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.trained import attack_checkpoint
from fairseq_adv.evaluation.validate import validate

WRITERS = {"sentence_prediction": write_task, "commonsense_qa": write_questions, "wsc": write_wsc}


@pytest.mark.filterwarnings("error:'pin_memory'")  # torch's, without a GPU
@pytest.mark.parametrize("task", WRITERS)
def test_an_attack_raises_the_loss_of_a_checkpoint(tmp_path: Path, task: str) -> None:
    """Norms over all rows of an example; the same whatever the batches are."""
    data = WRITERS[task](tmp_path / "data")
    run = build(train_args(data, None, "standard", "--no-save-optimizer-state", task=task))
    run.trainer.save_checkpoint(str(tmp_path / "model.pt"), {})
    how = Attack(epsilon=0.5, step_size=0.2, steps=3)
    found = attack_checkpoint(str(tmp_path / "model.pt"), how, cpu=True)
    assert found["examples"] == 8 and found["perturbed_loss"] > found["loss"] + 1e-3
    assert 0 <= found["perturbed_accuracy"] <= found["accuracy"] <= 100
    parts = attack_checkpoint(str(tmp_path / "model.pt"), how, batch_size=3, cpu=True)
    assert parts == pytest.approx(found, rel=1e-4)
    with pytest.raises(ValueError, match="no split 'other'"):
        attack_checkpoint(str(tmp_path / "model.pt"), how, split="other", cpu=True)


@pytest.mark.parametrize("task", ["commonsense_qa", "wsc"])
def test_rows_without_a_label_do_not_count(tmp_path: Path, task: str) -> None:
    """Whatever the batches are; a split of none is refused."""
    data = WRITERS[task](tmp_path / "data")
    rows = [json.loads(line) for line in (data / "valid.jsonl").read_text().splitlines()]
    unlabelled = [{k: v for k, v in row.items() if k not in ("answerKey", "label")} for row in rows]
    write_json_lines(data / "test.jsonl", [*rows[:2], *unlabelled[2:]])
    run = build(train_args(data, None, "standard", "--no-save-optimizer-state", task=task))
    path = str(tmp_path / "model.pt")
    run.trainer.save_checkpoint(path, {})
    how = Attack(epsilon=0.5, step_size=0.2, steps=1)
    whole = attack_checkpoint(path, how, split="test", cpu=True)
    assert whole["examples"] == 2
    parts = attack_checkpoint(path, how, split="test", batch_size=1, cpu=True)
    assert parts == pytest.approx(whole, rel=1e-4)
    scores = validate(path, split="test", cpu=True)
    rounded = pytest.approx(whole["loss"], abs=5e-4)  # fairseq logs three digits, in bits
    assert scores["examples"] == 8 and scores["loss"] == rounded
    assert validate(path, split="test", batch_size=1, cpu=True) == pytest.approx(scores, rel=1e-4)
    write_json_lines(data / "test.jsonl", unlabelled)
    for measure in (partial(attack_checkpoint, path, how), partial(validate, path)):
        with pytest.raises(DataError, match="the split 'test' has no labels, so there is nothing to"):
            measure(split="test", cpu=True)


@pytest.mark.parametrize("task", ["commonsense_qa", "wsc", "tagging"])
def test_the_tokenizer_beside_the_checkpoint_is_read(tmp_path: Path, task: str) -> None:
    """Though the encoder's folder has another one by now, or is gone."""
    data, encoder = {**WRITERS, "tagging": write_tags}[task](tmp_path / "data"), tmp_path / "encoder"
    write_encoder(encoder)
    for name in ("tokenizer.json", "hf_vocabulary.json"):
        (data / name).unlink()
    path = tiny.save(data, tmp_path / "run" / "model.pt", "--tokenizer-dir", str(encoder), task=task)
    how = Attack(epsilon=0.5, step_size=0.2, steps=1)

    def measured() -> list[dict[str, float]]:
        return [validate(str(path), cpu=True), attack_checkpoint(str(path), how, cpu=True)]

    as_told = measured()
    shutil.copytree(encoder, path.parent / "tokenizer")
    write_encoder(encoder, [*"qa:_?.", "he", "it", *reversed(VOCABULARY)])
    assert measured() == as_told
    shutil.rmtree(encoder)
    assert measured() == as_told


def test_a_regression_has_no_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_task(tmp_path / "data", classes=1)
    more = ["--regression-target", "--num-classes", "1", "--no-save-optimizer-state"]
    run = build(train_args(data, None, "standard", *more))
    run.trainer.save_checkpoint(str(tmp_path / "model.pt"), {})
    words = [tmp_path / "model.pt", "--epsilon", "0.1", "--absolute", "--cpu"]
    attack = CommandMain("attack", capsys)
    assert set(json.loads(attack(*words, "--json").stdout)) == {"examples", "loss", "perturbed_loss"}
    rows = attack(*words).stdout.splitlines()[-2:]
    assert [row.split()[2] for row in rows] == ["–", "–"]


@pytest.mark.parametrize("verb", ["validate", "attack"])
def test_other_classes_are_refused(tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = build(train_args(write_task(tmp_path / "data"), None, "standard", "--no-save-optimizer-state"))
    run.trainer.save_checkpoint(str(tmp_path / "model.pt"), {})
    more = ["--epsilon", "0.1", "--absolute"] if verb == "attack" else []
    words, other = [tmp_path / "model.pt", "--cpu", *more, "--data"], write_task(tmp_path / "other", seed=2)
    assert CommandMain(verb, capsys)(*words, other).returncode == 0
    file = other / "label" / "dict.txt"
    file.write_text("0 2\nb 1\n")
    done = CommandMain(verb, capsys)(*words, other)
    assert done.returncode == 2 and f"error: {file}: lists 0, b, but the checkpoint has 1, 0" in done.stderr


@pytest.mark.parametrize("verb", ["validate", "attack", "predict"])
def test_data_of_other_words_are_refused(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many words as the model has embeddings, but others: the answers would be those of other texts."""
    data = write_task(tmp_path / "data")
    path = tiny.save(data, tmp_path / "run" / "model.pt", task="text_classification")
    more = {"attack": ["--epsilon", "0.1", "--absolute"], "predict": ["--out", tmp_path / "out"]}
    words = [path, "--cpu", *more.get(verb, []), "--split", "valid", "--data"]
    assert CommandMain(verb, capsys)(*words, data).returncode == 0
    other = shutil.copytree(data, tmp_path / "other") / "input0" / "dict.txt"
    other.write_text("".join(f"{word} 1\n" for word in reversed(VOCABULARY)))
    done = CommandMain(verb, capsys)(*words, tmp_path / "other")
    assert done.returncode == 2 and f"error: {other}: has other words than {data}/input0/dict" in done.stderr


@pytest.mark.parametrize("verb", ["validate", "attack"])
def test_a_corpus_of_other_words_is_refused(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_corpus(tmp_path / "data")
    path = tiny.save(data, tmp_path / "run" / "model.pt", task="masked_lm")
    more = ["--epsilon", "0.1", "--absolute"] if verb == "attack" else []
    words = [path, "--cpu", *more, "--split", "valid", "--data"]
    assert CommandMain(verb, capsys)(*words, data).returncode == 0
    other = shutil.copytree(data, tmp_path / "other") / "dict.txt"
    other.write_text("".join(f"{word} 1\n" for word in reversed(VOCABULARY)))
    done = CommandMain(verb, capsys)(*words, tmp_path / "other")
    assert done.returncode == 2 and f"error: {other}: has other words than {data}/dict.txt" in done.stderr


def test_a_bad_list_of_classes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of the data which the model was trained on is read even if others are scored."""
    data = write_task(tmp_path / "data")
    path = tiny.save(data, tmp_path / "run" / "model.pt")
    (data / "label" / "dict.txt").write_text("no count\n")
    done = CommandMain("validate", capsys)(path, "--cpu", "--data", write_task(tmp_path / "other"))
    assert done.returncode == 2 and f"error: {data}/label/dict.txt: not a fairseq dictionary" in done.stderr
