"""What a method logs: declared next to its class, reduced in one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from fairseq.logging import metrics
from torch import Tensor

from fairseq_adv.perturbation import Perturbation

Log = dict[str, Any]  # fairseq's logging output: sums over a mini-batch, added up over workers


@dataclass(frozen=True)
class Logged:
    """A number that a method logs in addition to the loss.

    Attributes:
        name: its key in the log of a mini-batch, where it is a sum, and in fairseq's meters.
        per: the key of the count that the sum is divided by; ``None``: the sum itself is logged. Whatever it
            is, the step also has to pass ``nexamples``, the number of examples: without it the update counts
            as one without perturbation.
        in_bits: a loss in nats, logged in bits as fairseq logs losses.
        digits: number of decimals.
        always: also logged before ``--adv-start-update``, when ``nexamples`` is 0.
    """

    name: str
    per: str | None = "nexamples"
    in_bits: bool = False
    digits: int = 5
    always: bool = False


def complete(log: Log, declared: Sequence[Logged], measured: Log) -> Log:
    """``log`` with all declared numbers. Every update needs the same keys, since fairseq adds up logs by key.

    Args:
        log: the objective's log; its ``loss`` is a scalar on the model's device.
        measured: the values measured in this update; the others are 0.
    """
    zero: Tensor = log["loss"].new_zeros(())
    counts = {"nexamples": 0} if declared else {}
    counts.update({number.per: 0 for number in declared if number.per not in (None, "sample_size")})
    return {
        **log,
        **{number.name: measured.get(number.name, zero) for number in declared},
        **{count: measured.get(count, 0) for count in counts},
    }


def sizes_of(delta: Perturbation) -> Log:
    """The sums over the examples of ||delta|| and of ||delta|| / ||X||, and the number of examples."""
    norm = delta.norm()
    return {
        "adv_norm": norm.sum(),
        "adv_ratio": delta.relative_norm().sum(),
        "nexamples": norm.numel(),
    }


def on_host(logs: Sequence[Log]) -> list[Log]:
    """The logs with scalar tensors converted to Python numbers, and other tensors to numpy arrays.

    fairseq reads every meter after every update, and each read would wait for the GPU. All numbers are copied
    in one transfer, in fp64, in which counts and fp32 losses are exact.
    """
    return start_copy(logs, non_blocking=False)()


def start_copy(logs: Sequence[Log], non_blocking: bool = True) -> Callable[[], list[Log]]:
    """Starts the transfer of :func:`on_host`.

    Returns:
        its result; not to be called before the host has waited for the GPU.
    """
    tensors = [
        (nth, name, value)
        for nth, log in enumerate(logs)
        for name, value in log.items()
        if isinstance(value, Tensor)
    ]
    if not tensors:
        return lambda: list(logs)
    flat = torch.cat([value.detach().reshape(-1).double() for *_, value in tensors])
    copy = flat.to("cpu", non_blocking=non_blocking)
    ends = list(accumulate(value.numel() for *_, value in tensors))

    def read() -> list[Log]:
        hosted = [dict(log) for log in logs]
        for (nth, name, value), part in zip(tensors, np.split(copy.numpy(), ends[:-1])):
            hosted[nth][name] = part.reshape(value.shape) if value.dim() else float(part[0])
        return hosted

    return read


def reduce_logs(logs: Sequence[Log], declared: Sequence[Logged]) -> None:
    """Logs the loss in bits and the declared numbers into fairseq's meters.

    Args:
        logs: one per mini-batch, or one with the sums over several.
    """

    def total(key: str) -> Any:
        return sum(log.get(key, 0) for log in logs)

    size = total("sample_size")
    if not size:  # only dummy batches, or nothing was masked
        metrics.log_scalar("loss", 0.0, 0, round=3)  # else fairseq logs -1, with a weight
        return
    metrics.log_scalar("loss", total("loss") / size / math.log(2), size, round=3)
    perturbed = total("nexamples")
    for number in declared:
        if not (any(number.name in log for log in logs) and (perturbed or number.always)):
            continue  # a validation, or training without perturbation
        if number.per is None:
            metrics.log_scalar_sum(number.name, total(number.name))
        elif count := total(number.per):
            unit = math.log(2) if number.in_bits else 1.0
            metrics.log_scalar(number.name, total(number.name) / count / unit, count, round=number.digits)
