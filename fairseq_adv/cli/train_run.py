"""Runs fairseq's training: in this process, with its log in a file and a screen for people, or in the workers
of ``--workers N --cpu``.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import atomic_write
from fairseq_adv.data.printable import printable
from fairseq_adv.data.processes import own_cores
from fairseq_adv_compat.hydra_train import for_the_user

logger = logging.getLogger(__name__)
_LAUNCHED = "FAIRSEQ_ADV_LAUNCHED"
_ERRORS = "TORCHELASTIC_ERROR_FILE"  # of a worker, in torchrun's format
# Defaults of torchrun's options; a torch without these options reads none. By its own, SIGUSR1 would kill it,
# and workers that need more than 30 seconds to end their update and save would be killed.
_DEFAULTS = {"PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1", "PET_SHUTDOWN_TIMEOUT": "600"}
_TRAIN = "fairseq_cli.train"
_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own


def run(command: list[str], args: Namespace, shown: Callable[..., ShownRun]) -> None:
    """Runs ``fairseq-train`` with these arguments in this process, with its log in a file."""
    import fairseq_cli.train
    from fairseq import options
    from fairseq.distributed import utils

    call_main, log = utils.call_main, str(args.log_file)

    def call_shown(cfg: Any, main: Callable[..., Any], **more: Any) -> Any:
        return call_main(cfg, shown(main), **more)

    sys.argv = command
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # fairseq_patches/signals.py saves a checkpoint
    logging.getLogger("fairseq").setLevel(logging.NOTSET)
    read = mock.patch.object(options, "parse_args_and_arch", return_value=args)
    try:
        with logged_to(log), read, mock.patch.object(utils, "call_main", call_shown):
            logger.info(printable(shlex.join(command)))
            fairseq_cli.train.cli_main()
    except Exception as error:
        text = for_the_user(error)
        if text is None:
            # fairseq's own checks raise a bare Exception or an OSError, or use assert.
            if not (isinstance(error, OSError) or type(error) in (Exception, AssertionError)):
                raise
            with open(log, "a", encoding="utf-8") as file:
                traceback.print_exc(file=file)
            text = f"{error} (traceback: {log})"
        raise DataError(" ".join(text.split())) from error


class ShownRun:
    """fairseq's ``main``, shown; picklable, for the workers that fairseq starts."""

    def __init__(
        self, main: Callable[..., Any], log: str, encoder: str, when_loaded: Callable[[], None]
    ) -> None:
        self.main, self.log, self.encoder, self.when_loaded = main, log, encoder, when_loaded
        self.logged: AbstractContextManager[None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_a_worker, (self.main, self.log, self.encoder, self.when_loaded)

    def __call__(self, cfg: Any, **options: Any) -> Any:
        from fairseq.distributed.utils import is_master

        from .train_screen import TrainScreen

        if not is_master(cfg.distributed_training):
            return self.main(cfg, **options)
        with TrainScreen(self.log, self.encoder, self.when_loaded) as screen:
            result = self.main(cfg, **options)
            screen.end()
        return result


def _in_a_worker(*words: Any) -> ShownRun:
    run = ShownRun(*words)
    run.logged = logged_to(run.log)  # for as long as the worker lives
    run.logged.__enter__()
    return run


@contextmanager
def logged_to(path: str) -> Iterator[None]:
    """In the block, the log goes to this file, with Python's warnings, and no longer to standard output."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    root, handler = (
        logging.getLogger(),
        logging.FileHandler(path, encoding="utf-8", errors="backslashreplace"),
    )
    before = [one for one in root.handlers if type(one) is logging.StreamHandler]
    for one in before:
        root.removeHandler(one)
    handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(_is_not_there)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        for one in before:
            root.addHandler(one)
        with full_disk_named(Path(path)):  # what its last line left in the buffer is written here
            handler.close()


def _is_not_there(record: logging.LogRecord) -> bool:
    """fairseq_cli/train.py, line 64: with ``--log-file`` that logger has a handler of its own, which gets its
    children's lines too."""
    return not f"{record.name}.".startswith(f"{_TRAIN}.") or not any(
        isinstance(one, logging.FileHandler) for one in logging.getLogger(_TRAIN).handlers
    )


def launch(workers: int, words: Sequence[str]) -> None:
    """Runs torchrun's launcher with these words: its options, then a program that it starts so many times.

    torchrun's command would print each worker's error, its own traceback and a report.

    Raises:
        DataError: a worker ended with a user error; only the first one's is told.
        SystemExit: a worker failed in another way, of which it has printed why, or a signal came.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[_LAUNCHED] = "1"
    threads = str(max(1, own_cores() // workers))
    for name, value in {"OMP_NUM_THREADS": threads, **_DEFAULTS}.items():
        os.environ.setdefault(name, value)
    try:
        arguments = run.parse_args(list(words))  # type: ignore[no-untyped-call]
        run.run(arguments)  # type: ignore[no-untyped-call]
    except SignalException as stop:  # the workers got it too, and have ended
        raise SystemExit(128 + stop.sigval) from None
    except ChildFailedError as failed:
        rank, first = failed.get_first_failure()
        if first.error_file_data.get("is_users"):
            raise DataError(first.message) from None
        ending = f"status {first.exitcode}" if first.exitcode > 0 else f"signal {-first.exitcode}"
        print(f"worker {rank + 1} of {workers} ended with {ending}", file=sys.stderr)
        raise SystemExit(first.exitcode if first.exitcode > 0 else 128 - first.exitcode) from None


@contextmanager
def errors_told_once() -> Iterator[None]:
    """In a worker of :func:`launch`, a user error in the block is left to the launcher to tell."""
    try:
        yield
    except (DataError, OSError) as error:
        if _LAUNCHED not in os.environ or _ERRORS not in os.environ:
            raise
        content = {"message": str(error), "timestamp": time.time(), "is_users": True}
        # torchrun may end this process meanwhile
        atomic_write(Path(os.environ[_ERRORS]), json.dumps(content))
        raise SystemExit(2) from None
