"""Gives a criterion one option for the precision, and lets ``auto`` follow the checkpoint or the processor.

fairseq has an option for each precision (``--fp16``, ``--bf16``, ``--amp``, …), which every worker and every
restart must be given again. fairseq/trainer.py reads them where it is built (line 99) and where it builds its
optimizer (line 308), after it has read the checkpoint. A criterion with an attribute ``precision``, a
:class:`PrecisionOption`, sets them there; for all others nothing changes.

``auto`` is decided as late as that so that the checkpoint is read once, by rank 0, and not before another run
in the same folder has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv.fairseq_patches.workers import gathered
from fairseq_adv_compat.machine import bf16_products

logger = logging.getLogger(__name__)

PRECISIONS = ("auto", "fp32", "bf16")
_AUTOCAST = "bf16 autocast"
_OTHERS = ("fp16", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp")


def computes_on_the_cpu(cpu: bool) -> bool:
    """Whether a run computes on the CPU; ``cpu``: fairseq's ``--cpu``."""
    return cpu or not torch.cuda.is_available()


class PrecisionOption:
    """``--precision`` of a run. On a CPU, bf16 is autocast (``--amp``); on a GPU, fairseq's ``--bf16``.

    Args:
        value: one of :data:`PRECISIONS`; ``None``: fairseq's own options decide.
    """

    def __init__(self, value: str | None) -> None:
        if value is not None and value not in PRECISIONS:
            raise DataError(f"--precision {value}: pass one of {', '.join(PRECISIONS)}")
        self._value = value
        self._decided: tuple[bool, str] | None = None  # whether to use autocast, and why

    @property
    def is_open(self) -> bool:
        """Whether the checkpoint, or else the processor, is still to decide."""
        return self._value == "auto"

    def begin(self, common: Any) -> None:
        """Sets fairseq's options of a run that is about to be built."""
        if self._value is None:
            return
        mine = ""
        if self._value == "bf16":
            mine = "amp" if computes_on_the_cpu(common.cpu) else "bf16"
        other = next((name for name in _OTHERS if name != mine and getattr(common, name, False)), None)
        if other is not None:
            raise DataError(
                f"--precision {self._value} with --{other.replace('_', '-')}: pass only one of them"
            )
        if mine:
            setattr(common, mine, True)

    def follow(self, amp: bool, path: str, common: Any) -> None:
        """The run resumes from a checkpoint, which decides. Called where it is read: on rank 0 at least."""
        common.amp = amp
        on_cpu = computes_on_the_cpu(common.cpu)
        told = f"{'fp32' if not amp else _AUTOCAST if on_cpu else '--amp'}, as in {path}"
        if amp and on_cpu and not bf16_products():
            told += "; this processor has no bf16 products, so it needs longer than in fp32"
        self._decided = (amp, told)

    def decide(self, trainer: Trainer) -> None:
        """Rank 0 decides for all workers, unless it has been decided; all must call this."""
        if not self.is_open:
            return
        amp, told = gathered(trainer, self._decided or _by_the_processor(trainer))[0]
        trainer.cfg.common.amp, self._value = amp, None
        trainer._amp_retries = 0  # which its constructor sets with --amp only
        if told:
            logger.info(told)


def _by_the_processor(trainer: Trainer) -> tuple[bool, str]:
    if trainer.device.type != "cpu":
        return False, ""
    flag = bf16_products()
    if flag:
        return True, f"{_AUTOCAST}: this processor has {flag}; --precision fp32 turns it off"
    return False, "fp32: this processor has no bf16 products"


def apply_precision_option() -> None:
    """Applies the patches."""
    replace(Trainer, "__init__", _begin)
    replace(Trainer, "_build_optimizer", _decide)


def _begin(
    plain: Callable[..., None], self: Trainer, cfg: Any, task: Any, model: Any, criterion: Any, *rest: Any,
    **more: Any,
) -> None:  # fmt: skip
    option = getattr(criterion, "precision", None)
    if isinstance(option, PrecisionOption):
        option.begin(cfg.common)
    plain(self, cfg, task, model, criterion, *rest, **more)


def _decide(plain: Callable[..., None], self: Trainer) -> None:
    option = getattr(self.get_criterion(), "precision", None)
    if isinstance(option, PrecisionOption):
        option.decide(self)
    plain(self)
