"""Divergences by hand, in fp64, where they are tiny, and where a column is missing."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fairseq_adv.perturbation.divergence import DIVERGENCES, divergence, squared_difference

pytestmark = pytest.mark.fast


def test_it_is_not_stable_kl() -> None:
    """By hand. mt-dnn's "KL" of p = 0.6 and y = 0.7 is -0.18; the real one is 0.022."""
    p, q = (torch.tensor([[x, 1 - x]]).log() for x in (0.6, 0.7))
    assert divergence(p, q, "kl").item() == pytest.approx(
        0.6 * math.log(6 / 7) + 0.4 * math.log(4 / 3), rel=1e-5
    )


def reference(a: torch.Tensor, b: torch.Tensor, kind: str) -> torch.Tensor:
    p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)

    def kl(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.exp() * (x - y)).sum(-1)

    mean = torch.logaddexp(p, q) - math.log(2)
    return {"kl": kl(p, q), "symmetric-kl": kl(p, q) + kl(q, p), "js": (kl(p, mean) + kl(q, mean)) / 2}[kind]


@pytest.mark.parametrize("kind", DIVERGENCES)
@pytest.mark.parametrize(
    ("apart", "tolerance"), [(1e-4, 0.05), (1e-2, 5e-4), (1.0, 2e-6), (10.0, 2e-6), (200.0, 2e-6)]
)
def test_value_and_gradient_against_fp64(kind: str, apart: float, tolerance: float) -> None:
    """The tolerance is that of the difference of two logits in fp32: 3 * 2^-23 / apart.

    The sum of p (log p - log q) itself is off by 1e5 times its value at 1e-5.
    """
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(100, 50, generator=generator) * 3
    b = (a + torch.randn(100, 50, generator=generator) * apart).requires_grad_()
    ours = divergence(F.log_softmax(a, -1), F.log_softmax(b, -1), kind, detach_targets=False)
    expected = reference(a, b, kind)
    assert (ours >= 0).all()
    torch.testing.assert_close(ours.double(), expected, rtol=tolerance, atol=0)
    (grad,) = torch.autograd.grad(ours.sum(), b, retain_graph=True)
    (wanted,) = torch.autograd.grad(expected.sum(), b)
    assert (grad - wanted).norm() <= max(tolerance, 5e-5) * wanted.norm()


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_a_missing_column_plays_no_part(kind: str) -> None:
    """Padded candidates have a score of -inf on both sides: no nan, in value and gradient."""
    a = torch.tensor([[1.0, 2.0, 0.5]])
    b = torch.tensor([[0.5, 2.5, 0.0]])
    padded = [F.pad(x, (0, 2), value=-math.inf).requires_grad_() for x in (a, b)]
    value = divergence(*(F.log_softmax(x, -1) for x in padded), kind, False)
    assert value.item() == pytest.approx(reference(a, b, kind).item(), rel=1e-6)
    value.sum().backward()
    for x in padded:
        assert x.grad is not None and x.grad.isfinite().all() and not x.grad[:, 3:].any()


def test_targets_are_constant() -> None:
    """Each KL reaches its second argument only; the squared difference is symmetric in any case."""
    a, b = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)

    def grads(value: torch.Tensor) -> list[torch.Tensor | None]:
        return list(torch.autograd.grad(value.sum(), [a, b], allow_unused=True, retain_graph=True))

    clean, perturbed = F.log_softmax(a, -1), F.log_softmax(b, -1)
    left, right = grads(divergence(clean, perturbed, "kl"))
    assert left is None and right is not None
    left, right = grads(divergence(clean, perturbed, "symmetric-kl"))
    assert left is not None and right is not None
    torch.testing.assert_close(right, grads(divergence(clean, perturbed, "kl"))[1])
    torch.testing.assert_close(left, b.softmax(-1).mul(-1).add(a.softmax(-1)), rtol=1e-4, atol=1e-6)
    left, right = grads(squared_difference(a, b, "kl"))
    assert left is None and right is not None
    left, right = grads(squared_difference(a, b, "symmetric-kl"))
    torch.testing.assert_close(left, -right)
