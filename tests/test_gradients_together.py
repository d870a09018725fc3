"""Operations on lists of tensors change no number of a run, and an update takes few of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated_gpu import POSSIBLE, emulated
from fairseq.optim import FairseqBMUF
from fairseq.optim.fp16_optimizer import FP16Optimizer
from support import ADVERSARIAL, VIRTUAL, batch, build, train_args
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_adv.fairseq_patches.checkpoint_files import copies_and_sources
from fairseq_adv.training import trainer
from fairseq_adv.training.gradients import handle_together

AVERAGED = [*VIRTUAL, "--store-ema", "--ema-decay", "0.9", "--ema-fp32"]
HALF = {"fp16": ["--fp16"], "unflattened": ["--fp16", "--fp16-no-flatten-grads"]}
MODES = {"fp32": [], **HALF, "memory-efficient": ["--fp16", "--memory-efficient-fp16"]}


class Operations(TorchDispatchMode):
    """Counts them while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _half_precision_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq asks for a GPU's number, which tensors on the CPU don't have."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)


def trained(data: Path, criterion: str, *words: str) -> SimpleNamespace:
    """A run after three updates, the last of two micro-batches, with a gradient norm that is clipped."""
    run = build(train_args(data, None, criterion, *words, "--clip-norm", "0.5", "--fp16-init-scale", "8"))
    run.trainer.begin_epoch(1)
    run.norms, clip = [], run.trainer.clip_grad_norm

    def clipped(most: float) -> torch.Tensor:
        norm: torch.Tensor = clip(most)
        run.norms.append(float(norm))
        return norm

    run.trainer.clip_grad_norm = clipped
    for parts in ([[0, 1, 2]], [[3, 4, 5, 6]], [[7, 8], [9]]):
        run.trainer.train_step([batch(run, rows) for rows in parts])
    return run


def values(run: SimpleNamespace) -> dict[str, torch.Tensor]:
    """All that three updates have changed."""
    found = {name: p.detach() for name, p in run.model.state_dict().items()}
    for place, state in run.trainer.optimizer.state_dict()["state"].items():
        found.update({f"{place} {n}": one for n, one in state.items() if isinstance(one, torch.Tensor)})
    return found


@pytest.mark.parametrize("mode", MODES)
def test_the_numbers_are_fairseqs(data: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Weights, moments and norms bit by bit, together and one by one."""
    run = trained(data, "freelb", *ADVERSARIAL, *MODES[mode])
    monkeypatch.setattr(trainer, "handle_together", lambda optimizer: None)
    without = trained(data, "freelb", *ADVERSARIAL, *MODES[mode])
    ours, plain = values(run), values(without)
    for one, is_patched in ((run, mode != "memory-efficient"), (without, False)):  # it has its own
        optimizer = getattr(one.trainer.optimizer, "fp32_optimizer", one.trainer.optimizer)
        assert ("multiply_grads" in vars(optimizer)) is is_patched
    assert run.norms == without.norms and run.norms[0] > 0.5  # so that it was clipped
    assert ours.keys() == plain.keys()
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_the_average_has_the_copies_for_inference(data: Path) -> None:
    """Which fairseq makes when it loads weights."""
    run = trained(data, "smart", *AVERAGED)
    copies = list(copies_and_sources(run.trainer.ema.model.state_dict()))
    assert len(copies) == 2 * (6 + 2 + 4)  # layers; q, k, v, out and two of fc, with a weight and a bias
    assert all(torch.equal(copy, source) for copy, source in copies)
    assert any(bool(copy.any()) for copy, _ in copies)


@pytest.mark.parametrize("mode", ["fp32", *HALF])
def test_operations_outside_the_passes_don_t_grow_with_the_layers(data: Path, mode: str) -> None:
    """From the end of the last backward on, with the average; the optimizer's own step is one too."""
    counts = []
    for layers in ("1", "3"):
        words = [*AVERAGED, *MODES[mode], "--encoder-layers", layers, "--optimizer", "torch_adamw"]
        run = trained(data, "smart", *words)
        operations, plain = Operations(), run.task.train_step

        def step(*args: Any, _plain: Any = plain, _seen: Operations = operations, **more: Any) -> Any:
            found = _plain(*args, **more)
            _seen.found.clear()  # those of the passes
            return found

        run.task.train_step = step
        with operations:
            run.trainer.train_step([batch(run, [0, 1])])
        ours = ("copy_", "mul_", "zero_", "add_", "linalg_vector_norm", "_to_copy")
        counts.append(sum(operations.found[f"aten::{name}"] for name in ours))
    assert counts[0] == counts[1], operations.found


@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
@pytest.mark.parametrize("mode", [[], ["--amp"]], ids=["fp32", "amp"])
def test_a_factor_on_the_gpu_is_one_operation_without_a_wait(data: Path, mode: list[str]) -> None:
    with emulated() as gpu:
        run = build([word for word in train_args(data, None, "standard", *mode) if word != "--cpu"])
        optimizer = run.trainer.optimizer
        for weight in optimizer.params:
            weight.grad = torch.full_like(weight, 2.0)
        factor = torch.full((), 0.25, dtype=torch.float64, device="cuda")
        with gpu.watched() as seen:
            optimizer.multiply_grads(factor)
        assert not seen.waits and sum(seen.operations.values()) <= 2, seen
        assert all(bool((weight.grad == 0.5).all()) for weight in optimizer.params)


def test_a_weight_without_a_gradient_gets_zeros(data: Path) -> None:
    """In fp32 too, where the update before left a gradient."""
    run = trained(data, "standard", "--fp16", "--fp16-no-flatten-grads")
    optimizer = run.trainer.optimizer
    assert isinstance(optimizer, FP16Optimizer)
    for weight, master in zip(optimizer.fp16_params, optimizer.fp32_params):
        weight.grad, master.grad = torch.full_like(weight, 2.0), torch.full_like(master, 9.0)
    optimizer.fp16_params[3].grad = None
    optimizer._needs_sync = True
    optimizer._sync_fp16_grads_to_fp32()
    for place, master in enumerate(optimizer.fp32_params):
        assert torch.equal(master.grad, torch.full_like(master, 0.0 if place == 3 else 2.0))
    optimizer.zero_grad()
    assert not any(master.grad.any() for master in optimizer.fp32_params)
    assert all(weight.grad is None for weight in optimizer.fp16_params)


def test_an_optimizer_with_its_own_way_keeps_it(data: Path) -> None:
    """As fairseq's BMUF, which wraps another one."""
    run = build(train_args(data, None, "sentence_prediction"))
    assert "multiply_grads" not in run.trainer.optimizer.__dict__  # another criterion's
    wrapped = FairseqBMUF.__new__(FairseqBMUF)
    torch_like = run.trainer.optimizer
    wrapped.__dict__.update(torch_like.__dict__)
    handle_together(wrapped)
    assert "multiply_grads" not in wrapped.__dict__ and "clip_grad_norm" not in wrapped.__dict__
