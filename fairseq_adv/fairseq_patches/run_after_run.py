"""Makes a run independent of earlier runs in the same process, and creates the folder of its log.

The jobs of a hydra sweep share a process. fairseq/checkpoint_utils.py, line 42, stores the best score as an
attribute of a function, and so does fairseq_cli/train.py, line 227, for ``--patience``: a second job would be
compared with the best score of the first, and might never write its ``checkpoint_best.pt``. The handlers of
``--log-file`` are never removed (fairseq_cli/train.py, line 65; fairseq/logging/progress_bar.py, line 47):
the first job's log would receive the lines of all later ones. And a log in a folder that does not exist yet
causes a ``FileNotFoundError`` after all of fairseq's imports. For a single run nothing else changes.

fairseq calls ``add_defaults`` with the configuration before it opens the log.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fairseq import checkpoint_utils
from fairseq.dataclass import initialize
from omegaconf import OmegaConf

from fairseq_adv.fairseq_patches.replace import replace

_TRAIN = "fairseq_cli.train"
_LOGGERS = (_TRAIN, "fairseq.logging.progress_bar")


def start_runs_afresh() -> None:
    """Applies the patch."""
    replace(initialize, "add_defaults", _afresh)
    if _TRAIN in sys.modules:  # it imported the function by name
        replace(sys.modules[_TRAIN], "add_defaults", _afresh)


def _afresh(plain: Callable[[Any], None]) -> Callable[[Any], None]:
    def add_defaults(cfg: Any) -> None:
        _forget_earlier_runs()
        log_file = OmegaConf.select(cfg, "common.log_file")
        if log_file and os.path.dirname(log_file):
            os.makedirs(os.path.dirname(log_file), exist_ok=True)
        plain(cfg)

    return add_defaults


def _forget_earlier_runs() -> None:
    stopping = getattr(sys.modules.get(_TRAIN), "should_stop_early", None)
    for owner, name in (
        (checkpoint_utils.save_checkpoint, "best"),
        (stopping, "best"),
        (stopping, "num_runs"),
    ):
        with suppress(AttributeError):
            delattr(owner, name)
    for logger in map(logging.getLogger, _LOGGERS):
        for handler in logger.handlers[:]:
            if isinstance(handler, logging.FileHandler):
                logger.removeHandler(handler)
                handler.close()
