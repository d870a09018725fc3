"""``--optimizer torch_adamw`` makes the updates of fairseq's ``adam``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from omegaconf import OmegaConf
from support import ADVERSARIAL, fairseq_train, train_args, weights, write_task
from torch import nn

from fairseq_adv.optim import TorchAdamW

SETTINGS = {
    "adam_betas": "(0.9, 0.98)", "weight_decay": 0.1, "lr": [1e-2], "use_old_adam": False,
    "fp16_adam_stats": False, "tpu": False,
}  # fmt: skip


def optimizer(kind: type[FairseqAdam], eps: float, **changed: Any) -> tuple[FairseqAdam, list[nn.Parameter]]:
    torch.manual_seed(1)
    params = [nn.Parameter(torch.randn(size)) for size in ((7, 5), (11,), (3,))]
    cfg = OmegaConf.create({**SETTINGS, "adam_eps": eps, **changed})
    return kind(cfg, params), params


def step(one: FairseqAdam, params: list[nn.Parameter], t: int) -> None:
    generator = torch.Generator().manual_seed(t)
    one.set_lr(1e-2 * (1 - t / 300))
    for p in params[:2]:  # the third never gets a gradient
        # Of many sizes, so that epsilon matters in some entries and not in others.
        p.grad = torch.randn(p.shape, generator=generator) * 10.0 ** torch.randint(
            -6, 1, p.shape, generator=generator
        )
    one.step()


@pytest.mark.fast
@pytest.mark.parametrize("eps", [1e-8, 1e-6, 1e-3])
def test_200_updates_equal_those_of_adam(eps: float) -> None:
    (ours, mine), (theirs, reference) = optimizer(TorchAdamW, eps), optimizer(FairseqAdam, eps)
    start = [p.detach().clone() for p in reference]
    for t in range(200):
        step(ours, mine, t)
        step(theirs, reference, t)
        for p, q in zip(mine, reference):
            assert torch.allclose(p, q, rtol=2e-6, atol=2e-7)
    assert (start[0] - reference[0]).abs().min() > 1e-4
    assert torch.equal(mine[2], start[2])


def test_it_is_one_kernel() -> None:
    ours, _ = optimizer(TorchAdamW, 1e-8)
    assert ours.param_groups[0]["fused"] is True


def test_a_loaded_state_goes_on_to_the_bit() -> None:
    straight, expected = optimizer(TorchAdamW, 1e-3)
    for t in range(20):
        step(straight, expected, t)
    first, halfway = optimizer(TorchAdamW, 1e-3)
    for t in range(10):
        step(first, halfway, t)
    second, params = optimizer(TorchAdamW, 1e-3)
    for p, q in zip(params, halfway):
        p.data.copy_(q)
    second.load_state_dict(first.state_dict(), second.optimizer_config)
    for t in range(10, 20):
        step(second, params, t)
    assert all(torch.equal(p, q) for p, q in zip(params, expected))


@pytest.mark.parametrize("option", ["use_old_adam", "fp16_adam_stats"])
def test_options_of_adam_alone_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"--{option.replace('_', '-')}: .* pass --optimizer adam"):
        optimizer(TorchAdamW, 1e-8, **{option: True})


@pytest.mark.slow
def test_a_run_is_that_of_adam_and_a_restart_goes_on(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", train=64)

    def words(name: str, kind: str, updates: int) -> list[str]:
        options = [
            "--optimizer", kind, "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6", "--weight-decay", "0.1",
            "--clip-norm", "1", "--lr", "0.001", "--lr-scheduler", "polynomial_decay",
            "--total-num-update", "20", "--batch-size", "4", "--max-update", str(updates),
            "--dropout", "0.1", "--save-interval-updates", "5", "--no-epoch-checkpoints",
        ]  # fmt: skip
        return train_args(data, tmp_path / name, "freelb", *ADVERSARIAL, *options)

    fairseq_train(*words("adam", "adam", 12))
    fairseq_train(*words("straight", "torch_adamw", 12))
    fairseq_train(*words("stopped", "torch_adamw", 5))
    fairseq_train(*words("stopped", "torch_adamw", 12))
    straight, again, reference = (
        weights(tmp_path / name / "checkpoint_last.pt") for name in ("straight", "stopped", "adam")
    )
    for name, value in straight.items():
        assert torch.equal(again[name], value), name
        assert torch.allclose(reference[name], value, rtol=1e-5, atol=2e-6), name
