"""A signal in the middle of a real training: a checkpoint after the update at hand, from which it goes on."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.dataclass.configs import CheckpointConfig
from support import ADVERSARIAL, VIRTUAL, fairseq_train, run_command, slow, train_args, weights, write_task

from fairseq_adv.data.run_metrics import EPOCH, read_metrics
from fairseq_adv.fairseq_patches.signals import _why_not_resumable
from integration.test_faults import assert_alike, train_with
from integration.test_training_under_fire import assert_same, end

OPTIONS = {"freelb": ADVERSARIAL, "freeat": ADVERSARIAL, "alum_vat": VIRTUAL, "standard": []}
# 8 mini-batches an epoch with one worker, 4 with two; two epochs.
WORDS = [
    "--dropout", "0.1", "--lr-scheduler", "polynomial_decay", "--total-num-update", "40",
    "--no-epoch-checkpoints",
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "workers", "name", "at", "extra"),
    [
        # With a buffer a thread makes the processes, and then torch does not watch over them.
        ("freelb", 1, "TERM", 3, ["--num-workers", "2", "--data-buffer-size", "0"]),
        # One of the two workers gets it. Checkpoints of every second update begin later.
        ("alum_vat", 2, "USR1", 2, ["--save-interval-updates", "2", "--validate-after-updates", "8"]),
        slow("standard", 1, "INT", 5, ["--num-workers", "1", "--save-interval-updates", "2"]),
        slow("freeat", 2, "TERM", 6, ["--num-workers", "1"]),
        slow("freelb", 2, "INT", 3, ["--update-freq", "2", "--num-workers", "1"]),
        slow("standard", 1, "HUP", 5, ["--num-workers", "1"]),
        slow("alum_vat", 1, "USR1", 11, ["--save-interval", "2"]),
    ],
)
@pytest.mark.timing
def test_it_is_saved_after_that_update_and_goes_on_to_the_same_end(
    tmp_path: Path, method: str, workers: int, name: str, at: int, extra: list[str]
) -> None:
    data = write_task(tmp_path / "data", train=32)
    words = [*OPTIONS[method], *WORDS, *extra]
    fairseq_train(*train_args(data, tmp_path / "straight", method, *words), workers=workers)
    args = train_args(data, tmp_path / "save", method, *words)
    done, ends = train_with(name, at, tmp_path / "out", args, workers)
    number = signal.Signals[f"SIG{name}"]
    assert workers > 1 or done.returncode == 128 + number, done.stderr  # torchrun's own status is 1
    assert f"stopped by SIG{name} after update {at}: run the same command again to resume" in done.stdout
    assert "Traceback" not in done.stderr or workers > 1, done.stderr
    assert_alike(ends if workers > 1 else [*ends, *ends], updates=at)
    assert "| valid |" not in done.stdout.split(f'"num_updates": "{at}"')[1]
    resumed = fairseq_train(*args, workers=workers)
    assert f"@ {at} updates)" in resumed.stdout
    assert_same(end(tmp_path / "save"), end(tmp_path / "straight"), "")


@pytest.mark.parametrize(
    ("at", "status", "extra"),
    [
        (8, 143, []),
        slow(8, 143, ["--save-interval", "2", "--validate-interval", "1"]),
        slow(8, 143, ["--save-interval-updates", "4"]),
        slow(4, 143, ["--save-interval-updates", "4"]),
        slow(16, 0, []),
        slow(12, 0, ["--max-update", "12"]),
    ],
)
def test_what_is_due_after_the_update_is_done_as_ever(
    tmp_path: Path, at: int, status: int, extra: list[str]
) -> None:
    """Validation, the best checkpoint; and a training that has come to its end has not been stopped."""
    data = write_task(tmp_path / "data", train=32)
    straight = fairseq_train(*train_args(data, tmp_path / "straight", "standard", *WORDS, *extra))
    args = train_args(data, tmp_path / "save", "standard", *WORDS, *extra)
    done, _ = train_with("TERM", at, tmp_path / "out", args, workers=1)
    assert done.returncode == status, done.stderr
    assert ("done training" in done.stdout) == (status == 0)
    text = done.stdout
    if status:
        text += fairseq_train(*args).stdout
    assert text.count("| valid |") == straight.stdout.count("| valid |")
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        found, expected = (tmp_path / of / name for of in ("save", "straight"))
        assert_same(weights(found), weights(expected), name)
        best = [torch.load(path)["extra_state"]["best"] for path in (found, expected)]
        assert best[0] == best[1]
    means = [
        [(line.epoch, line.values["loss"]) for line in read_metrics(tmp_path / name).of(EPOCH)]
        for name in ("save", "straight")
    ]
    assert means[0] == means[1]


@pytest.mark.timing
@pytest.mark.parametrize("first", ["INT", "TERM"])
def test_ctrl_c_after_a_signal_ends_it_at_once(tmp_path: Path, first: str) -> None:
    args = train_args(write_task(tmp_path / "data"), tmp_path / "save", "standard")
    done, ends = train_with(f"{first}, Ctrl-C", 2, tmp_path / "out", args, workers=1)
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr
    assert ends[0]["updates"] == 1 and not (tmp_path / "save" / "checkpoint_last.pt").exists()


def test_without_a_last_checkpoint_it_says_so(tmp_path: Path) -> None:
    args = train_args(write_task(tmp_path / "data"), tmp_path / "save", "standard", "--no-last-checkpoints")
    done, _ = train_with("USR1", 2, tmp_path / "out", args, workers=1)
    assert done.returncode == 138
    assert "stopped by SIGUSR1 after update 2: no checkpoint_last.pt was asked for" in done.stdout
    # examples/slurm.sbatch would queue it again, always from the start.
    assert "stopped" not in (tmp_path / "save" / ".running").read_text()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""), ({"restore_file": "out/checkpoint_last.pt"}, ""),
        ({"restore_file": "pre.pt"}, "the same command would begin anew"),
        ({"reset_meters": True}, "the same command would begin anew"),
        ({"no_save_optimizer_state": True}, "can't be resumed"),
    ],
)  # fmt: skip
def test_a_run_that_can_not_be_resumed_says_why(changed: dict[str, Any], why: str) -> None:
    """Nor is it noted for SLURM, which would queue it for ever."""
    how = CheckpointConfig(save_dir="out")
    for name, value in changed.items():
        setattr(how, name, value)
    told = _why_not_resumable(how)
    assert why in told and bool(why) == bool(told)


def test_heartbeat_timeout_ends_a_run_that_hangs() -> None:
    program = "\n".join([
        "import fairseq_adv.plugin, time, torch",
        "from fairseq.distributed import DistributedTimeoutWrapper",
        "from fairseq_adv.fairseq_patches.signals import _listen",
        "_listen()",
        "DistributedTimeoutWrapper(torch.nn.Identity(), timeout=1)(0)",
        "time.sleep(20)",
    ])  # fmt: skip
    done = run_command(sys.executable, "-c", program)
    assert done.returncode == -signal.SIGKILL and "not making progress in 1 seconds" in done.stderr
