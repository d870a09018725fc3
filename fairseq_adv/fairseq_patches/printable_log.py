"""Logs names from files without letting them control a terminal, and in any locale.

fairseq_cli/train.py, lines 17 and 64: the log goes to standard output and to ``--log-file`` as it is, in the
locale's encoding. A class named ``"\\x1b[2J"`` would clear the terminal, also when the file is shown there
later; in an ASCII locale each line with another character would end in a traceback instead.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fairseq_adv.fairseq_patches.errors_in_one_line import COMMANDS
from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv_compat.printable import make_output_printable, make_printable

_COMMANDS = (*COMMANDS, "fairseq-hydra-train")


def log_printable_text() -> None:
    """Applies the patch; it has an effect only if the program is one of fairseq's commands."""
    replace(logging.FileHandler, "_open", _opening)
    if _is_of_fairseq():
        make_output_printable()
        for handler in logging.getLogger().handlers:  # hydra has opened its file already
            if isinstance(handler, logging.FileHandler):
                make_printable(handler.stream)


def _opening(plain: Callable[..., TextIO]) -> Callable[..., TextIO]:
    def opened(self: logging.FileHandler) -> TextIO:
        stream = plain(self)
        if _is_of_fairseq():
            make_printable(stream)
        return stream

    return opened


def _is_of_fairseq() -> bool:
    return Path(sys.argv[0]).name in _COMMANDS
