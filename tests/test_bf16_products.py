"""Products of bf16 matrices on a processor without such instructions: as exact as torch's own, and fast."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from processors import NONE, X86
from support import ADVERSARIAL, batch, build, flat_gradient, train_args, write_task
from torch import Tensor

from fairseq_adv.fairseq_patches import mixed_precision
from fairseq_adv.fairseq_patches.mixed_precision import fast_bf16_products
from fairseq_adv_compat import machine

CPU, ROUNDING = torch.device("cpu"), 2.0**-8  # half of the last of bf16's 8 bits, as a share


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without bf16 instructions, whatever this one is."""
    (tmp_path / "cpuinfo").write_text(NONE)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")


def matrices(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).to(torch.bfloat16).requires_grad_() for shape in shapes]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


@pytest.mark.parametrize(
    ("product", "shapes"),
    [
        (linear, [(30, 48), (40, 48), (40,)]), (torch.mm, [(30, 48), (48, 20)]),
        (torch.bmm, [(3, 30, 48), (3, 48, 20)]), (torch.baddbmm, [(3, 30, 20), (3, 30, 48), (3, 48, 20)]),
    ],
)  # fmt: skip
def test_products_and_gradients_are_rounded_once(without: None, product: Any, shapes: Any) -> None:
    factors = matrices(*shapes)
    with fast_bf16_products(CPU):
        found = product(*factors)
        gradients = torch.autograd.grad(found, factors, torch.ones_like(found))
    wide = [factor.detach().double().requires_grad_() for factor in factors]
    exact = product(*wide)
    expected = torch.autograd.grad(exact, wide, torch.ones_like(exact))
    assert {one.dtype for one in (found, *gradients)} == {torch.bfloat16}
    for ours, right in zip((found, *gradients), (exact, *expected)):
        assert ((ours - right).abs() <= ROUNDING * right.abs() + 1e-5).all()


def test_other_types_and_processors_are_left_alone(without: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (one.detach().float() for one in matrices((30, 48), (48, 20)))
    plain = x @ y
    with fast_bf16_products(CPU):
        assert torch.equal(x @ y, plain)
    assert isinstance(fast_bf16_products(CPU, is_bf16=False), nullcontext)
    assert isinstance(fast_bf16_products(torch.device("cuda")), nullcontext)
    machine.CPUINFO.write_text(X86.format(number=0, more="avx512_bf16"))
    assert isinstance(fast_bf16_products(CPU), nullcontext)


@pytest.fixture
def seen(without: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the products that have been computed so."""
    names: list[str] = []
    plain = mixed_precision._InFp32.__torch_dispatch__

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = plain(self, func, types, args, kwargs)
        if func in mixed_precision._PRODUCTS and result.dtype == torch.bfloat16:
            names.append(func.__name__)
        return result

    monkeypatch.setattr(mixed_precision._InFp32, "__torch_dispatch__", dispatch)
    return names


@pytest.mark.parametrize("method", ["freelb", "sentence_prediction"])
def test_an_update_multiplies_so(seen: list[str], tmp_path: Path, method: str) -> None:
    """In all its passes, forward and backward; fairseq's own criterion, too."""
    data, words = write_task(tmp_path / "data"), ADVERSARIAL if method == "freelb" else []
    gradients, counts = [], []
    for flags in (NONE, X86.format(number=0, more="amx_bf16")):
        machine.CPUINFO.write_text(flags)
        run = build(train_args(data, None, method, *words, "--amp", "--optimizer", "sgd", "--lr", "0"))
        run.task.train_step(batch(run, [0, 1, 2]), run.model, run.criterion, run.trainer.optimizer, 0)
        gradients.append(flat_gradient(run.model))
        counts.append((seen.count("addmm.default"), seen.count("mm.default")))
        seen.clear()
    (forward, backward), passes = counts[0], 3 if method == "freelb" else 1
    # Two layers of four products (query, key and value are one), and the head.
    assert forward >= 9 * passes and backward >= 18 * passes
    assert counts[1] == (0, 0)
    torch.testing.assert_close(*gradients, rtol=0, atol=0.02 * float(gradients[1].abs().max()))


@pytest.mark.parametrize("precision", ["--amp", "--bf16", ""])
def test_so_does_a_measurement_of_accordance(seen: list[str], tmp_path: Path, precision: str) -> None:
    words = ["--accordance-interval", "1", "--accordance-batches", "2", "--accordance-batch-size", "8"]
    words += [precision] if precision else []
    run = build(train_args(write_task(tmp_path / "data", train=40), None, "standard", *words))
    run.trainer.begin_epoch(1)
    run.criterion.flood.search.updated(run.model, run.trainer.optimizer, update=1, loss=1.0, size=1.0)
    if precision:  # each batch has both classes; forward and backward
        assert seen.count("addmm.default") >= 4 * 10 and seen.count("mm.default") >= 4 * 20
    else:
        assert not seen
