"""Pure tensor functions on a perturbation: its start, its norm, its step and its projection.

A perturbation, and its gradient, has the shape (rows, tokens, dim) of the embedded batch. Its norm belongs to
an *example*, which is one row or several: all candidates of a question form one example, and the norm is
taken over their concatenation (FreeLB, appendix A.1). All arithmetic is in fp32, whatever the model's
precision; results are fp32 and on the device of the arguments. What most functions take:

- ``mask``: (rows, tokens) bool, true on real tokens;
- ``dim``: the embedding dimension D;
- ``norm_type``: ``l2`` or ``linf``;
- ``groups``: the rows of each example; ``None``: every row is an example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_adv.perturbation.host_copies import host_copy

NORM_TYPES = ("l2", "linf")


@dataclass(frozen=True)
class Groups:
    """Which example each row belongs to.

    Attributes:
        index: (rows,) int64, the example of each row, in 0 … count - 1.
        count: number of examples.
    """

    index: Tensor
    count: int


def example_norm(x: Tensor, norm_type: str = "l2", groups: Groups | None = None) -> Tensor:
    """Norm of each example, (examples,): Frobenius over its rows x tokens x dim, or the largest entry (linf).

    ``x`` has any floating type.
    """
    flat = x.flatten(1).float()
    if norm_type == "l2":
        rows: Tensor = torch.linalg.vector_norm(flat, dim=1)
        if groups is None:
            return rows
        return rows.new_zeros(groups.count).index_add(0, groups.index, rows.square()).sqrt()
    rows = flat.abs().amax(dim=1)
    if groups is None:
        return rows
    return rows.new_zeros(groups.count).scatter_reduce(0, groups.index, rows, "amax")


def per_row(values: Tensor, groups: Groups | None) -> Tensor:
    """Expands one value per example, (examples,), to rows so that it can multiply (rows, tokens, dim)."""
    rows = values if groups is None else values[groups.index]
    return rows.view(-1, 1, 1)


def uniform_start(
    mask: Tensor,
    dim: int,
    magnitude: float,
    seeds: Sequence[int],
    norm_type: str = "l2",
    groups: Groups | None = None,
) -> Tensor:
    """The random start of a perturbation (FreeLB, Algorithm 1, line 4), zero on padding.

    l2: U(-m, m) / sqrt(L * D) with L the number of real tokens of the example, so that the expected
    norm is about m / sqrt(3) at every length. linf: U(-m, m).

    Each row has its own seed and draws for its real tokens only. So the start of an example does not depend
    on how the batch is padded, split or distributed over workers.

    Args:
        magnitude: m, 0 or more. 0 gives zeros.
        seeds: one integer per row, from :func:`row_seeds`.
    """
    if magnitude == 0:
        return torch.zeros(*mask.shape, dim, device=mask.device)
    noise = _noise(torch.rand, mask, dim, seeds).mul_(2 * magnitude).sub_(magnitude)
    return _placed(noise, mask, norm_type, groups)


def gaussian_start(
    mask: Tensor,
    dim: int,
    std: float,
    seeds: Sequence[int],
    norm_type: str = "linf",
    groups: Groups | None = None,
) -> Tensor:
    """N(0, std^2) in every entry, zero on padding (ALUM, Algorithm 1, line 4); seeded like the uniform start.

    l2: divided by sqrt(L * D) too.
    """
    return _placed(_noise(torch.randn, mask, dim, seeds).mul_(std), mask, norm_type, groups)


def entries(mask: Tensor, dim: int, groups: Groups | None = None) -> Tensor:
    """L * D of each example, (examples,), at least 1."""
    lengths = mask.sum(dim=1).float()
    if groups is not None:
        lengths = lengths.new_zeros(groups.count).index_add(0, groups.index, lengths)
    return (lengths * dim).clamp(min=1)


def _placed(noise: Tensor, mask: Tensor, norm_type: str, groups: Groups | None) -> Tensor:
    """(rows, tokens, dim): puts the noise of the real tokens, (real tokens, dim), in place; ``l2`` divides it
    by sqrt(L * D).
    """
    dim = noise.size(-1)
    start = torch.zeros(*mask.shape, dim, device=mask.device)
    start.masked_scatter_(mask.unsqueeze(-1), noise)  # indexing by the mask would wait for the GPU
    if norm_type == "l2":
        start *= per_row(entries(mask, dim, groups).rsqrt(), groups)
    return start


def _noise(draw: Callable[..., Tensor], mask: Tensor, dim: int, seeds: Sequence[int]) -> Tensor:
    """(real tokens of the batch, dim): the noise of each row, from a generator with the row's seed."""
    generator = torch.Generator(device=mask.device)
    noise = []
    for seed, length in zip(seeds, host_copy(mask).sum(dim=1).tolist()):
        generator.manual_seed(seed)
        noise.append(draw(length, dim, generator=generator, device=mask.device))
    return torch.cat(noise)


