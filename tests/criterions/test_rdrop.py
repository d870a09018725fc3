"""R-Drop in fairseq's trainer against its loss restated in plain torch, with two masks in whatever mode."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.modules import FairseqDropout
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from support import batch, build, train_args
from torch import Tensor

from criterions.references import rdrop
from criterions.restated import (
    DROPOUT,
    OBJECTIVES,
    assert_gradient,
    loss,
    one_step,
    predictions,
    run_of,
    weight_of,
)

ALPHA = 6.0
WORDS = ["--rdrop-alpha", str(ALPHA)]
ROWS = [0, 1, 2, 3]
SGD = ["--optimizer", "sgd", "--lr", "0.1"]
PASSES: list[int] = []


@pytest.fixture
def of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout takes the same features of all rows, and others in the second pass than in the first."""

    def forward(self: FairseqDropout, x: Tensor, *rest: Any) -> Tensor:
        draws = torch.Generator().manual_seed(len(PASSES) % 2)
        return x * (torch.rand(x.size(-1), generator=draws) > 0.3) if self.p else x

    PASSES.clear()
    monkeypatch.setattr(FairseqDropout, "forward", forward)


def counted(folders: dict[str, Path], objective: str) -> SimpleNamespace:
    run = run_of(folders, objective, "rdrop", *WORDS, "--dropout", "0.3", *SGD)
    with torch.no_grad():  # In an untrained model the choices of a question have nearly equal scores.
        for name, weight in run.model.named_parameters():
            weight.mul_(4 if weight.dim() == 2 and (".layers." in name or "heads" in name) else 1)
    run.model.encoder.sentence_encoder.register_forward_pre_hook(lambda *_: PASSES.append(1))
    return run


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_is_that_of_the_restated_loss(
    folders: dict[str, Path], of_features: None, objective: str
) -> None:
    """(L_1 + L_2)/2 + alpha/4 (KL(P_1, P_2) + KL(P_2, P_1)), no side constant; of a regression its squared
    difference.
    """
    run = counted(folders, objective)
    sample = batch(run, ROWS)
    log = one_step(run, sample)[2]
    none = torch.zeros(*sample["net_input"]["src_tokens"].shape, 16)
    losses, found = (
        [function(run, sample, objective, none) for _ in range(2)] for function in (loss, predictions)
    )
    total = rdrop(losses, found, ALPHA * weight_of(objective))
    assert_gradient(run, total, 2e-5)
    between = float(log["rdrop_divergence"])
    assert between > 1e-3 and float(log["loss"]) == pytest.approx(float(total.detach()), rel=1e-5)
    mean = float((losses[0] + losses[1]).detach()) / 2
    assert float(log["task_loss"]) == pytest.approx(mean, rel=1e-5)
    assert float(log["loss"]) == pytest.approx(mean + ALPHA / 4 * between, rel=1e-5)


# --- two masks ----------------------------------------------------------------------------------


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What the first dropout of each pass leaves of ones, in the order of the passes."""
    seen: list[Tensor] = []
    original = FairseqDropout.forward

    def forward(self: FairseqDropout, x: Tensor, *rest: Any) -> Tensor:
        dropped = original(self, x, *rest)
        if self.module_name == "TransformerEncoder":
            seen.append(dropped.detach() != 0)
        return dropped

    monkeypatch.setattr(FairseqDropout, "forward", forward)
    return seen


@pytest.mark.parametrize("mode", ["plain", "micro-batches", "recomputed", "amp", "next updates"])
def test_no_two_passes_have_the_same_masks(folders: dict[str, Path], masks: list[Tensor], mode: str) -> None:
    """Neither those of a mini-batch nor those of others."""
    run = run_of(folders, "classes", "rdrop", *WORDS, *DROPOUT, *(["--amp"] if mode == "amp" else []))
    run.trainer.begin_epoch(1)
    if mode == "recomputed":
        for layer in run.model.encoder.sentence_encoder.layers:
            checkpoint_wrapper(layer)
    parts = 3 if mode == "micro-batches" else 1
    for _ in range(2 if mode == "next updates" else 1):
        run.trainer.train_step([batch(run, ROWS)] * parts)
    (log, *_) = run.criterion.update_logs
    assert log["rdrop_divergence"] > 1e-3
    assert len(masks) == 2 * (2 if mode == "next updates" else parts)
    assert all(not torch.equal(one, other) for i, one in enumerate(masks) for other in masks[:i])


@pytest.mark.parametrize(
    ("words", "is_warned"),
    [([], True), (["--dropout", "0.1"], False), (["--encoder-layerdrop", "0.1"], False)],
    ids=["none", "dropout", "layerdrop"],
)
def test_a_model_without_dropout_is_told_once(
    data: Path, words: list[str], is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run = build(train_args(data, None, "rdrop", "--pooler-dropout", "0", *words))
    for epoch in (1, 2):
        run.trainer.begin_epoch(epoch)
    assert caplog.text.count("is standard training at twice the cost: pass --dropout 0.1") == is_warned
