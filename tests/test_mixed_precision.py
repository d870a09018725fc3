"""fairseq's --amp and --bf16 with the patches: one division by the loss scale, and no TPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import AMPOptimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf
from support import (
    ADVERSARIAL,
    batch,
    build,
    train_args,
)

from fairseq_adv.fairseq_patches.mixed_precision import loss_scale
from fairseq_adv.optim import TorchAdamW
from fairseq_adv.training.half_precision import (
    load_loss_scale,
    load_master_weights,
    loss_scale_state,
    master_weights,
)

RATE, EPS, SCALES = 1e-3, 1e-8, (128, 65536)
GRADIENT = [1e-3, 1e-5, 1e-7, 1e-9]
OPTIMIZERS = {"adam": (FairseqAdam, FairseqAdamConfig), "torch_adamw": (TorchAdamW, FairseqAdamConfig)}


def amp_optimizer(weight: torch.nn.Parameter, name: str, **common: Any) -> AMPOptimizer:
    """fairseq's own class around one of fairseq's optimizers, with torch's scaler for CPUs."""
    kind, config = OPTIMIZERS[name]
    cfg = config(adam_eps=EPS, adam_betas="(0.9, 0.999)", lr=[RATE])
    cfg.tpu = False
    known = {"fp16_init_scale": 4, "amp_init_scale": 128, "amp_scale_window": None, "min_loss_scale": 1e-4}
    whole = SimpleNamespace(optimizer=cfg, common=OmegaConf.create({**known, **common}))
    return AMPOptimizer(whole, [weight], kind(cfg, [weight]))


@pytest.fixture
def scaling_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scaler that scales, as on a GPU."""
    plain = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, enabled, **more: plain("cpu", **more))


def first_step(gradient: torch.Tensor) -> torch.Tensor:
    """Of Adam: -lr sqrt(1 - beta2) / (1 - beta1) m / (sqrt(v) + eps), as fairseq has it, and ours with it."""
    return -RATE * gradient / (gradient.abs() + EPS / (1 - 0.999) ** 0.5)


@pytest.mark.usefixtures("scaling_on_cpus")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_first_step_of_adam_under_amp_is_the_closed_form(name: str, scale: int) -> None:
    """At 1e-5 9.7e-4; after two divisions by 128 it was 2.0e-4, by 65536 4.8e-7."""
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = amp_optimizer(weight, name, amp_init_scale=scale)
    gradient = torch.tensor(GRADIENT)
    optimizer.backward((weight * gradient).sum())
    assert torch.equal(weight.grad, gradient * scale)
    norm = optimizer.clip_grad_norm(0.0)
    torch.testing.assert_close(norm, gradient.norm())
    torch.testing.assert_close(weight.grad, gradient)
    optimizer.step()
    torch.testing.assert_close(weight.grad, gradient)
    torch.testing.assert_close(weight.detach(), first_step(gradient), rtol=1e-5, atol=0)


@pytest.mark.usefixtures("scaling_on_cpus")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_overflows_is_skipped_and_not_counted(name: str) -> None:
    """The step after it is Adam's first: its bias correction is that of one step."""
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = amp_optimizer(weight, name)
    gradient = torch.tensor(GRADIENT)
    optimizer.backward((weight * gradient * torch.tensor([1.0, 1.0, torch.inf, 1.0])).sum())
    optimizer.clip_grad_norm(0.0)
    optimizer.step()
    assert not weight.detach().any() and optimizer.scaler.get_scale() == 64
    optimizer.zero_grad()
    optimizer.backward((weight * gradient).sum())
    optimizer.clip_grad_norm(0.0)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), first_step(gradient), rtol=1e-5, atol=0)


def test_a_tpu_is_asked_for_by_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given as a list or on the process's own command line, with all options known or not."""

    def parse(*words: Any, **more: Any) -> Any:
        return options.parse_args_and_arch(options.get_training_parser(), *words, **more)

    for words, tpu in (
        (["--bf16", "--tpu"], True),
        (["--tpu"], True),
        (["--bf16"], False),
        (["--memory-efficient-bf16"], False),
        ([], False),
    ):
        args = train_args(data, None, "standard", *words)
        assert parse(args).tpu is tpu
        assert parse([*args, "--unknown"], parse_known=True)[0].tpu is tpu
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["fairseq-train", *args])
            found = parse()
        assert convert_namespace_to_omegaconf(found).common.tpu is tpu
        given = parse(args, suppress_defaults=True)
        assert hasattr(given, "tpu") is ("--tpu" in words) and hasattr(given, "bf16") is ("--bf16" in words)
    with pytest.raises(ValueError, match="Cannot combine --fp16 and --tpu"):
        parse(train_args(data, None, "standard", "--bf16", "--fp16"))


