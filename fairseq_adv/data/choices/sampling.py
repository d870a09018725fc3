"""Chooses the examples of an epoch from several data sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairseq_adv.data.text.segments import IntArray


def epoch_indices(
    sources: IntArray, weights: Sequence[float], seed: int, epoch: int, shuffle: bool = True
) -> IntArray:
    """Positions of an epoch's examples: a data set of n examples with weight w contributes round(w * n) of
    them.

    All examples occur floor(w) times; the rest is a sample without replacement, drawn again in each epoch.
    The same seed and epoch give the same result, so a run can resume within an epoch.

    Args:
        sources: (examples,) the data set of each example, ascending.
        weights: one per data set, 0 or more.
        seed: the run's seed.
        epoch: counted from 1.
        shuffle: mix the data sets; otherwise they follow one another.
    """
    rng = np.random.default_rng([seed, epoch])
    chosen = []
    for source, weight in enumerate(weights):
        members = np.flatnonzero(sources == source)
        whole, rest = divmod(round(weight * len(members)), len(members)) if len(members) else (0, 0)
        chosen += [members] * whole + [np.sort(rng.choice(members, rest, replace=False))]
    indices: IntArray = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)
    return rng.permutation(indices) if shuffle else indices
