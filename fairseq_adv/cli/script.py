"""Shared by all commands, also those of benchmarks/ and examples/: numbers, help, errors, exit status."""

from __future__ import annotations

import argparse
import codecs
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.printable import brief, make_output_printable, plain_name
from fairseq_adv_compat.option_numbers import Numbers

RESUMABLE = "stopped; run the same command again to resume"
# Errors of standard output, which has no file name. Errors of files are always named (data/errors.py).
_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults where they are useful, and keeps the line breaks of the description."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_complete = action.default in (None, False, []) or "(default:" in (action.help or "")
        return action.help if is_complete else super()._get_help_string(action)


class NumberType:
    """Reads a text as one of the numbers that an option may have."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        # argparse prints it if the text is not a number at all.
        self.__name__ = "whole number" if numbers.whole else "number"

    def __call__(self, text: str) -> Any:
        value = self.numbers.read(text)
        if not self.numbers.has(value):
            raise argparse.ArgumentTypeError(f"must be {self.numbers}, not {text}")
        return value


finite = NumberType(Numbers())
positive = NumberType(Numbers(above=0))
not_negative = NumberType(Numbers(0))
share = NumberType(Numbers(0, 1))
fraction = NumberType(Numbers(most=1, above=0))
count = NumberType(Numbers(1, whole=True))
whole = NumberType(Numbers(0, (1 << 32) - 1, whole=True))  # the seeds that numpy and torch accept


def with_commas(text: str) -> list[float]:
    """Numbers of 0 or more, separated by commas."""
    try:
        return [not_negative(word) for word in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: pass numbers separated by commas, such as 0,0.01,0.02"
        ) from error


class VerbParser(argparse.ArgumentParser):
    """Reads the options of a verb. ``type=float`` accepts only finite numbers."""

    def __init__(self, verb: str, words: Sequence[str]) -> None:
        super().__init__(prog=f"fairseq-adv {verb}".strip(), formatter_class=HelpFormatter)
        self.words = words
        self.register("type", float, finite)
        self.reads()

    def print_usage(self, file: object = None) -> None:
        """Prints nothing: an error is one line, without a screenful of options before it."""

    def reads(
        self,
        stopped: str = "stopped",
        any_order: bool = False,
        passes_on: bool = False,
        check: Callable[[argparse.Namespace], None] | None = None,
    ) -> None:
        """Says how the verb's words are read.

        Args:
            stopped: the message after Ctrl-C.
            any_order: options may stand between the words of a list.
            passes_on: options that are not known become ``args.own``.
            check: raises DataError if options don't go together.
        """
        self.set_defaults(stopped=stopped)
        self._any_order, self._passes_on, self._check = any_order, passes_on, check

    def read(self, args: argparse.Namespace) -> None:
        """Reads the words into ``args``. Exits after ``--help``, and after a mistake that argparse finds."""
        if self._passes_on:
            _, args.own = self.parse_known_args(self.words, args)
        elif self._any_order:
            self.parse_intermixed_args(self.words, args)
        else:
            self.parse_args(self.words, args)
        if self._check is not None:
            self._check(args)


def check_name(name: str, names: Sequence[str], problem: str, loosely: bool = True) -> None:
    """Raises DataError if ``name`` is not one of ``names``.

    Args:
        problem: the message up to the list of names.
        loosely: ignore case and hyphens.
    """
    if name not in names and not (loosely and plain_name(name) in map(plain_name, names)):
        raise DataError(f"{problem} {', '.join(names)}")


def shown_number(value: float) -> str:
    """A count as it is, any other number with two digits after the point."""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def exit_status(work: Callable[[], int | None], stopped: str = "stopped") -> int:
    """Runs a command; a user error ends it with a line that begins with ``error: `` and without a traceback.

    User errors are DataError and OSError. All others are bugs and propagate.

    Standard output is flushed here. If its reader, such as head, has closed the pipe, that is not an error,
    unless there is work that could be resumed. What is printed can't control a terminal, and an ASCII locale
    is no error: see ``fairseq_adv/data/printable.py``.

    Args:
        stopped: the message after Ctrl-C or SIGTERM.

    Returns:
        the process's exit status: that of the work, 2 after a user error or if standard output can't be
        written, 130 after Ctrl-C, 143 after SIGTERM.
    """
    make_output_printable()
    try:
        with sigterm_as_ctrl_c():
            return _to_the_end_of_its_output(work)
    except KeyboardInterrupt as how:
        print(stopped, file=sys.stderr)
        return 143 if isinstance(how, Terminated) else 130
    except (DataError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.errno in _OUTPUT and error.filename is None:
            _discard_output()
            if isinstance(error, BrokenPipeError) and stopped != RESUMABLE:
                return 0
            text = f"standard output: {error.strerror}. Fix that and run the same command again."
        print(f"error: {brief(text)}", file=sys.stderr)
        return 2


def data_output() -> TextIO:
    """Standard output for data that another program may read: unchanged, and UTF-8 whatever the locale.

    On a terminal it is shown like everything else.
    """
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None or sys.stdout.isatty():
        return sys.stdout
    return cast(TextIO, codecs.getwriter("utf-8")(buffer, "surrogateescape"))


def _to_the_end_of_its_output(work: Callable[[], int | None]) -> int:
    """The work's status, after flushing its output: Python would report a failure later and less clearly."""
    try:
        status = work() or 0
    except SystemExit:  # argparse has printed its help
        _flush_output()
        raise
    _flush_output()
    return status


def _flush_output() -> None:
    try:
        if sys.stdout:  # None if the shell closed it
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Terminated(KeyboardInterrupt):
    """SIGTERM."""


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raises :class:`Terminated` in the block at the first SIGTERM, unless the caller handles that signal.

    Processes that the block has started with multiprocessing are terminated, as by Ctrl-C in a terminal.
    """
    owner, seen = os.getpid(), False

    def stop(number: int, _: object) -> None:
        nonlocal seen
        if os.getpid() != owner:  # a forked process, which has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if not seen:  # timeout sends two signals, and the second must not interrupt the clean-up
            seen = True
            raise Terminated

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Terminated:
        import multiprocessing  # here, because --help doesn't need it

        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
