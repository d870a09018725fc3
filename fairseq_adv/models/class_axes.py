"""Where a model's head has a row for each class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fairseq_adv.data.class_rows import in_order

HEADS = "classification_heads."
CONVERTED_HEAD = f"{HEADS}of_hugging_face."
"""Prefix of a head from a Hugging Face folder, in a file written by ``fairseq-adv convert``. No model has a
head of this name: training without a criterion of this project begins with a new one."""
CONVERTED_NAMES = "head_classes"
"""The names of its classes, in such a file's ``extra_state``."""

# Of a head of fairseq's RoBERTa; the last two if its norm is spectral. ``weight_v`` has no row for a class.
_ROWS = ("weight", "bias", "weight_orig", "weight_u")


def class_axes(model: nn.Module, head: str) -> dict[str, int]:
    """The axis of the classes in each tensor that has one, by its name in ``state_dict``.

    Args:
        head: the head's name, which a model of transformers doesn't have. Of a model without such a head, the
            result is empty.
    """
    if hasattr(model, "class_axes"):
        found: dict[str, int] = model.class_axes()  # type: ignore[operator]
        return found
    names = {f"{HEADS}{head}.out_proj.{one}" for one in _ROWS}
    return dict.fromkeys(sorted(names & set(model.state_dict())), 0)


def order_classes(model: nn.Module, head: str, rows: Sequence[int]) -> None:
    """Changes the order of a model's classes in place: class k becomes the one that was ``rows[k]``."""
    axes, tensors = class_axes(model, head), model.state_dict()
    with torch.no_grad():
        for name, tensor in in_order(tensors, axes, rows).items():
            tensors[name].copy_(tensor)
