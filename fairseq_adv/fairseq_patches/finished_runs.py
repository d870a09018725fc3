"""A finished run that is started again makes no further update.

fairseq 0.12.2 compares the number of updates with ``--max-update`` only after an update
(fairseq_cli/train.py, ``validate_and_save``). So a run that had ended in the middle of an epoch, and that a
scheduler started again, made one more update and overwrote ``checkpoint_last.pt``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace_in_training

logger = logging.getLogger(__name__)


def leave_finished_runs_alone() -> None:
    """Applies the patch."""
    replace_in_training("train", _unless_finished)


def _unless_finished(plain: Callable[..., Any]) -> Callable[..., Any]:
    def train(cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
        updates, limit = trainer.get_num_updates(), cfg.optimization.max_update or math.inf
        if updates >= limit:
            logger.info(f"this run is finished: {updates} updates of --max-update {limit:g}")
            return [None], True
        return plain(cfg, trainer, task, epoch_itr)

    return train
