"""The closed form against the double sum over all pairs of batches and classes."""

from __future__ import annotations

import gc
import math
from itertools import product

import pytest
import torch
from torch import Tensor

from fairseq_adv.accordance.sums import AccordanceSums, GroupedSums, dot

SHAPES = [(3, 4), (5,), (2, 2, 2)]
Batch = dict[int, list[Tensor]]


def random_batches(
    count: int, classes: int, missing: float = 0.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> list[Batch]:
    """Gradients with a direction in common, each class missing from a batch with probability ``missing``."""
    draw = torch.Generator().manual_seed(seed)

    def gradient() -> list[Tensor]:
        return [(torch.randn(s, generator=draw, dtype=torch.float64) + 0.3).to(dtype) for s in SHAPES]

    return [
        {k: gradient() for k in range(classes) if torch.rand(1, generator=draw) >= missing}
        for _ in range(count)
    ]


def flat(gradient: list[Tensor]) -> Tensor:
    return torch.cat([part.double().flatten() for part in gradient])


def over_all_pairs(batches: list[Batch]) -> tuple[float, int]:
    """Eq. 11 to 13 as they are written, the mean taken over the pairs that are there."""
    cosines = [
        float(torch.cosine_similarity(flat(batches[s][i]), flat(batches[t][j]), dim=0))
        for s, t in product(range(len(batches)), repeat=2)
        for i, j in product(batches[s], batches[t])
        if s < t and i != j
    ]
    return (sum(cosines) / len(cosines) if cosines else math.nan), len(cosines)


def summed(batches: list[Batch], classes: int) -> AccordanceSums:
    parameters = next(gradient for batch in batches for gradient in batch.values())
    sums = AccordanceSums(classes, parameters)
    for batch in batches:
        for index, gradient in batch.items():
            norm = math.sqrt(dot(gradient, gradient))
            sums.add(index, gradient, norm)
        sums.end_batch()
    return sums


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_equals_the_sum_over_all_pairs(classes: int, missing: float) -> None:
    """In fp64 to 1e-12, also where batches lack classes, or have one only, or none."""
    batches = random_batches(12, classes, missing, seed=classes)
    assert missing == 0.0 or len({len(batch) for batch in batches}) > 1
    expected, pairs = over_all_pairs(batches)
    sums = summed(batches, classes)
    assert sums.pairs == pairs > 0
    assert sums.mean_cosine() == pytest.approx(expected, abs=1e-12)


def test_by_hand() -> None:
    """(1, 0) . (0.6, 0.8) and (0, 1) . (0, 1): mean 0.8, whatever the gradients' lengths."""
    first = {0: [torch.tensor([7.0, 0.0])], 1: [torch.tensor([0.0, 0.1])]}
    second = {0: [torch.tensor([0.0, 3.0])], 1: [torch.tensor([6.0, 8.0])]}
    sums = summed([first, second], 2)
    assert sums.pairs == 2
    assert sums.mean_cosine() == pytest.approx(0.8, abs=1e-6)


def test_without_a_pair_there_is_no_value() -> None:
    """One batch, or one class in all of them."""
    one_batch, one_class = random_batches(1, 3), [{0: b[0]} for b in random_batches(4, 1)]
    for batches in (one_batch, one_class):
        sums = summed(batches, 3)
        assert sums.pairs == 0
        assert math.isnan(sums.mean_cosine())


def test_a_parameter_without_a_gradient_counts_as_zero() -> None:
    """Also where the same parameter has one in the batch before."""
    batches = random_batches(6, 3, seed=4)
    holes = [(0, 0, 0), (2, 0, 1), (2, 2, 1), (5, 1, 2)]  # batch, class, parameter
    for s, i, n in holes:
        batches[s][i][n] = torch.zeros(SHAPES[n], dtype=torch.float64)
    expected, _ = over_all_pairs(batches)
    sums = AccordanceSums(3, batches[0][0])
    for s, batch in enumerate(batches):
        for i, gradient in batch.items():
            norm = math.sqrt(dot(gradient, gradient))
            sums.add(i, [None if (s, i, n) in holes else part for n, part in enumerate(gradient)], norm)
        sums.end_batch()
    assert sums.mean_cosine() == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_gradients_in_half_precision_are_summed_in_fp32() -> None:
    """200 batches: a running sum in fp16 would be off by about 1e-3; fp32's rounding leaves 1e-6.

    Entries of 300 have squares above fp16's largest number.
    """
    batches = random_batches(200, 2, seed=9)
    batches = [{k: [(300 * p).to(torch.float16) for p in g] for k, g in batch.items()} for batch in batches]
    expected, _ = over_all_pairs(batches)
    assert summed(batches, 2).mean_cosine() == pytest.approx(expected, abs=2e-6)


def live_floats() -> int:
    return sum(found.numel() for found in gc.get_objects() if issubclass(type(found), Tensor))


def test_memory_is_k_plus_1_vectors_for_any_number_of_batches() -> None:
    """The most that lives beside the gradient of the moment."""
    count, classes = 6, 2
    parameters = [torch.zeros(shape) for shape in SHAPES]
    size = flat(parameters).numel()
    gc.collect()
    before = live_floats()
    sums = AccordanceSums(classes, parameters)
    most = 0
    for _ in range(count):
        for index in range(classes):
            sums.add(index, [torch.ones(shape) for shape in SHAPES], size**0.5)
            most = max(most, live_floats() - before)
        sums.end_batch()
    assert most == (classes + 1) * size
    assert sums.mean_cosine() == pytest.approx(1, abs=1e-6)


def test_long_products_keep_fp32_s_digits() -> None:
    """5 million numbers: the sum of all in one go would be off by 1e-5, and torch's norm by 1e-4."""
    numbers = torch.randn(5_000_000, generator=torch.Generator().manual_seed(0))
    exact = float(numbers.double() @ numbers.double())
    assert dot([numbers], [numbers]) == pytest.approx(exact, rel=2e-6)


NAMES = ["encoder.weight", "encoder.bias", "classification_heads.of_mine.weight"]


def grouped(batches: list[Batch], classes: int, *groups: str) -> GroupedSums:
    named = list(zip(NAMES, [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]))
    sums = GroupedSums(named, classes, groups)
    for batch in batches:
        for index, gradient in batch.items():
            sums.add(index, gradient)
        sums.end_batch()
    return sums


def test_a_group_s_direction_has_length_1_in_the_group() -> None:
    batches = random_batches(5, 3, missing=0.2, seed=2)
    cosines = grouped(batches, 3, "all", "encoder", "head").cosines()
    parts = {"all": slice(None), "encoder": slice(0, 2), "head": slice(2, None)}
    for group, part in parts.items():
        expected, pairs = over_all_pairs([{k: g[part] for k, g in batch.items()} for batch in batches])
        assert cosines[group] == pytest.approx(expected, abs=1e-12), group
        assert pairs == grouped(batches, 3, group).pairs
    assert len({round(value, 3) for value in cosines.values()}) == 3


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_a_gradient_of_zero_or_that_is_not_finite_counts_as_absent(bad: float) -> None:
    """inf stands in the head alone; its batch and class are out of every group."""
    batches = random_batches(4, 2, seed=6)
    gone = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    gone[2].fill_(bad)
    broken = [{**batches[0], 1: gone}, *batches[1:]]
    expected, pairs = over_all_pairs([{0: batches[0][0]}, *batches[1:]])
    sums = grouped(broken, 2, "all", "encoder", "head")
    assert sums.pairs == pairs
    assert sums.cosines()["all"] == pytest.approx(expected, abs=1e-12)
    without = grouped([{0: batches[0][0]}, *batches[1:]], 2, "all", "encoder", "head")
    assert sums.cosines() == pytest.approx(without.cosines(), abs=1e-12)
