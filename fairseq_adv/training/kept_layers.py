"""``--encoder-layers-to-keep``: a run that trains some of the pre-trained encoder's layers, numbered anew.

fairseq/checkpoint_utils.py, line 715, ``prune_state_dict``: only the model that is loaded loses its
other layers, and the option is then ``None``, in checkpoints too.
"""

from __future__ import annotations

import re
from copy import copy
from typing import Any

from fairseq.checkpoint_utils import prune_state_dict
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_adv.training.changed_options import options_of


def kept_layers(weights: dict[str, Tensor], trainer: Trainer) -> dict[str, Tensor]:
    """A checkpoint's weights, without the layers that fairseq is going to drop when it loads them."""
    if not getattr(trainer.cfg.model, "encoder_layers_to_keep", None):
        return weights
    weights = dict(weights)
    trainer.get_model().upgrade_state_dict(weights)  # the names in old checkpoints
    kept: dict[str, Tensor] = prune_state_dict(weights, copy(trainer.cfg.model))  # which it changes
    return kept


def number_as_before(state: dict[str, Any], trainer: Trainer) -> None:
    """Lets a run of kept layers go on: every worker drops layers again, so they get their old numbers back.

    Only the first worker sees ``state``, and can't keep the others from it.
    """
    keep = getattr(trainer.cfg.model, "encoder_layers_to_keep", None)
    if not keep:
        return
    there, numbers = options_of(state.get("cfg"))["model"], sorted(map(int, keep.split(",")))
    if there.get("encoder_layers_to_keep") or there.get("encoder_layers") != len(numbers):
        return
    state["cfg"].model.encoder_layers_to_keep = keep
    state["model"] = {
        re.sub(r"(?<=\.layers\.)\d+", lambda found: str(numbers[int(found.group())]), name): weight
        for name, weight in state["model"].items()
    }
