"""Makes checkpoints loadable if their classification head has spectral normalisation.

fairseq/models/roberta/model.py, line 415: fairseq counts the classes of each head in a checkpoint by its
``out_proj.weight``. With ``--spectral-norm-classification-head`` torch saves ``out_proj.weight_orig``
instead, so an interrupted run could not resume, and a trained model could not be validated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.models.roberta import RobertaModel

from fairseq_adv.fairseq_patches.replace import replace

_SAVED = ".out_proj.weight_orig"


def read_heads_with_spectral_norm() -> None:
    """Applies the patch."""
    replace(RobertaModel, "upgrade_state_dict_named", _with_weight)


def _with_weight(plain: Callable[..., Any]) -> Callable[..., Any]:
    def upgrade(self: RobertaModel, state_dict: dict[str, Any], name: str) -> None:
        heads = (f"{name}." if name else "") + "classification_heads."
        counted = {
            key[: -len("_orig")]: weight
            for key, weight in state_dict.items()
            if key.startswith(heads) and key.endswith(_SAVED)
        }
        state_dict.update(counted)
        plain(self, state_dict, name)
        for key in counted:  # the model has no parameters with these names
            state_dict.pop(key, None)

    return upgrade
