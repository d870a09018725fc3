"""R3F's masks, and R4F's head. Its gradient: test_restated.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import batch, build, train_args

from criterions.restated import (
    DROPOUT,
    one_step,
    run_of,
)

EPSILON, LAMBDA = 0.2, 3.0
WORDS = ["--r3f-epsilon", str(EPSILON), "--r3f-lambda", str(LAMBDA)]
ROWS = [0, 1, 2, 3]
SPECTRAL = "--spectral-norm-classification-head"


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
