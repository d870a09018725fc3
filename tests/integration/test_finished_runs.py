"""A finished run that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import ADVERSARIAL, fairseq_train, logged, train_args, write_task


@pytest.mark.parametrize(("workers", "updates"), [(1, 3), (2, 1)])
def test_it_makes_no_further_update(tmp_path: Path, workers: int, updates: int) -> None:
    """An epoch has 4 updates, or 2 with two workers: the limit is reached in the middle of it."""
    data, save = write_task(tmp_path / "data", train=16), tmp_path / "save"
    args = train_args(data, save, "freelb", *ADVERSARIAL, "--max-update", str(updates))
    fairseq_train(*args, workers=workers)
    last = (save / "checkpoint_last.pt").read_bytes()
    again = fairseq_train(*args, workers=workers)
    assert "this run is finished" in again.stdout and "done training" in again.stdout
    assert not logged(again, "train_inner")
    assert (save / "checkpoint_last.pt").read_bytes() == last


def test_it_resumes_under_a_larger_limit(tmp_path: Path) -> None:
    data, save = write_task(tmp_path / "data", train=16), tmp_path / "save"
    fairseq_train(*train_args(data, save, "freelb", *ADVERSARIAL, "--max-update", "3"))
    longer = fairseq_train(*train_args(data, save, "freelb", *ADVERSARIAL, "--max-update", "5"))
    assert [log["num_updates"] for log in logged(longer, "train_inner")] == [4, 5]
