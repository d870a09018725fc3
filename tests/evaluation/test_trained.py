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
from fairseq_adv.evaluation.attack import Attack, attack_checkpoint
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


@pytest.mark.parametrize("task", ["text_classification", "masked_lm"])
def test_data_of_other_words_or_classes_are_refused(
    tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many words as the model has embeddings, but others: the answers would be those of other texts."""
    data = (write_corpus if task == "masked_lm" else write_task)(tmp_path / "data")
    words = [tiny.save(data, tmp_path / "run" / "model.pt", task=task), "--cpu", "--split", "valid", "--data"]
    validate = CommandMain("validate", capsys)
    assert validate(*words, data).returncode == 0
    folder = "" if task == "masked_lm" else "input0"
    other = shutil.copytree(data, tmp_path / "other") / folder / "dict.txt"
    other.write_text("".join(f"{word} 1\n" for word in reversed(VOCABULARY)))
    done = validate(*words, tmp_path / "other")
    assert done.returncode == 2
    assert f"error: {other}: has other words than {data / folder / 'dict'}" in done.stderr
    if folder:
        classes = shutil.copytree(data, tmp_path / "classes") / "label" / "dict.txt"
        classes.write_text("0 2\nb 1\n")
        done = validate(*words, tmp_path / "classes")
        assert f"error: {classes}: lists 0, b, but the checkpoint has 1, 0" in done.stderr


def test_a_bad_list_of_classes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of the data which the model was trained on is read even if others are scored."""
    data = write_task(tmp_path / "data")
    path = tiny.save(data, tmp_path / "run" / "model.pt")
    (data / "label" / "dict.txt").write_text("no count\n")
    done = CommandMain("validate", capsys)(path, "--cpu", "--data", write_task(tmp_path / "other"))
    assert done.returncode == 2 and f"error: {data}/label/dict.txt: not a fairseq dictionary" in done.stderr
