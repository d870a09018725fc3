"""The best spans of windows, from the logits of their begins and ends."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FORBIDDEN = float("-inf")  # the logit of a position where no answer may begin or end


def best_spans(predictions: Tensor, longest: int, most: int) -> tuple[Tensor, Tensor]:
    """The best spans of the context of each window.

    Args:
        predictions: from :meth:`fairseq_adv.objectives.spans.Spans.predict`.
        longest: maximum number of tokens in a span.
        most: maximum number of spans; a short context has fewer.

    Returns:
        their scores, begin + end logit, (windows, spans) fp32, -inf after the last one; and their positions,
        first and last token, (windows, spans, 2) int64.
    """
    begin, end = predictions.float().unbind(dim=1)
    begin = begin.clone()
    begin[:, 0] = FORBIDDEN  # <s>, which stands for no answer
    ends = F.pad(end, (0, longest - 1), value=FORBIDDEN).unfold(1, longest, 1)
    scores = (begin.unsqueeze(-1) + ends).flatten(1)
    best, place = scores.topk(min(most, scores.size(1)), dim=1)
    first = place // longest
    return best, torch.stack([first, first + place % longest], dim=-1)


def null_scores(predictions: Tensor) -> Tensor:
    """(windows,) fp32: the score of no answer, begin + end logit of ``<s>``."""
    return predictions[:, :, 0].float().sum(dim=1)
