"""Two trainings with one --save-dir, and a --save-dir that not all workers see."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from support import command, fairseq_train, start_command, train_args, write_task

from fairseq_adv.fairseq_patches import save_dir_lock
from integration.test_faults import train_with


@pytest.fixture
def args(tmp_path: Path) -> list[str]:
    return train_args(write_task(tmp_path / "data"), tmp_path / "save", "standard", "--max-epoch", "400")


@pytest.mark.timing
def test_the_second_of_two_runs_refuses(tmp_path: Path, args: list[str]) -> None:
    first = start_command([command("fairseq-train"), *args])
    try:
        assert first.stdout is not None
        for line in first.stdout:
            if b"train_inner" in line:
                break
        before = (tmp_path / "save" / ".running").read_text()
        short = [*args, "--max-update", "1"]  # if it were let in
        done, _ = train_with("impatient", 1, tmp_path / "out", short, workers=1)
        first.stdout.close()
        assert done.returncode == 1
        who = f"process {json.loads(before)['process']} on {socket.gethostname()}"
        assert done.stderr.splitlines()[-1].endswith(
            f"Error: {tmp_path}/save: another run is writing its checkpoints there, {who}. Wait until it has "
            "ended, or pass another --save-dir (checkpoint.save_dir)."
        )
        assert (tmp_path / "save" / ".running").read_text() == before
    finally:
        first.kill()
        first.wait()
    again = fairseq_train(*args, "--max-update", "1")  # the kernel has given the lock back
    assert "done training" in again.stdout


def test_rank_0_gives_up_before_nccl_ends_the_others() -> None:
    """They wait in a collective operation, for ten minutes at most."""
    assert save_dir_lock.PATIENCE_WITH_ITSELF + 60 <= 600


def test_a_run_that_saves_nothing_needs_no_folder_of_its_own(tmp_path: Path) -> None:
    args = train_args(write_task(tmp_path / "data"), None, "standard", "--max-update", "1")
    fairseq_train(*args)
    assert not list(tmp_path.rglob(".running"))


@pytest.mark.slow
@pytest.mark.timing
def test_a_folder_that_a_worker_does_not_see_is_told(tmp_path: Path, args: list[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    relative = [os.path.relpath(word, tmp_path) if word == str(tmp_path / "save") else word for word in args]
    done, _ = train_with("elsewhere", 1, tmp_path / "out", relative)
    host = socket.gethostname()
    assert (
        f"save: files that rank 0 on {host} writes there are not visible on {host}. Pass a --save-dir "
        "(checkpoint.save_dir) on a file system that all nodes share."
    ) in done.stderr
    assert "train_inner" not in done.stdout
