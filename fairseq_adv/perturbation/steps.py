"""The ascent steps of FreeLB, ALUM, mt-dnn and SMART.

Each maps (delta, g) to the next delta, all (rows, tokens, dim) fp32. Papers and code mean different
things by the projection, and the sizes of their deltas differ by five orders of magnitude; docs/methods.md
compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from fairseq_adv.perturbation import geometry
from fairseq_adv.perturbation.geometry import Groups

VAT_PROJECTIONS = ("smart", "clamp", "unit", "l2")
Step = Callable[[Tensor, Tensor], Tensor]


def vat_step(projection: str, step_size: float, epsilon: float, groups: Groups | None) -> Step:
    """The step for one of :data:`VAT_PROJECTIONS`, with eta ``step_size`` and ``epsilon``."""
    if projection == "clamp":
        return partial(clamp_step, step_size=step_size, epsilon=epsilon)
    if projection == "unit":
        return partial(unit_step, step_size=step_size)
    norm_type = "linf" if projection == "smart" else "l2"
    return partial(normalized_step, step_size=step_size, epsilon=epsilon, norm_type=norm_type, groups=groups)


def clamp_step(delta: Tensor, grad: Tensor, step_size: float, epsilon: float) -> Tensor:
    """ALUM, Algorithm 1, lines 6 and 7: delta + eta * g, clamped to +-epsilon; g is not normalised."""
    return (delta + step_size * grad.float()).clamp(-epsilon, epsilon)


def unit_step(delta: Tensor, grad: Tensor, step_size: float, guard: float = 1e-6) -> Tensor:
    """mt-dnn's code: delta + eta * g, each token divided by its largest entry (plus ``guard``).

    epsilon has no effect: the largest entry of each token becomes nearly 1.
    """
    moved = delta + step_size * grad.float()
    return moved / (moved.abs().amax(dim=-1, keepdim=True) + guard)


def normalized_step(
    delta: Tensor, grad: Tensor, step_size: float, epsilon: float, norm_type: str, groups: Groups | None
) -> Tensor:
    """SMART, Algorithm 1, with ``linf``: delta + eta * g / ||g||, projected onto the ball of the same norm.

    Norms are per example. ``l2`` is FreeLB's step (Algorithm 1, lines 8 and 9).
    """
    moved = delta + step_size * geometry.ascent_direction(grad, norm_type, groups)
    return geometry.project(moved, epsilon, norm_type, groups)


def cosine(x: Tensor, y: Tensor, groups: Groups | None) -> Tensor:
    """Cosine of the angle between two tensors (rows, tokens, dim) for each example, (examples,) fp32; 0 if
    one is zero or not finite.
    """
    x = geometry.ascent_direction(x, "l2", groups)
    y = geometry.ascent_direction(y, "l2", groups)
    rows = (x * y).flatten(1).sum(dim=1)
    return rows if groups is None else rows.new_zeros(groups.count).index_add(0, groups.index, rows)
