"""Counts the entities in tags: those that are correct, predicted, and in the data.

The rules are conlleval's (CoNLL-2000): both boundaries and type must be correct, and an I- tag begins an
entity if no entity of its type is open. Tags are numbered as in
:class:`fairseq_adv.tasks.tagging.TaggingTask`: 0 is O, 2k + 1 is B- of type k, 2k + 2 is I-.
"""

from __future__ import annotations

import torch
from torch import Tensor


def count_entities(
    predicted: Tensor, gold: Tensor, sentence: Tensor, types: int, strict: bool = False
) -> Tensor:
    """Counts over several sentences, on the device of the tensors.

    Args:
        predicted: (words,) int64 tags of all sentences, concatenated.
        gold: (words,) int64.
        sentence: (words,) int64, the index of each word's sentence, ascending.
        types: number of types.
        strict: ignore entities that begin with I-, on both sides.

    Returns:
        (3, types) int64: for each type the number of entities that are correct, predicted, and in the data.
    """
    ours, length = _entities(predicted, sentence, strict)
    theirs, its_length = _entities(gold, sentence, strict)
    right = torch.where((ours == theirs) & (length == its_length), ours, torch.zeros_like(ours))
    numbers = torch.arange(1, types + 1, device=gold.device)
    return torch.stack([(side.unsqueeze(1) == numbers).sum(dim=0) for side in (right, ours, theirs)])


def _entities(tags: Tensor, sentence: Tensor, strict: bool) -> tuple[Tensor, Tensor]:
    """For each word: the type of the entity that begins there, from 1, or 0; and its number of words."""
    kind = (tags + 1) // 2
    goes_on = torch.zeros_like(tags, dtype=torch.bool)
    goes_on[1:] = (
        (tags[1:] % 2 == 0) & (tags[1:] > 0) & (kind[1:] == kind[:-1]) & (sentence[1:] == sentence[:-1])
    )
    piece = (~goes_on).cumsum(0) - 1  # each word outside entities is a piece of its own
    length = torch.zeros_like(tags).index_add(0, piece, torch.ones_like(tags))[piece]
    begins = (~goes_on) & (tags % 2 == 1) if strict else ~goes_on
    return torch.where(begins, kind, torch.zeros_like(kind)), length


def scores_of(right: float, predicted: float, gold: float) -> tuple[float, float, float]:
    """Precision, recall and F1 x 100 from counts; 0 if there is nothing to count."""

    def share(part: float, whole: float) -> float:
        return 100.0 * part / whole if whole else 0.0

    return share(right, predicted), share(right, gold), share(2 * right, predicted + gold)
