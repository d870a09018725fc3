"""A finished run that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ADVERSARIAL, fairseq_train, logged, slow, train_args, write_task

ACCURACY = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]


def test_it_makes_no_further_update(tmp_path: Path) -> None:
    """An epoch has 4 updates: the limit is reached in the middle of it."""
    data, save = write_task(tmp_path / "data", train=16), tmp_path / "save"
    args = train_args(data, save, "freelb", *ADVERSARIAL, *ACCURACY, "--max-update", "3")
    fairseq_train(*args)
    last = (save / "checkpoint_last.pt").read_bytes()
    best = torch.load(save / "checkpoint_last.pt")["extra_state"]["best"]
    again = fairseq_train(*args)
    assert again.stdout.count("nothing left to do") == 1 and "done training" in again.stdout
    assert (
        f"nothing left to do after update 3: --max-update 3 is reached. "
        f"The best accuracy: {best:g}, {save}/checkpoint_best.pt\n"
    ) in again.stdout
    assert not logged(again, "train_inner")
    assert (save / "checkpoint_last.pt").read_bytes() == last


@pytest.mark.parametrize(
    ("more", "told"),
    [
        slow(["--max-epoch", "9", "--patience", "1", "--lr", "1e-9"],
             "--patience 1 is used up. The best loss: "),
        (["--lr-scheduler", "polynomial_decay", "--total-num-update", "4", "--stop-min-lr", "0",
          "--disable-validation"], "--stop-min-lr 0 is reached. The last checkpoint: "),
    ],
    ids=["patience", "rate"],
)  # fmt: skip
def test_each_way_to_end_is_told(tmp_path: Path, more: list[str], told: str) -> None:
    data, save = write_task(tmp_path / "data", train=16), tmp_path / "save"
    args = train_args(data, save, "freelb", *ADVERSARIAL, *more)
    first = fairseq_train(*args)
    assert "nothing left to do" not in first.stdout
    again = fairseq_train(*args)
    assert again.stdout.count("nothing left to do") == 1 and told in again.stdout
    assert not logged(again, "train_inner")
    fewer = fairseq_train(*args, "--max-update", "1")
    assert "nothing left to do" in fewer.stdout and not logged(fewer, "train_inner")


def test_the_end_is_saved_whatever_the_interval(tmp_path: Path) -> None:
    """fairseq saves after the second of three epochs, and would make the third at each start."""
    data, save = write_task(tmp_path / "data", train=8), tmp_path / "save"
    args = train_args(data, save, "standard", "--save-interval", "2", "--max-epoch", "3")
    first = fairseq_train(*args)
    state = torch.load(save / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 6
    scores = [log["valid_loss"] for log in logged(first, "valid")]
    best = torch.load(save / "checkpoint_best.pt")["extra_state"]["val_loss"]
    assert len(scores) == 3 and best == pytest.approx(min(map(float, scores[1:])), abs=1e-3)
    assert {path.name for path in save.glob("*.pt")} == {f"checkpoint{n}.pt" for n in ("2", "_best", "_last")}
    again = fairseq_train(*args)
    assert "nothing left to do after update 6" in again.stdout and not logged(again, "train_inner")


def test_patience_is_counted_across_restarts(tmp_path: Path) -> None:
    """Stopped after each epoch: as many epochs as without stops."""
    data = write_task(tmp_path / "data", train=8)
    words = ["--patience", "3", "--lr", "1e-9", "--no-epoch-checkpoints"]
    ends = []
    for save, limits in ((tmp_path / "whole", ["20"]), (tmp_path / "parts", ["2", "3", "20"])):
        for limit in limits:
            done = fairseq_train(*train_args(data, save, "standard", *words, "--max-epoch", limit))
        assert "early stop since valid performance" in done.stdout
        ends.append(torch.load(save / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"])
    assert ends == [8, 8]
