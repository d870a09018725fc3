"""AWP and SAM: which weights move and how far, and that they are put back. Gradient: test_restated.py."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import batch, build, flat_gradient, train_args
from torch import Tensor, nn

from criterions.restated import (
    FP16,
    ROWS,
    one_step,
    run_of,
)
from fairseq_adv.criterions import awp
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import DataError
from fairseq_adv.perturbation import weights as of_weights

GAMMA, RHO = 0.1, 0.5
WORDS = {"awp": ["--awp-gamma", str(GAMMA)], "sam": ["--sam-rho", str(RHO)]}
HALF = [FP16, "--fp16-init-scale", "4"]
BOTH = pytest.mark.parametrize("method", WORDS)


def built(data: Path, method: str, *words: str, **more: Any) -> SimpleNamespace:
    return build(train_args(data, None, method, *WORDS[method], *words, **more))


def named(run: SimpleNamespace) -> list[nn.Parameter]:
    """The weights that AWP moves: those that have a gradient, without biases."""
    weights = run.model.named_parameters()
    return [weight for name, weight in weights if name.endswith("weight") and weight.grad is not None]


def bits(model: nn.Module) -> list[Tensor]:
    """A weight of -0 is not that of 0."""
    kinds = {4: torch.int32, 2: torch.int16}
    return [p.detach().clone().view(kinds[p.element_size()]) for p in model.parameters()]


def assert_same_bits(ours: list[Tensor], before: list[Tensor]) -> None:
    assert all(torch.equal(*pair) for pair in zip(ours, before)) and len(ours) == len(before)


@contextmanager
def seen_at_each_pass(run: SimpleNamespace) -> Iterator[list[list[Tensor]]]:
    """The weights that each pass has."""
    seen: list[list[Tensor]] = []

    def note(*_: Any) -> None:
        seen.append([p.detach().clone() for p in run.model.parameters()])

    with run.model.encoder.register_forward_pre_hook(note):
        yield seen


@BOTH
@pytest.mark.parametrize("precision", [[], ["--memory-efficient-fp16", "--fp16-init-scale", "4"]])
def test_only_one_copy_of_the_weights_is_alive_in_the_second_pass(
    data: Path, method: str, precision: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the steps nor, in half precision, the gradients that they were made from."""
    run = built(data, method, *precision)
    made: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    original_steps, original_loss = awp.ascent_steps, MiniBatch.loss

    def ascent_steps(gradients: list[Tensor], *more: Any) -> list[Tensor]:
        steps = original_steps(gradients, *more)
        made.extend(weakref.ref(one) for one in (*gradients, *steps))
        return steps

    def loss(self: MiniBatch) -> Tensor:
        alive.append(sum(one() is not None for one in made))
        return original_loss(self)

    monkeypatch.setattr(awp, "ascent_steps", ascent_steps)
    monkeypatch.setattr(MiniBatch, "loss", loss)
    run.trainer.train_step([batch(run, ROWS)])
    assert made and alive == [0, 0]


@pytest.mark.parametrize("words", [[], HALF], ids=["fp32", "fp16"])
def test_awp_moves_each_tensor_by_a_share_of_its_norm_and_no_bias(
    folders: dict[str, Path], words: list[str]
) -> None:
    """A frozen one stays; the tied one moves once."""
    run = run_of(folders, "masked_lm", "awp", *WORDS["awp"], *words)
    frozen = run.model.encoder.sentence_encoder.layers[0].fc1.weight
    frozen.requires_grad_(False)
    before = bits(run.model)
    with seen_at_each_pass(run) as seen:
        log = one_step(run, batch(run, ROWS))[2]
    assert_same_bits(bits(run.model), before)
    names, (first, second) = [name for name, _ in run.model.named_parameters()], seen
    moving = {id(weight) for weight in named(run)}
    assert id(frozen) not in moving and id(run.model.encoder.lm_head.weight) in moving
    for name, weight, old, new in zip(names, run.model.parameters(), first, second):
        ratio = float((new.double() - old.double()).norm() / old.double().norm()) if old.any() else 0.0
        assert ratio == pytest.approx(GAMMA if id(weight) in moving else 0.0, rel=1e-2, abs=0), name
    assert float(log["weight_ratio"]) / log["nexamples"] == pytest.approx(GAMMA, rel=1e-2)
    assert log["nexamples"] == len(ROWS)


