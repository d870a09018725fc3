"""``--class-weights`` and ``--label-smoothing``: the loss of classes as in torch's ``F.cross_entropy``."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_adv.data.errors import DataError

logger = logging.getLogger(__name__)

BALANCED = "balanced"
_UNKNOWN = -1  # the target of a word without a tag


class ClassLoss:
    """(1 - E) w_y (-log p_y) + E/k sum_c w_c (-log p_c), summed over the predictions with a known target.

    Fairseq divides sums by the number of examples, torch's ``mean`` by the sum of their w_y. With balanced
    weights, whose mean over the training rows is 1, both are the same over an epoch.

    Args:
        weights: (k,) w, of each class; ``None``: 1 each.
        smoothing: E, from 0 to less than 1.
    """

    def __init__(self, weights: Sequence[float] | None, smoothing: float) -> None:
        self.weights = weights
        self.smoothing = smoothing
        self._on_device: Tensor | None = None

    def __call__(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """A scalar in fp32.

        Args:
            predictions: (n, k) logits.
            targets: (n,) int64, -1 where it is not known.
        """
        if self.weights is not None and (
            self._on_device is None or self._on_device.device != predictions.device
        ):
            self._on_device = torch.tensor(self.weights, dtype=torch.float32, device=predictions.device)
        return F.cross_entropy(
            predictions.float(), targets, self._on_device,
            ignore_index=_UNKNOWN, reduction="sum", label_smoothing=self.smoothing,
        )  # fmt: skip

    def plain(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The same without weights and smoothing."""
        return F.cross_entropy(predictions.float(), targets, ignore_index=_UNKNOWN, reduction="sum")

    def targets(self, shares: Sequence[float]) -> list[float]:
        """What an average example weighs of each -log p_c, for classes with these shares of the examples."""
        weights, each = self.weights or [1.0] * len(shares), self.smoothing * sum(shares) / len(shares)
        return [w * ((1 - self.smoothing) * share + each) for w, share in zip(weights, shares)]


def read_weights(text: str, names: Sequence[str], count: Callable[[], Sequence[int]]) -> list[float]:
    """The weight of each class.

    Args:
        text: of ``--class-weights``. ``balanced``: n / (k n_c), k classes that n training labels have, n_c
            of them this one; 1 for a class without any, such as an I- tag.
        names: of the classes.
        count: finds the number of training labels of each.

    Raises:
        DataError: an unknown name, one that occurs twice, a weight that is negative or not finite, or all
            weights are 0.
    """
    if text == BALANCED:
        counts = count()
        present = sum(map(bool, counts))
        return [sum(counts) / (present * number) if number else 1.0 for number in counts]
    weights: dict[str, float] = {}
    part = ""
    for piece in text.split(","):
        part = f"{part},{piece}" if part else piece
        name, _, number = part.rpartition("=")
        if name not in names:  # the names of some classes have commas
            continue
        if name in weights:
            raise DataError(f"--class-weights: {name!r} is there twice. Pass one weight for each class")
        weights[name], part = _weight(name, number), ""
    if part or not weights:
        shown = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
        raise DataError(
            f"--class-weights {text:.60}: {part.split('=')[0]!r:.40} is not NAME=W with the name of a class. "
            f"Pass {BALANCED}, or weights of some of {shown}"
        )
    in_order = [weights.get(name, 1.0) for name in names]
    if not any(in_order):
        raise DataError(f"--class-weights {text!r:.60}: all weights are 0. Pass one above 0")
    return in_order


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0):
        raise DataError(f"--class-weights {name}={text:.20}: pass a finite weight of 0 or more")
    return weight


def class_loss_of(cfg: object, names: Sequence[str], count: Callable[[], Sequence[int]]) -> ClassLoss | None:
    """The loss that a criterion's options ask for; ``None`` if it is the usual one.

    ``balanced`` becomes ``NAME=W,…`` in the options, so that a checkpoint has the numbers: validation needs
    no training data, and a run that resumes compares them.

    Raises:
        DataError: the task has no classes, or see :func:`read_weights`.
    """
    text, smoothing = getattr(cfg, "class_weights", None), float(getattr(cfg, "label_smoothing", 0.0))
    if text is None and not smoothing:
        return None
    if not names:
        option = "--label-smoothing" if text is None else "--class-weights"
        others = "several labels a text, numbers, choices or words"
        raise DataError(f"{option}: this task has no classes, but {others}. Leave it out")
    if text is None:
        return ClassLoss(None, smoothing)
    weights = read_weights(text, names, count)
    if text == BALANCED:
        cfg.class_weights = ",".join(f"{name}={weight!r}" for name, weight in zip(names, weights))  # type: ignore[attr-defined]
        shown = ", ".join(f"{name} {weight:.4g}" for name, weight in zip(names, weights))
        logger.info(f"--class-weights {BALANCED}: {shown}")
    return ClassLoss(weights, smoothing)
