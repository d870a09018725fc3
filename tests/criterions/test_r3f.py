"""R3F in fairseq's trainer against its loss restated in plain torch, on every objective; R4F's head."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import batch, build, fairseq_train, train_args, weights

from criterions.restated import (
    DROPOUT,
    one_step,
    run_of,
    write_all,
)

EPSILON, LAMBDA = 0.2, 3.0
WORDS = ["--r3f-epsilon", str(EPSILON), "--r3f-lambda", str(LAMBDA)]
ROWS = [0, 1, 2, 3]
SPECTRAL = "--spectral-norm-classification-head"


def test_the_noise_reaches_the_encoder(folders: dict[str, Path]) -> None:
    """Without dropout the divergence is the noise's alone. fairseq's own example measures none."""
    logs = []
    for epsilon in ("0", "1e-5", "1e-2"):
        run = run_of(folders, "classes", "r3f", "--r3f-epsilon", epsilon)
        logs.append(float(one_step(run, batch(run, ROWS))[2]["r3f_divergence"]))
    none, small, large = logs
    assert none == 0 < small
    assert large == pytest.approx(1e6 * small, rel=0.2)  # it grows with the square


def test_shared_dropout_leaves_the_divergence_of_the_noise(folders: dict[str, Path]) -> None:
    """Masks of its own, as published, change the predictions far more than noise of 1e-5."""
    words = ["--r3f-epsilon", "1e-5", *DROPOUT]
    own = run_of(folders, "classes", "r3f", *words)
    shared = run_of(folders, "classes", "r3f", *words, "--r3f-share-dropout")
    found = [float(one_step(run, batch(run, ROWS))[2]["r3f_divergence"]) for run in (own, shared)]
    assert found[0] > 1e4 * found[1] > 0


def test_r4f_is_r3f_with_a_head_of_spectral_norm_1(folders: dict[str, Path]) -> None:
    """Each of the two passes makes a step of the power iteration; the largest singular value of the weight
    that the head uses comes to 1.
    """
    run = build(train_args(folders["classes"], None, "r3f", *WORDS, SPECTRAL, "--lr", "1e-3", classes=3))
    run.trainer.begin_epoch(1)
    head = run.model.classification_heads["sentence_classification_head"].out_proj
    passes: list[Any] = []
    head.register_forward_hook(lambda *_: passes.append(1))
    before = head.weight_orig.detach().clone()
    for _ in range(20):
        run.trainer.train_step([batch(run, ROWS)])
    assert len(passes) == 40 and not torch.equal(before, head.weight_orig)
    norm = torch.linalg.matrix_norm(head.weight.detach(), 2)
    assert float(norm) == pytest.approx(1.0, rel=1e-2)
    assert abs(float(torch.linalg.matrix_norm(head.weight_orig.detach(), 2)) - 1) > 0.05


@pytest.mark.slow
@pytest.mark.timing
def test_r4f_killed_in_mid_epoch_and_restarted_ends_in_the_same_weights(tmp_path: Path) -> None:
    """To the bit, with dropout. fairseq 0.12.2 itself can't read a checkpoint with such a head."""
    from integration.test_equal_updates import start_and_kill

    data = write_all(lambda name: tmp_path / name)["classes"]
    words = [*WORDS, SPECTRAL, "--dropout", "0.1", "--max-epoch", "9", "--save-interval-updates", "3"]
    words += ["--keep-interval-updates", "1", "--no-epoch-checkpoints"]
    args = train_args(data, tmp_path / "killed", "r3f", *words, classes=3)
    killed_at = start_and_kill(args, 1, after_update=4)
    done = fairseq_train(*args)
    assert re.search(r"checkpoint_last.pt \(epoch \d+ @ [3-9]\d* updates\)", done.stdout + done.stderr), (
        killed_at
    )
    fairseq_train(*train_args(data, tmp_path / "straight", "r3f", *words, classes=3))
    killed, straight = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("killed", "straight"))
    assert any(name.endswith("weight_orig") for name in straight)
    assert all(torch.equal(killed[name], straight[name]) for name in straight)