# --- restarts ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("scaling_on_cpus")
@pytest.mark.parametrize(
    "words",
    [["--memory-efficient-fp16", "--fp16-scale-window", "3"], ["--amp", "--amp-scale-window", "3"]],
    ids=["fp16", "amp"],
)
def test_a_resumed_run_scales_losses_as_an_uninterrupted_one(
    data: Path, tmp_path: Path, words: list[str]
) -> None:
    """The scale doubles at the same updates. fairseq keeps the scale of fp16 alone, and nothing of AMP."""
    whole, resumed = (build(train_args(data, None, "freelb", *ADVERSARIAL, *words)) for _ in range(2))
    for update in range(10):
        if update == 4:
            whole.trainer.consolidate_optimizer()
            whole.trainer.save_checkpoint(str(tmp_path / "last.pt"), {})
            resumed.trainer.load_checkpoint(str(tmp_path / "last.pt"))
        for run in (whole, resumed)[: 2 if update >= 4 else 1]:
            run.trainer.train_step([batch(run, [update % 4, 5, 6])])
    states = [loss_scale_state(run.trainer.optimizer) for run in (whole, resumed)]
    assert states[0] == states[1] and len(states[0]) > 3
    assert loss_scale(resumed.trainer.optimizer) == loss_scale(whole.trainer.optimizer) > 128
    pairs = zip(whole.trainer.model.named_parameters(), resumed.trainer.model.parameters())
    unlike = [name for (name, one), other in pairs if one.requires_grad and not torch.equal(one, other)]
    assert not unlike


def test_a_loss_scale_of_another_precision_or_of_an_attacker_is_left_alone(data: Path) -> None:
    run = build(train_args(data, None, "freelb", *ADVERSARIAL, "--memory-efficient-fp16"))
    before = loss_scale_state(run.trainer.optimizer)
    for other in (None, {}, {"scale": 2.0}, [1], dict.fromkeys(before, "1")):
        load_loss_scale(run.trainer.optimizer, other)
        assert loss_scale_state(run.trainer.optimizer) == before
    load_loss_scale(run.trainer.optimizer, dict.fromkeys(before, 5))
    assert loss_scale_state(run.trainer.optimizer) == dict.fromkeys(before, 5)


@pytest.mark.parametrize(
    "words",
    [["--bf16"], ["--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4"]],
    ids=["bf16", "fp16"],
)
def test_a_resumed_run_has_the_weights_that_half_precision_rounds(
    data: Path, tmp_path: Path, words: list[str]
) -> None:
    """At this rate most updates are smaller than a rounding step, and would be lost."""
    given = [*ADVERSARIAL, *words, "--lr", "3e-5"]
    whole, resumed = (build(train_args(data, None, "freelb", *given)) for _ in range(2))
    for update in range(6):
        if update == 3:
            whole.trainer.consolidate_optimizer()
            whole.trainer.save_checkpoint(str(tmp_path / "last.pt"), {})
            extra = resumed.trainer.load_checkpoint(str(tmp_path / "last.pt"))
            assert "fp32_weights" not in extra, "which fairseq keeps as long as it trains"
        for run in (whole, resumed)[: 2 if update >= 3 else 1]:
            run.trainer.train_step([batch(run, [update % 4, 5, 6])])
    pairs = list(zip(*(master_weights(run.trainer.optimizer) for run in (whole, resumed))))
    assert pairs and all(torch.equal(one, other) for one, other in pairs)
    whole.trainer.cfg.checkpoint.no_save_optimizer_state = True
    whole.trainer.save_checkpoint(str(tmp_path / "small.pt"), {})
    kept = [torch.load(tmp_path / f"{name}.pt", weights_only=False) for name in ("last", "small")]
    assert ["fp32_weights" in one["extra_state"] for one in kept] == [True, False]
    other = [torch.zeros_like(one) for one, _ in pairs]
    load_master_weights(resumed.trainer.optimizer, other)  # of other weights: left alone
    assert torch.equal(master_weights(resumed.trainer.optimizer)[0], pairs[0][0])
    part = [one.clone() for one, _ in pairs]  # of which one number is of another weight
    part[0].view(-1)[1] = float("nan")
    (mine, *_), expected = master_weights(resumed.trainer.optimizer), pairs[0][0].clone()
    mine.data.view(-1)[:2] += 1e-9
    expected.view(-1)[1] = mine.view(-1)[1]
    load_master_weights(resumed.trainer.optimizer, part)
    assert torch.equal(mine, expected)
