"""Trainings that are killed at random moments, again and again, end as if they had not been.

The weights, the optimizer and the place in the data are the same to the bit, and no process is left over.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support import ADVERSARIAL, VIRTUAL, fairseq_train, train_args, weights, write_task

from integration.watched_run import Run, kill

SEED = 20261122
OPTIONS = {"freelb": ADVERSARIAL, "alum_vat": VIRTUAL}
# Who is killed. "training" is fairseq-train alone, without the process that loads its data; of several
# workers rank 0 writes the checkpoints. Kills within a save: test_faults.py.
VICTIMS = {1: ["all", "training"], 2: ["all", "rank 0", "rank 1", "launcher"]}
BATCHES = 64 // 4  # of an epoch


def live(args: list[str], workers: int, victim: str, chance: random.Random) -> tuple[int, int]:
    """Starts or resumes the run, and kills it at some moment; the update it resumed from, and its last."""
    run = Run(args, workers)
    first, delay = chance.randint(4, 7), chance.uniform(0, 0.1)
    while len(run.updates()) < first:
        assert run.read(), f"the run ended by itself: {run.text[-3000:]}"
        time.sleep(0.002)
    targets, deadline = run.victims(victim), time.monotonic() + delay
    while time.monotonic() < deadline and run.read():
        time.sleep(0.002)
    kill(targets)
    while victim == "all" and (started_since := run.victims("all")):
        kill(started_since)
    run.wait_until_gone()
    assert "done training" not in run.text, "the run was over before it was killed"
    return run.resumed(), max(run.updates())


def end(save: Path) -> dict[str, Any]:
    """What a run's last checkpoint says of its training, without clocks.

    And without the best loss that fairseq's schedules keep, which polynomial_decay does not use: fairseq
    adds an epoch's loss to it after the epoch's checkpoint, and not when a run goes on from there.
    """
    state = torch.load(save / "checkpoint_last.pt")
    extra = {name: state["extra_state"].get(name) for name in ("train_iterator", "val_loss", "best")}
    return {
        "weights": weights(save / "checkpoint_last.pt"), "optimizer": state["last_optimizer_state"],
        "updates": state["optimizer_history"][-1]["num_updates"], "extra": extra,
    }  # fmt: skip


def assert_same(found: Any, expected: Any, where: str) -> None:
    """To the bit."""
    assert type(found) is type(expected), where
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name in expected:
            assert_same(found[name], expected[name], f"{where} {name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, pair in enumerate(zip(found, expected)):
            assert_same(*pair, f"{where} {number}")
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), where
    else:
        assert found == expected, where


@pytest.mark.slow  # test_equal_updates.py kills once, test_faults.py within a save
@pytest.mark.parametrize(("method", "workers"), [("freelb", 1), ("alum_vat", 2)])
@pytest.mark.timing
def test_killed_again_and_again_it_ends_as_if_it_had_not_been(
    tmp_path: Path, method: str, workers: int
) -> None:
    chance = random.Random(f"{SEED} {method} {workers}")
    victims = chance.sample(3 * VICTIMS[workers], 3 * len(VICTIMS[workers]))
    data, updates = write_task(tmp_path / "data", train=64), 15 * len(victims)
    words = [
        *OPTIONS[method], "--dropout", "0.1", "--attention-dropout", "0.1", "--lr", "0.001",
        "--lr-scheduler", "polynomial_decay", "--total-num-update", str(2 * updates), "--max-epoch", "1000",
        "--max-update", str(updates), "--save-interval-updates", "3", "--keep-interval-updates", "1",
        "--no-epoch-checkpoints", "--encoder-ffn-embed-dim", "8192",  # 10 MB
        # With one worker a process that loads data; with two, validations and best checkpoints.
        *(["--num-workers", "1", "--disable-validation"] if workers == 1 else []),
    ]  # fmt: skip
    fairseq_train(*train_args(data, tmp_path / "straight", method, *words), workers=workers)
    save = tmp_path / "killed"
    args = train_args(data, save, method, *words)
    lives = [live(args, workers, victim, chance) for victim in victims]
    fairseq_train(*args, workers=workers)
    assert_same(end(save), end(tmp_path / "straight"), "")
    assert sorted(os.listdir(save)) == sorted(os.listdir(tmp_path / "straight"))
    assert any(0 < resumed < last and last % (BATCHES // workers) for resumed, last in lives)


@pytest.mark.slow
@pytest.mark.timing
def test_workers_whose_launcher_is_killed_before_they_have_begun_end(tmp_path: Path) -> None:
    """torch would have them look for it for half an hour, and then once more."""
    args = train_args(write_task(tmp_path / "data"), tmp_path / "save", "freelb", *ADVERSARIAL)
    run = Run(args, workers=2)
    while not (run.victims("rank 0") and run.victims("rank 1")):
        assert run.read(), run.text
        time.sleep(0.002)
    kill(run.victims("launcher"))
    run.wait_until_gone()
    assert run.text.count("error: torchrun, which started this worker, has ended") == 2
    assert not run.updates()
