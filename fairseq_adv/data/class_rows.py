"""Which row of a head belongs to which class: by name, never by number alone.

A model knows its classes by number, the rows of its head. A model from elsewhere, or data prepared at another
time, may have the same classes in another order; then every answer would be another class. Two names are the
same if they differ only in case and in the space around them; names that are equal to the letter come first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import breaks_a_line
from fairseq_adv.data.printable import printable
from fairseq_adv.data.text.labelled_folder import class_names

logger = logging.getLogger(__name__)
_UNNAMED = re.compile(r"LABEL_[0-9]+")  # what transformers calls the classes of a model that names none
_MOST_SHOWN = 8


def same_class(name: str, classes: Sequence[str]) -> Optional[str]:
    """The class with this name; ``None`` if there is none, or several differ from it in case alone."""
    if name in classes:
        return name
    same = [one for one in classes if _plain(one) == _plain(name)]
    return same[0] if len(same) == 1 else None


def class_of_model(name: str, classes: Sequence[str], where: str, fix: str) -> str:
    """The model's class, or label, with this name. Raises DataError, naming ``where``, if it has none."""
    known = same_class(name, classes)
    if known is None:
        raise DataError(
            f"{where}: label {name!r:.40} is not a class of the model ({', '.join(classes):.200}). {fix}"
        )
    return known


def rows_of(classes: Sequence[str], names: Sequence[str]) -> Optional[list[int]]:
    """For each class its place among ``names``; ``None`` unless each of these is one of the classes."""
    same = [same_class(name, names) for name in classes]
    if len(classes) != len(names) or len({*same} - {None}) != len(names):
        return None
    return [names.index(name) for name in same if name is not None]


def rows_for_data(path: Path, names: Sequence[str], file: Path, classes: Sequence[str]) -> list[int]:
    """For each class of data, its row in the head of a trained model.

    Args:
        path: the model's checkpoint.
        names: of its rows.
        file: lists ``classes``.

    Raises:
        DataError: the data has other classes.
    """
    rows = rows_of(classes, names)
    if rows is None:
        raise DataError(
            f"{file}: lists {', '.join(classes)}, but the checkpoint has {', '.join(names)}. Pass data with "
            "these classes."
        )
    if rows != list(range(len(rows))):
        logger.info(
            "%s: its classes (%s) go by name to those of %s (%s)", path, shown(names), file, shown(classes)
        )
    return rows


class Head(NamedTuple):
    """What a training takes over of a head."""

    rows: Optional[list[int]]  # for each class the row that is taken; ``None``: the head begins anew
    message: str  # the same in one line


def head_to_start_from(
    where: str, names: Sequence[str], outputs: int, classes: Sequence[str], keep: bool
) -> Head:
    """What a training takes over of the head of a model that it starts from.

    Args:
        where: the model's folder or file.
        names: of its head's classes; empty if they are unknown.
        outputs: number of its head's rows.
        classes: of the data.
        keep: ``--keep-head``: rows without names stand in the data's order.

    Raises:
        DataError: ``keep``, but the head's classes have other names, or another number.
    """
    names = [] if len(names) != outputs or all(map(_UNNAMED.fullmatch, names)) else names
    rows, data_classes, head_classes = rows_of(classes, names), shown(classes), shown(names)
    if rows is not None:
        by_name = f"its rows ({head_classes}) go by name to the data's ({data_classes})"
        return Head(rows, f"{where}: the head is taken over: {by_name}")
    if not names:
        head_classes = f"{outputs} without names"
        if keep and outputs == len(classes):
            message = f"{where}: the head is taken over, in the data's order (--keep-head): {data_classes}"
            return Head(list(range(outputs)), message)
    if keep:
        raise DataError(
            f"--keep-head: the head of {where} has other classes ({head_classes}) than the data "
            f"({data_classes}). Give the data's classes the same names, or leave the option out, to begin "
            "with a new head"
        )
    is_open = not names and outputs == len(classes)
    fix = ". If they stand in this order, pass --keep-head" if is_open else ""
    others = f"its classes ({head_classes}) are not the data's ({data_classes})"
    return Head(None, f"{where}: the head begins anew: {others}{fix}")


def names_in(config: Mapping[str, Any]) -> list[str]:
    """The classes in the ``config.json`` of a Hugging Face folder, in their order; empty if it names none."""
    named = config.get("id2label")
    if not isinstance(named, dict):
        return []
    names = [named.get(str(number)) for number in range(len(named))]
    return [] if None in names else [_in_one_line(str(name)) for name in names]


def _in_one_line(name: str) -> str:
    return " ".join(name.split()) if breaks_a_line(name) else name


def classes_of(task: FairseqTask) -> Optional[list[str]]:
    """The classes, or tags, of a task in the order of its head's rows; ``None`` if the rows have no names."""
    names = getattr(task.cfg, "class_names", None)
    if names:
        return list(names)
    if isinstance(task, SentencePredictionTask) and not task.cfg.regression_target:
        return class_names(task.label_dictionary)
    return None


def in_order(
    tensors: Mapping[str, Tensor], axes: Mapping[str, int], rows: Sequence[int]
) -> dict[str, Tensor]:
    """The tensors of a head, with its classes in another order.

    Args:
        tensors: those that ``axes`` lacks are left out.
        axes: for each tensor with a row for each class, the axis of the rows.
        rows: for each class the row that it has so far.
    """
    ordered = {}
    for name, axis in axes.items():
        if name in tensors:
            order = tensors[name].new_tensor(rows).long()
            ordered[name] = tensors[name].index_select(axis, order)
    return ordered


def shown(names: Sequence[str]) -> str:
    """A list of classes for a message; of many, the first."""
    more = [f"{len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else []
    return printable(", ".join([*names[:_MOST_SHOWN], *more]))


def _plain(name: str) -> str:
    return name.strip().casefold()


# ---- where a model's head has a row for each class


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
        axes: dict[str, int] = model.class_axes()  # type: ignore[operator]
        return axes
    names = {f"{HEADS}{head}.out_proj.{one}" for one in _ROWS}
    return dict.fromkeys(sorted(names & set(model.state_dict())), 0)


def order_classes(model: nn.Module, head: str, rows: Sequence[int]) -> None:
    """Changes the order of a model's classes in place: class k becomes the one that was ``rows[k]``."""
    axes, tensors = class_axes(model, head), model.state_dict()
    with torch.no_grad():
        for name, tensor in in_order(tensors, axes, rows).items():
            tensors[name].copy_(tensor)