# --- the weights are put back -------------------------------------------------------------------


def test_an_interrupt_while_they_are_put_back_leaves_them_too(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = built(data, "awp")
    before, copy, calls = bits(run.model), of_weights._copy, []

    def interrupted(kept: list[Tensor], weights: list[nn.Parameter]) -> None:
        calls.append(1)
        if len(calls) == 1:
            copy(kept[:3], weights[:3])
            raise KeyboardInterrupt
        copy(kept, weights)

    monkeypatch.setattr(of_weights, "_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one_step(run, batch(run, ROWS))
    assert_same_bits(bits(run.model), before)


@BOTH
def test_from_a_gradient_that_is_not_finite_nothing_moves(data: Path, method: str) -> None:
    """An overflow of half precision meets the plain update, which the trainer skips."""
    run = built(data, method)
    hook = run.model.encoder.sentence_encoder.layers[0].fc1.weight
    calls: list[int] = []

    def overflow(gradient: Tensor) -> Tensor | None:
        calls.append(1)
        return torch.where(torch.rand_like(gradient) < 0.5, torch.inf, gradient) if len(calls) == 1 else None

    before = bits(run.model)
    with hook.register_hook(overflow), seen_at_each_pass(run) as seen:
        log = one_step(run, batch(run, ROWS))[2]
    assert all(torch.equal(*pair) for pair in zip(*seen)) and len(calls) == 2
    assert float(log["weight_ratio"]) == 0 and flat_gradient(run.model).isfinite().all()
    assert_same_bits(bits(run.model), before)


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--awp-names", "fc7"],
            "--awp-names fc7: this leaves no trained weight to perturb. Pass parts of names such as enc",
        ),
        (["--awp-skip", "weight"], "--awp-names weight --awp-skip weight: this leaves no trained weight"),
        (["--awp-names", ""], "--awp-names : this leaves no trained weight"),
    ],
)
def test_options_that_leave_no_weight_are_refused(data: Path, words: list[str], message: str) -> None:
    run = built(data, "awp", *words)
    with pytest.raises(DataError, match=message):
        run.criterion.check_before_training(run.model)


def test_names_are_parts_in_upper_or_lower_case(data: Path) -> None:
    run = built(data, "awp", "--awp-names", "FC1, out_proj", "--awp-skip", "LAYERS.1")
    with seen_at_each_pass(run) as seen:
        one_step(run, batch(run, ROWS))
    names = [name for name, _ in run.model.named_parameters()]
    moved = {name for name, old, new in zip(names, *seen) if not torch.equal(old, new)}
    layer, head = "encoder.sentence_encoder.layers.0", "classification_heads.sentence_classification_head"
    assert moved == {  # the layer's biases are 0, and so is a share of their norm
        f"{layer}.fc1.weight", f"{layer}.self_attn.out_proj.weight", f"{head}.out_proj.weight",
        f"{head}.out_proj.bias",
    }  # fmt: skip


@pytest.mark.parametrize("shared", [True, False])
def test_what_the_second_pass_leaves_out_has_a_gradient_of_zeros(data: Path, shared: bool) -> None:
    """Where each pass drops layers of its own; torch's DDP fails at a weight without one."""
    words = ["--encoder-layerdrop", "0.5", "--encoder-layers", "8"]
    run = built(data, "awp", *words, *([] if shared else ["--no-adv-share-dropout"]))
    one_step(run, batch(run, ROWS))
    layers = run.model.encoder.sentence_encoder.layers.children()  # the list's own iterator drops some
    gradients = [layer.fc1.weight.grad for layer in layers]
    zeros = [gradient is not None and not gradient.any() for gradient in gradients]
    assert any(gradient is None for gradient in gradients) and any(zeros) is not shared
