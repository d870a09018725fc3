"""A checkpoint_last.pt that was made with other options of criterion, task, model or data is refused."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from support import ADVERSARIAL, batch, build, train_args, write_task

from fairseq_adv.criterions.restart import differences
from fairseq_adv.data.errors import DataError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin")


@pytest.fixture(scope="module")
def saved(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save folder with the checkpoint_last.pt of one update."""
    folder = tmp_path_factory.mktemp("save")
    run = freelb(data, folder)
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    iterator = {"epoch": 1, "iterations_in_epoch": 1, "version": 2, "shuffle": True}
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(folder / "checkpoint_last.pt"), {"train_iterator": iterator})
    return folder


def freelb(data: Path, save: Path, *more: str) -> SimpleNamespace:
    return build(train_args(data, save, "freelb", *ADVERSARIAL, *more))


def load(run: SimpleNamespace, save: Path) -> None:
    reset = run.cfg.checkpoint
    run.trainer.load_checkpoint(
        str(save / "checkpoint_last.pt"), reset.reset_optimizer, reset.reset_lr_scheduler,
        reset_meters=reset.reset_meters,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (["--adv-lr", "0.2", "--adv-steps", "4"], "--adv-lr: 0.3 → 0.2; --adv-steps: 3 → 4"),
        (["--flood-level", "0.05"], "--flood-level: None → 0.05"),
        (["--task", "text_classification"], "--task: sentence_prediction → text_classification"),
        (["--criterion", "pgd"], "--criterion: freelb → pgd"),
        (["--no-shuffle"], "--no-shuffle: False → True"),
        (["--dropout", "0.1"], "--dropout: 0.0 → 0.1"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_other_options_are_refused(data: Path, saved: Path, more: list[str], found: str) -> None:
    run = freelb(data, saved, *more)
    with pytest.raises(DataError) as caught:
        load(run, saved)
    assert str(caught.value).startswith(f"{saved}/checkpoint_last.pt was made with other options")
    assert f"({found})" in str(caught.value) and "--save-dir" in str(caught.value)
    assert run.trainer.get_num_updates() == 0


def test_other_data_are_refused(saved: Path, tmp_path: Path) -> None:
    run = freelb(write_task(tmp_path / "other"), saved)
    with pytest.raises(DataError, match=rf"\(data: \S+/bin → {tmp_path}/other\)"):
        load(run, saved)


@pytest.mark.parametrize(
    "more",
    [
        ["--seed", "9", "--lr", "0.3", "--max-epoch", "9", "--batch-size", "2", "--adv-lr", "0.30"],
        ["--adv-lr", "0.2", "--reset-dataloader"],
        ["--adv-lr", "0.2", "--reset-optimizer", "--reset-lr-scheduler"],
    ],
)
def test_what_goes_on_as_before(data: Path, saved: Path, more: list[str]) -> None:
    """Options of other groups, which may change, and a user who has asked for it."""
    run = freelb(data, saved, *more)
    load(run, saved)
    assert run.trainer.get_num_updates() == (0 if "--reset-optimizer" in more else 1)


def test_a_checkpoint_that_the_user_names_is_continued(data: Path, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes((saved / "checkpoint_last.pt").read_bytes())
    run = freelb(data, saved, "--adv-lr", "0.2", "--restore-file", str(path))
    load(run, tmp_path)
    assert run.trainer.get_num_updates() == 1


def test_the_same_folder_by_another_path_is_the_same(data: Path, tmp_path: Path) -> None:
    cfg = freelb(data, tmp_path).cfg
    other = copy.deepcopy(cfg)
    other.task.data = os.path.relpath(data)
    assert differences(cfg, other) == []
    (tmp_path / "link").symlink_to(data)
    other.task.data = str(tmp_path / "link")
    assert differences(cfg, other) == []
    other.task.data = str(tmp_path)
    assert differences(cfg, other) == [f"data: {data} → {tmp_path}"]
    other.task.data, cfg.task.data = str(data), str(tmp_path / "gone")  # moved since
    assert differences(cfg, other) == []


def test_what_one_side_lacks_is_no_difference(data: Path, tmp_path: Path) -> None:
    """A checkpoint of an earlier version, with fewer options; and one without a configuration."""
    cfg = freelb(data, tmp_path).cfg
    old = OmegaConf.create(
        {"criterion": {"_name": "freelb", "adv_lr": 0.3}, "task": {"_name": "sentence_prediction"}}
    )
    assert differences(old, cfg) == [] == differences(None, cfg)
    old.criterion.adv_lr = 0.4
    assert differences(old, cfg) == ["--adv-lr: 0.4 → 0.3"]
