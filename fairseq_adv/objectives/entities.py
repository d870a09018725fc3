"""Entities that tags mark, counted: right ones, predicted ones and those of the data.

The rules are conlleval's (CoNLL-2000): boundaries and type must both be right, and a tag I- begins an entity
where none of its type is open. Tags are numbered as in :class:`fairseq_adv.tasks.tagging.TaggingTask`: 0 is
O, 2k + 1 is B- of type k, 2k + 2 is I-.
"""

from __future__ import annotations

import torch
from torch import Tensor


def count_entities(
    predicted: Tensor, gold: Tensor, sentence: Tensor, types: int, strict: bool = False
) -> Tensor:
    """Counts over some sentences, computed where the tensors are.

    Args:
        predicted: (words,) int64 tags of all sentences one after the other.
        gold: (words,) int64.
        sentence: (words,) int64, which sentence a word is in, ascending.
        types: how many there are.
        strict: an entity that begins with I- is none, on both sides.

    Returns:
        (3, types) int64: of each type the entities that are right, predicted, and in the data.
    """
    ours, length = _entities(predicted, sentence, strict)
    theirs, its_length = _entities(gold, sentence, strict)
    right = torch.where((ours == theirs) & (length == its_length), ours, torch.zeros_like(ours))
    numbers = torch.arange(1, types + 1, device=gold.device)
    return torch.stack([(of.unsqueeze(1) == numbers).sum(dim=0) for of in (right, ours, theirs)])


def _entities(tags: Tensor, sentence: Tensor, strict: bool) -> tuple[Tensor, Tensor]:
    """Of each word the type, from 1, of the entity that begins there, or 0; and how many words it has."""
    kind = (tags + 1) // 2
    goes_on = torch.zeros_like(tags, dtype=torch.bool)
    goes_on[1:] = (
        (tags[1:] % 2 == 0) & (tags[1:] > 0) & (kind[1:] == kind[:-1]) & (sentence[1:] == sentence[:-1])
    )
    piece = (~goes_on).cumsum(0) - 1  # words outside are pieces of one
    length = torch.zeros_like(tags).index_add(0, piece, torch.ones_like(tags))[piece]
    begins = (~goes_on) & (tags % 2 == 1) if strict else ~goes_on
    return torch.where(begins, kind, torch.zeros_like(kind)), length


def scores_of(right: float, predicted: float, gold: float) -> tuple[float, float, float]:
    """Precision, recall and F1 x 100 from counts; 0 where there is nothing to count."""

    def share(part: float, whole: float) -> float:
        return 100.0 * part / whole if whole else 0.0

    return share(right, predicted), share(right, gold), share(2 * right, predicted + gold)
