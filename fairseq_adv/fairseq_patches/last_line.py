"""A run that has learned nothing says so in the last line of its log, and still ends with status 0.

fairseq_cli/train.py, line 203: the last line is "done training in … seconds", and it is the only sign that
``main`` has trained to the end, however it ended. A criterion that has a remark has a method ``remark``; for
all others nothing changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq.logging import metrics
from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace_in_training

_remarks: list[str] = []  # that of the last epoch


def remark_in_the_last_line() -> None:
    """Applies the patches."""
    replace_in_training("validate_and_save", _remarking)
    logging.getLogger("fairseq_cli.train").addFilter(_tell)  # again: no effect


def _remarking(plain: Callable[..., Any]) -> Callable[..., Any]:
    def validate_and_save(
        cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, valid_subsets: Any, end_of_epoch: bool
    ) -> Any:
        losses, is_done = plain(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        remark = getattr(trainer.get_criterion(), "remark", None)
        if end_of_epoch or is_done:
            _remarks[:] = [] if remark is None else [remark(trainer, metrics.get_meters("train"))]
        return losses, is_done

    return validate_and_save


def _tell(record: logging.LogRecord) -> bool:
    if str(record.msg).startswith("done training") and _remarks:
        remark = _remarks.pop()
        if remark:
            record.msg = f"{record.msg}. {remark}"
            record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True
