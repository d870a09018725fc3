"""Ends a run with a one-line error if the disk is too full to write its ``--log-file``.

fairseq_cli/train.py, line 64: the log is an ordinary handler of Python's logging, which prints a traceback
for each line that it can't write, and continues. The run would fail at its next checkpoint at the latest.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from fairseq_adv.data.full_disk import FullDisk, full_disk_named
from fairseq_adv.fairseq_patches.errors_in_one_line import COMMANDS
from fairseq_adv.fairseq_patches.replace import replace


def end_where_the_log_has_no_room() -> None:
    """Applies the patch; it has an effect only if the program is one of fairseq's commands."""
    replace(logging.FileHandler, "handleError", _ending)


def _ending(plain: Callable[..., None]) -> Callable[..., None]:
    def handle(self: logging.FileHandler, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        try:
            with full_disk_named(Path(self.baseFilename)):
                if error is not None and Path(sys.argv[0]).name in COMMANDS:
                    raise error
        except FullDisk:
            raise
        except Exception:
            pass  # the original handler reports it
        plain(self, record)

    return handle
