"""What fairseq's commands print, and the options that they begin with."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from fairseq_adv.data.errors import FullDisk, full_disk_named
from fairseq_adv.data.printable import printable
from fairseq_adv.fairseq_patches.replace import Original
from fairseq_adv_compat.hydra_train import for_the_user

COMMANDS = ("fairseq-train", "fairseq-validate")
_WITH_HYDRA = (*COMMANDS, "fairseq-hydra-train")


def _is_of_fairseq(commands: tuple[str, ...] = COMMANDS) -> bool:
    """Whether this program is one of fairseq's commands. In another, these patches have no effect."""
    return Path(sys.argv[0]).name in commands


def report_mistakes_in_one_line() -> None:
    """fairseq's commands print a user's mistake below a traceback of thirty lines.

    Python's ``sys.excepthook`` prints it. In ``fairseq-train`` and ``fairseq-validate`` the patched hook
    prints a single line for errors that this project reports to users; other errors are printed as before.
    """
    original = sys.excepthook

    def report(error_type: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = for_the_user(error) if _is_of_fairseq() else None
        if text is not None:
            print(f"error: {printable(text)}", file=sys.stderr)
        else:
            original(error_type, error, trace)

    sys.excepthook = report


def read_list(original: Original, *args: Any, **more: Any) -> Any:
    """A list that can't be read, such as ``--lr ,``, is refused by name.

    fairseq/dataclass/utils.py, line 25, ``eval_str_list``: argparse reports a ValueError in one line, but not
    the SyntaxError.
    """
    try:
        return original(*args, **more)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("not a list of numbers") from error


def go_on_or_exit_at_an_error_of_the_log(
    original: Original, self: logging.FileHandler, record: logging.LogRecord
) -> None:
    """Ends a run with a one-line error if the disk is too full to write its ``--log-file``, and writes what
    the locale's encoding lacks as an escape.

    fairseq_cli/train.py, line 64: the log is an ordinary handler of Python's logging, which prints a
    traceback for each line that it can't write, and continues. A run whose disk is full would fail at its
    next checkpoint at the latest.
    """
    error = sys.exc_info()[1]
    stream = self.stream if _is_of_fairseq(_WITH_HYDRA) else None
    if isinstance(error, UnicodeEncodeError) and stream is not None and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")
        self.emit(record)
        return
    try:
        with full_disk_named(Path(self.baseFilename)):
            if error is not None and _is_of_fairseq():
                raise error
    except FullDisk:
        raise
    except Exception:
        pass  # the original handler reports it
    original(self, record)


def print_in_any_locale() -> None:
    """Shows what the locale's encoding lacks as an escape.

    fairseq_cli/train.py, line 17: the log goes to standard output in the locale's encoding. In an ASCII
    locale each line with another character, such as a class's name, would be a traceback instead.
    """
    if _is_of_fairseq(_WITH_HYDRA):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")


def parse_args_and_arch(
    original: Original, parser: argparse.ArgumentParser, input_args: Sequence[str] | None = None,
    *rest: Any, **more: Any,
) -> Any:  # fmt: skip
    """``--bf16`` trains on CPUs and GPUs, as ``common.bf16`` does in a yaml.

    fairseq/options.py, line 200: on the command line ``--bf16`` and ``--memory-efficient-bf16`` turn on
    ``--tpu``, and the trainer then asks for torch_xla. In a yaml they don't. For a TPU, pass ``--bf16
    --tpu``. Other command lines are read as before.

    The patch is in time: fairseq imports ``--user-dir`` before it reads the options.
    """
    parsed = original(parser, input_args, *rest, **more)
    args = parsed[0] if isinstance(parsed, tuple) else parsed  # with parse_known: and what was left over
    if getattr(args, "bf16", False) and getattr(args, "tpu", False):
        args.tpu = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
    return parsed
