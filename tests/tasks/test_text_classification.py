"""The names of the classes in a checkpoint of ``--task text_classification``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf
from support import build, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.evaluation.predict.text_predictor import TextPredictor
from fairseq_adv.evaluation.trained import load


def names_in(path: Path) -> Any:
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"]
    return cfg.task.get("class_names")


def saved(data: Path, path: Path, classes: int = 3, task: str = "text_classification") -> Path:
    """A checkpoint as the trainer writes it before the first update."""
    run = build(train_args(data, None, "standard", classes=classes, task=task))
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "three", classes=3)


@pytest.fixture(scope="module")
def checkpoint(data: Path) -> Path:
    return saved(data, data.parent / "checkpoint.pt")


def without_names(checkpoint: Path, path: Path) -> Path:
    """As an earlier version wrote it."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    state["cfg"] = OmegaConf.to_container(state["cfg"])
    del state["cfg"]["task"]["class_names"]
    torch.save(state, path)
    return path


def renamed(data: Path, folder: Path, *names: str) -> Path:
    write_task(folder, classes=len(names))
    (folder / "label" / "dict.txt").write_text("".join(f"{name} 1\n" for name in names))
    return folder


def test_they_are_those_of_the_data_in_their_order(data: Path, checkpoint: Path) -> None:
    """The padding of fairseq-preprocess's dictionary, five entries here, is left out."""
    assert len((data / "label/dict.txt").read_text().splitlines()) > 3
    assert list(names_in(checkpoint)) == ["2", "1", "0"]


@pytest.mark.parametrize("name", ["???", "${env:HOME}", "a ${common.seed}"])
def test_a_name_that_omegaconf_would_change_is_refused(name: str, tmp_path: Path) -> None:
    """Of a folder that fairseq-preprocess wrote; fairseq_adv's prepare refuses it itself."""
    other = renamed(tmp_path, tmp_path / "odd", "yes", name)
    with pytest.raises(DataError, match=f"odd: fairseq can't store the class name '{re.escape(name)}'"):
        build(train_args(other, None, "standard", task="text_classification"))


def test_spaces_question_marks_and_dollars_are_ordinary_otherwise(tmp_path: Path) -> None:
    other = renamed(tmp_path, tmp_path / "named", "??", "????", "$5 {a} two")
    assert list(names_in(saved(other, tmp_path / "a.pt"))) == ["??", "????", "$5 {a} two"]


def test_fairseq_and_measurements_load_it(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    """By itself, with other data, and as written by an earlier version."""
    moved = renamed(data, tmp_path / "moved", "2", "1", "0")
    old = without_names(checkpoint, tmp_path / "old.pt")
    for path, overrides in ((checkpoint, {}), (checkpoint, {"data": str(moved)}), (old, {})):
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], arg_overrides=overrides
        )
        assert list(task.cfg.class_names) == list(cfg.task.class_names) == ["2", "1", "0"]
        assert len(models) == 1
    trained = load(str(checkpoint), None, ["valid"], cpu=True)
    assert len(list(trained.batches("valid", 4))) == 2
    run = build(train_args(data, None, "standard", classes=3, task="text_classification"))
    run.trainer.load_checkpoint(str(checkpoint))
    assert list(run.cfg.task.class_names) == ["2", "1", "0"]
    other = renamed(data, tmp_path / "other", "0", "1", "2")
    with pytest.raises(DataError, match=r"other/label/dict.txt: lists the classes 0, 1, 2, but .* 2, 1, 0"):
        checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides={"data": str(other)})


def test_pairs_and_single_texts_are_told_apart(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "pairs")
    shutil.copytree(data / "input0", tmp_path / "pairs" / "input1")
    with pytest.raises(DataError, match="has pairs of texts, but the checkpoint was trained on single texts"):
        load(str(checkpoint), str(tmp_path / "pairs"), ["valid"], cpu=True)
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))["cfg"]
    for folder, pairs, width in (
        (data, None, 1), (tmp_path / "pairs", None, 2), (tmp_path / "gone", None, None),
        (tmp_path / "gone", cfg.task.pairs, 1), (tmp_path / "gone", True, 2),
    ):  # fmt: skip
        task = SimpleNamespace(cfg=SimpleNamespace(data=str(folder), pairs=pairs))
        assert TextPredictor(checkpoint, task, ["0", "1"]).width == width  # type: ignore[arg-type]


def test_rows_that_are_cut_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With <s> and the separator; a row that fits, one whose second text is cut, three that lose it, and one
    that had none.
    """
    data = write_task(tmp_path, train=6)

    def told(method: str) -> list[str]:
        caplog.clear()
        more = ["--max-positions", "8", "--shorten-method", method]
        build(train_args(data, None, "standard", *more, task="text_classification"))
        return [record.getMessage() for record in caplog.records if "truncated" in record.getMessage()]

    def write(name: str, *tokens: int) -> None:  # with </s>
        lengths = np.array(tokens)
        write_indexed(data / name / "train", [(np.full(lengths.sum(), 7), lengths)], 44)

    write("input0", 2, 4, 6, 7, 8, 9)
    assert "train: 2 of 6 rows are truncated to 8 tokens" in told("truncate")
    shutil.copytree(data / "input0", data / "input1")
    write("input1", 3, 3, 3, 3, 3, 1)
    assert told("random_crop") == told("none") == []
    assert told("truncate")[0] == (
        "train: 5 of 6 rows are truncated to 8 tokens; 3 of these have lost all of their second text"
    )
