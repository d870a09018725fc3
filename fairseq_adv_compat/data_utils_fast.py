"""Stands in for fairseq's compiled module of this name where it is not built, with the same results.

Runs under that name, see ``STAND_INS``; so it imports nothing of ours. Source: fairseq 0.12.2,
``fairseq/data/data_utils_fast.pyx`` (MIT).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def batch_by_size_vec(
    indices: np.ndarray[Any, Any],
    num_tokens_vec: np.ndarray[Any, Any],
    max_tokens: int,
    max_sentences: int,
    bsz_mult: int,
) -> list[np.ndarray[Any, Any]]:
    """Splits ``indices`` [rows] into consecutive mini-batches.

    Args:
        num_tokens_vec: [rows] the length of each, in tokens.
        max_tokens: the most that rows × the longest length may be; 0 or less: no limit.
        max_sentences: the most rows; 0 or less: no limit.
        bsz_mult: rows are fewer than this or a multiple of it, where the limits allow.

    Raises:
        AssertionError: a row is longer than ``max_tokens``.
    """
    rows = len(indices)
    if rows == 0:
        return []
    assert max_tokens <= 0 or np.max(num_tokens_vec) <= max_tokens, (
        f"Sentences lengths should not exceed max_tokens={max_tokens}"
    )
    lengths = num_tokens_vec.tolist()
    most = max_sentences if max_sentences > 0 else rows
    ends, start, kept = [0], 0, 0  # rows start … kept - 1 stay together, whatever bsz_mult says
    while True:
        # The first row that does not fit beside those from `start` on.
        over = max(kept, min(start + most, rows))
        if max_tokens > 0:
            over = max(kept, _first_over(lengths, start, over, max_tokens))
        if over == rows:
            break
        fit = over - start
        end = max(kept, over if fit < bsz_mult else start + fit // bsz_mult * bsz_mult)
        ends.append(end)
        start, kept = end, over + 1
        if 0 < max_tokens < max(lengths[end:kept]) * (kept - end):  # too much for one batch, so it makes two
            ends.append(over)
            start = over
    fit = rows - start
    end = max(kept, rows if fit < bsz_mult else start + fit // bsz_mult * bsz_mult)
    ends += [rows] if end == rows else [end, rows]
    return [indices[first:last] for first, last in zip(ends, ends[1:])]


def _first_over(lengths: list[int], start: int, stop: int, max_tokens: int) -> int:
    """The first row before ``stop`` with which rows × longest exceeds ``max_tokens``; else ``stop``."""
    longest, row = 0, start
    while row < stop:
        # These fit if no row is longer than those so far; else as many as fit beside the longest of them.
        fit = min(stop, start + max_tokens // longest) if longest else row + 1
        longer = max(lengths[row:fit], default=0)
        if longer > longest:
            fit = min(fit, start + max_tokens // longer)
        if fit <= row:  # nothing is sure: this row by itself
            longest = max(longest, lengths[row])
            if longest * (row + 1 - start) > max_tokens:
                return row
            fit = row + 1
        longest = max(longest, max(lengths[row:fit]))
        row = fit
    return stop


def batch_by_size_fn(
    indices: np.ndarray[Any, Any],
    num_tokens_fn: Callable[[int], int],
    max_tokens: int,
    max_sentences: int,
    bsz_mult: int,
) -> list[np.ndarray[Any, Any]]:
    """:func:`batch_by_size_vec` with a function that tells a row's length."""
    lengths = np.fromiter(map(num_tokens_fn, indices.tolist()), np.int64, len(indices))
    return batch_by_size_vec(indices, lengths, max_tokens, max_sentences, bsz_mult)


def batch_fixed_shapes_fast(
    indices: np.ndarray[Any, Any],
    num_tokens_fn: Callable[[int], int],
    fixed_shapes_sorted: np.ndarray[Any, Any],
) -> list[list[int]]:
    """Splits ``indices`` [rows] into mini-batches that fit one of the shapes [shapes, (rows, length)]."""
    every = fixed_shapes_sorted.tolist()
    batches, batch, shapes, longest = [], list[int](), every, 0
    for index in indices.tolist():
        length = num_tokens_fn(index)
        longest = max(longest, length)
        fits = (i for i, (rows, most) in enumerate(shapes) if len(batch) < rows and longest <= most)
        first = next(fits, -1)
        if first == -1:
            batches.append(batch)
            # A new batch doesn't count this row's length, as in fairseq.
            batch, shapes, longest = [], every, 0
        else:
            shapes = shapes[first:]
        batch.append(index)
    return batches + [batch] * bool(batch)
