"""Faults in the middle of real trainings: out of memory, a NaN, SIGKILL in a pass or while a checkpoint is
written.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from methods import METHODS, OPTIONS
from support import (
    PLUGIN,
    command,
    fairseq_train,
    launched,
    run_command,
    slow,
    train_args,
    weights,
    write_task,
)

from integration.test_equal_updates import SGD, run

FAULTY = Path(__file__).with_name("faulty_train.py")
LIKE_OTHERS = ("freelb", "standard", "flooding", "sift")
MIDDLE = {name: method.fault for name, method in METHODS.items()}


def train_with(
    fault: str, at: int, out: Path, args: list[str], workers: int = 2
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """The process, and what each worker ended with that was not ended by torchrun before it could tell."""
    out.mkdir()
    words = launched([*([command("python")] if workers == 1 else []), str(FAULTY), *args], workers)
    # As fairseq does with --user-dir: mutate.py runs the tests in a copy of the checkout.
    path = str(Path(PLUGIN).parent)
    done = run_command(*words, FAULT=fault, FAULT_AT=str(at), FAULT_OUT=str(out), PYTHONPATH=path)
    return done, [torch.load(path) for path in sorted(out.glob("*.pt"))]


def assert_alike(ends: list[dict[str, Any]], updates: int) -> None:
    """Nothing is left behind, and both workers hold the same finite weights after so many updates."""
    first, second = ends
    assert first["updates"] == second["updates"] == updates
    for end in ends:
        assert end["hooks"] == end["frozen"] == 0
    for name, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][name]), name
        assert weight.isfinite().all(), name


@pytest.mark.parametrize(
    ("method", "at", "extra"),
    [
        ("freelb", MIDDLE["freelb"], []),
        ("freelb", MIDDLE["freelb"], ["--bf16"]),  # gradients are copied to fp32 after they are reduced
        *(slow(method, MIDDLE[method], []) for method in METHODS if method not in LIKE_OTHERS),
        slow("freeat", 9, ["--update-freq", "2"]),
        # The first adversarial update: the one before it was plain, with less to log.
        slow("alum_vat", 3, ["--vat-start-update", "1"]),
        # An update that measures more than the one before it did.
        slow("alum_vat", 6, ["--log-interval", "2"]),
    ],
)  # fmt: skip
def test_out_of_memory_on_one_worker_costs_its_part_of_that_update(
    tmp_path: Path, method: str, at: int, extra: list[str]
) -> None:
    """fairseq's own recovery: that worker's gradient is dropped, the update is the other's, and all go on.

    With two micro-batches an update, the failing pass is in the first, under ``no_sync``. Before that update
    comes a validation, which logs other numbers than training.
    """
    data = write_task(tmp_path / "data", train=48)
    words = [*OPTIONS[method], *SGD, "--batch-size", "4", "--max-update", "6"]
    args = train_args(data, None, method, *words, "--validate-interval-updates", "1", *extra)
    done, ends = train_with("oom", at, tmp_path / "out", args)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-4000:]
    assert text.count("attempting to recover from OOM") == 1
    assert_alike(ends, 6)
    # As if that worker had had no mini-batch in the second update: awp's and sam's weights, which were moved
    # in the failing pass, are back to the bit.
    if method in ("freelb", "alum_vat", "awp", "sam") and not extra:
        _, expected = train_with("idle", 2, tmp_path / "idle", args)
        assert_alike(expected, 6)
        for name, weight in expected[0]["weights"].items():
            assert torch.equal(weight, ends[0]["weights"][name]), name


def test_out_of_memory_before_anything_was_logged_is_an_error_not_a_hang(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data")
    args = train_args(data, None, "freelb", *OPTIONS["freelb"], "--max-update", "2")
    done, _ = train_with("oom", 2, tmp_path / "out", args)
    assert done.returncode != 0
    assert "out of memory in this worker's first update" in done.stdout + done.stderr


@pytest.mark.parametrize("method", ["freelb", *map(slow, ("freeat", "yopo", "flooding", "sam"))])
def test_a_nan_on_one_worker_stops_both_before_the_update(tmp_path: Path, method: str) -> None:
    """As fairseq does in full precision: no worker takes the step. Rank 0 tells it, whose own was finite."""
    data = write_task(tmp_path / "data")
    words = [*OPTIONS[method], *SGD, "--max-update", "6"]
    at = 6 if method == "yopo" else MIDDLE[method]  # a full pass
    done, ends = train_with("nan", at, tmp_path / "out", train_args(data, None, method, *words))
    text = done.stdout + done.stderr
    assert done.returncode != 0 and "Nan/Inf" not in text and "StopIteration" not in text, text[-4000:]
    (line,) = re.findall(r"DataError: update .*", text)
    assert re.search(r": update \d: (the loss|adv_loss_last) is not finite", line)
    # freeat's second pass of its second group is the second of that group's updates.
    assert_alike(ends, 4 if method == "freeat" else 1)


@pytest.mark.parametrize("method", ["alum_vat", slow("pgd")])
def test_a_nan_in_an_ascent_step_moves_no_delta_and_stops_nothing(tmp_path: Path, method: str) -> None:
    """The pass told nothing about the weights: examples whose gradient is not finite stay where they are."""
    data = write_task(tmp_path / "data")
    words = [*OPTIONS[method], *SGD, "--max-update", "4"]
    done, ends = train_with("nan", MIDDLE[method], tmp_path / "out", train_args(data, None, method, *words))
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert_alike(ends, 4)


@pytest.mark.parametrize(
    ("method", "fault", "at"),
    [
        ("freelb", "save", 2),
        ("freelb", "copy", 2),
        # The second pass of update 5, at moved weights.
        slow("awp", "kill", 10),
    ],
)
def test_killed_in_a_save_or_a_pass_the_run_goes_on_from_the_last_whole_checkpoint(
    tmp_path: Path, method: str, fault: str, at: int
) -> None:
    """The checkpoint of update 6 is cut off, or never begun: the run goes on from that of update 3, and ends
    in the same weights to the bit.
    """
    data = write_task(tmp_path / "data", train=32)
    # Without a score there is no best checkpoint: the first copy of a moment is that of the last one.
    saving = ["--max-update", "8", "--max-epoch", "2", "--save-interval-updates", "3", "--disable-validation"]
    words = [*OPTIONS[method], *SGD, *saving, "--no-epoch-checkpoints"]
    args = train_args(data, tmp_path / "killed", method, *words)
    done, _ = train_with(fault, at, tmp_path / "out", args, workers=1)
    assert done.returncode == -9, (done.stdout + done.stderr)[-4000:]
    done = fairseq_train(*args)
    assert "checkpoint_last.pt (epoch 1 @ 3 updates)" in done.stdout + done.stderr
    expected = run(data, tmp_path / "straight", method, *saving)
    found = weights(tmp_path / "killed" / "checkpoint_last.pt")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
