"""Looks for the masked positions of a mini-batch once, not in each pass.

fairseq/models/roberta/model.py, line 488: the head of a masked LM indexes with a mask, so that each forward
and each backward pass waits for the GPU to count the masked positions. If they are known from
:func:`fairseq_adv.perturbation.host_copies.places`, the head uses them instead. The result is the same, bit
by bit. Masks of other criterions are not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor

from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv.perturbation.host_copies import known_places


def find_masked_positions_once() -> None:
    """Applies the patch."""
    replace(RobertaLMHead, "forward", _with_known_places)


def _with_known_places(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(
        self: RobertaLMHead, features: Tensor, masked_tokens: Tensor | None = None, **more: Any
    ) -> Tensor:
        known = None if masked_tokens is None else known_places(masked_tokens)
        if known is not None:
            features, masked_tokens = features[known], None
        return plain(self, features, masked_tokens, **more)

    return forward
