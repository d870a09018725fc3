"""Stands in for fairseq's compiled module of this name where it is not built, with the same results.

Runs under that name, see ``STAND_INS``; so it imports nothing of ours. Source: fairseq 0.12.2,
``fairseq/data/token_block_utils_fast.pyx`` (MIT).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np


def _get_slice_indices_fast(
    sizes: np.ndarray[Any, Any], break_mode: str, block_size: int, document_sep_len: int
) -> np.ndarray[Any, Any]:
    """Cuts a stream of sentences into blocks.

    Args:
        sizes: [sentences] the length of each.
        break_mode: "none": every ``block_size`` tokens; "complete": as many whole sentences as fit;
            "complete_doc": the same, but no block crosses one of ``document_sep_len`` tokens; "eos": one
            sentence each.

    Returns:
        [blocks, (first token, last + 1)].

    Raises:
        ValueError: another ``break_mode``, or "complete" where there is no block.
    """
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    if break_mode is None or break_mode == "none":
        starts = np.arange(math.ceil(int(ends[-1]) / block_size)) * block_size
        return np.stack([starts, np.minimum(starts + block_size, ends[-1])], 1)
    if break_mode == "eos":
        return np.stack([ends[:-1], ends[1:]], 1)
    if break_mode == "complete":
        blocks = list(_whole_sentences(ends.tolist(), 0, len(sizes), block_size))
    elif break_mode == "complete_doc":
        seps = np.flatnonzero(sizes == document_sep_len).tolist()
        known = ends.tolist()
        documents = zip([0, *(sep + 1 for sep in seps)], [*seps, len(sizes)])
        parts = (
            _whole_sentences(known, first, last, block_size) for first, last in documents if first < last
        )
        blocks = [(start, end) for start, end in chain.from_iterable(parts) if end - start > 1]
    else:
        raise ValueError("Invalid break_mode: " + break_mode)
    return np.fromiter(chain.from_iterable(blocks), np.int64).reshape(len(blocks), -1)


def _whole_sentences(ends: list[int], first: int, last: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Blocks of sentences ``first`` … ``last - 1``; a longer sentence is one, an empty one never."""
    while first < last and ends[first] < ends[last]:
        start = ends[first]
        full = bisect_right(ends, start + block_size, first, last + 1) - 1
        if ends[full] == start:  # empty ones, and then one that is too long
            full += 1
        yield start, ends[full]
        first = full


def _get_block_to_dataset_index_fast(
    sizes: np.ndarray[Any, Any], slice_indices: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Where blocks begin and end.

    Args:
        sizes: [sentences] the length of each.
        slice_indices: [blocks, (first token, last + 1)].

    Returns:
        [blocks, (first sentence, the block's start in it, last sentence)].
    """
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    starts, stops = slice_indices[:, 0], slice_indices[:, 1]
    # Of empty sentences at one place the first counts.
    first = np.searchsorted(ends, starts)
    first -= ends[np.minimum(first, len(sizes))] > starts
    last = np.searchsorted(ends, stops - 1)
    last -= ends[np.minimum(last, len(sizes))] > stops - 1
    return np.stack([first, starts - ends[first], np.where(stops > starts, last, first)], 1)
