"""``--encoder-layers-to-keep``: a run that trains some of the pre-trained encoder's layers, numbered anew.

fairseq/checkpoint_utils.py, line 715, ``prune_state_dict``: only the model that is loaded loses its
other layers.
"""

from __future__ import annotations

from copy import copy

from fairseq.checkpoint_utils import prune_state_dict
from fairseq.trainer import Trainer
from torch import Tensor


def kept_layers(weights: dict[str, Tensor], trainer: Trainer) -> dict[str, Tensor]:
    """A checkpoint's weights, without the layers that fairseq is going to drop when it loads them."""
    if not getattr(trainer.cfg.model, "encoder_layers_to_keep", None):
        return weights
    weights = dict(weights)
    trainer.get_model().upgrade_state_dict(weights)  # the names in old checkpoints
    kept: dict[str, Tensor] = prune_state_dict(weights, copy(trainer.cfg.model))  # which it changes
    return kept