def ascent_direction(grad: Tensor, norm_type: str = "l2", groups: Groups | None = None) -> Tensor:
    """g / ||g|| per example; zero for an example whose gradient is zero or not finite.

    A zero gradient has no direction, and neither does one that overflowed under a loss scale. Such an example
    does not move; the rest of the batch does. ``grad`` has any floating type and loss scale, which cancels.
    """
    norm = example_norm(grad, norm_type, groups)
    usable = torch.isfinite(norm) & (norm > 0)
    inverse = torch.where(usable, norm, torch.ones_like(norm)).reciprocal()
    direction = grad.float() * per_row(inverse, groups)
    return torch.where(per_row(usable, groups), direction, torch.zeros_like(direction))


def token_direction(grad: Tensor, mask: Tensor) -> Tensor:
    """g / ||g||_2 per token (TAVAT, section 3); zero on padding, and for tokens whose gradient is zero or
    not finite. See :func:`ascent_direction`.
    """
    norm = torch.linalg.vector_norm(grad.float(), dim=-1, keepdim=True)
    usable = torch.isfinite(norm) & (norm > 0) & mask.unsqueeze(-1)
    direction = grad.float() / torch.where(usable, norm, torch.ones_like(norm))
    return torch.where(usable, direction, torch.zeros_like(direction))


def scale_by_token(x: Tensor, groups: Groups | None = None) -> Tensor:
    """Multiplies each token by its norm over the largest one in its example (TAVAT, section 3: n^i)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    largest = example_norm(norm, "linf", groups).clamp(min=torch.finfo(torch.float32).tiny)
    share: Tensor = norm / per_row(largest, groups)
    return x * share


def project(delta: Tensor, radius: float, norm_type: str = "l2", groups: Groups | None = None) -> Tensor:
    """The nearest point of the ball of ``radius`` around 0, per example (FreeLB, Algorithm 1, line 9).

    A radius of 0 or less means no ball: delta is returned unchanged.
    """
    if radius <= 0:
        return delta
    if norm_type == "linf":
        return delta.clamp(-radius, radius)
    norm = example_norm(delta, norm_type, groups)
    # The maximum of norm and radius is never 0, so no guard against 0/0 is needed.
    return delta * per_row(radius / norm.clamp(min=radius), groups)


def row_seeds(seed: int, update: int, ids: Sequence[int], groups: Groups | None = None) -> list[int]:
    """Well-mixed 63-bit seeds for the rows of a batch, from the run's seed, the update and the row's id.

    Rows of one example (the candidates of a question) get different seeds, according to their order. Examples
    with the same id, such as a question drawn twice in an epoch, get the same seeds, because whether they are
    in the same batch depends on how the epoch is split into batches.

    """
    seen: dict[int, int] = {}
    seeds = []
    examples = range(len(ids)) if groups is None else host_copy(groups.index).tolist()
    for row_id, example in zip(ids, examples):
        nth = seen[example] = seen.get(example, -1) + 1
        state = 0
        for part in (seed, update, row_id, nth):
            state = _split_mix(state ^ (part & _64_BITS))
        seeds.append(state >> 1)
    return seeds


_64_BITS = (1 << 64) - 1


def _split_mix(value: int) -> int:
    """SplitMix64 (Steele, Lea, Flood 2014): adjacent inputs give unrelated outputs."""
    value = (value + 0x9E3779B97F4A7C15) & _64_BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return value ^ (value >> 31)
