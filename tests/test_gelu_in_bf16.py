"""GELU in bf16 on a CPU is fairseq's own."""

from __future__ import annotations

import pickle
from typing import Callable

import pytest
import torch
from fairseq import utils
from torch import Tensor

import fairseq_adv.registration  # noqa: F401 - applies the patch

pytestmark = pytest.mark.fast
GELU: Callable[[Tensor], Tensor] = utils.get_activation_fn("gelu")
FAIRSEQS: Callable[[Tensor], Tensor] = GELU.__wrapped__  # type: ignore[attr-defined]
LEAST = torch.finfo(torch.float32).tiny  # smaller values are denormal
UNIT = torch.finfo(torch.bfloat16).eps  # in the last place of 1 to 2


def value_and_gradient(gelu: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    y = gelu(x)
    y.backward(torch.randn(len(x)).to(x.dtype))
    assert x.grad is not None and y.dtype == x.grad.dtype == x.dtype
    return [y.detach(), x.grad]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_value_and_its_gradient_are_fairseqs(dtype: torch.dtype) -> None:
    """All 65 280 finite numbers of bf16, and 63 488 of fp16; bf16 up to denormal results.

    fp32's errors depend on the processor's instructions: without AVX-512, up to 37 values differ by a unit in
    the last place or, where 1 + erf is near 0, by 1e-7; and 176 gradients below 1e-5, by up to 3e-8.
    """
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    x = x[x.isfinite()]
    for ours, theirs in zip(value_and_gradient(GELU, x), value_and_gradient(FAIRSEQS, x)):
        differ = (ours != theirs) & ~(ours.abs().le(LEAST) & theirs.abs().le(LEAST))
        assert differ.sum() <= 300
        torch.testing.assert_close(ours, theirs, rtol=UNIT, atol=2e-7)
        assert dtype == torch.bfloat16 or torch.equal(ours, theirs)


def test_no_copy_in_fp32_is_kept_for_the_backward_pass() -> None:
    kept: list[torch.dtype] = []
    x = torch.randn(8, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.dtype) or t, lambda t: t):
        GELU(x)
    assert kept == [torch.bfloat16]


def test_a_model_with_it_can_be_pickled() -> None:
    """By name, so that fairseq without this project finds its own."""
    assert pickle.loads(pickle.dumps(GELU)) is GELU
    assert b"fairseq_adv" not in pickle.dumps(GELU)
