"""Starts the workers of ``fairseq-adv train --workers N --cpu`` with torchrun's launcher, in this process.

torchrun's command would print each worker's error, its own traceback and a report.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write

_LAUNCHED = "FAIRSEQ_ADV_LAUNCHED"
_ERRORS = "TORCHELASTIC_ERROR_FILE"  # of a worker, in torchrun's format
# Defaults of torchrun's options; a torch without these options reads none. By its own, SIGUSR1 would kill it,
# and workers that need more than 30 seconds to end their update and save would be killed.
_DEFAULTS = {"PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1", "PET_SHUTDOWN_TIMEOUT": "600"}


def launch(workers: int, words: Sequence[str]) -> None:
    """Runs torchrun with these words: its own options, then a program that it starts so many times.

    Raises:
        DataError: a worker ended with a user error; only the first one's is told.
        SystemExit: a worker failed in another way, of which it has printed why, or a signal came.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[_LAUNCHED] = "1"
    threads = str(max(1, (os.cpu_count() or 1) // workers))
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
        how = f"status {first.exitcode}" if first.exitcode > 0 else f"signal {-first.exitcode}"
        print(f"worker {rank + 1} of {workers} ended with {how}", file=sys.stderr)
        raise SystemExit(first.exitcode if first.exitcode > 0 else 128 - first.exitcode) from None


@contextmanager
def errors_told_once() -> Iterator[None]:
    """In a worker of :func:`launch`, a user error in the block is left to the launcher to tell."""
    try:
        yield
    except (DataError, OSError) as error:
        if _LAUNCHED not in os.environ or _ERRORS not in os.environ:
            raise
        told = {"message": str(error), "timestamp": time.time(), "is_users": True}
        atomic_write(Path(os.environ[_ERRORS]), json.dumps(told))  # torchrun may end this process meanwhile
        raise SystemExit(2) from None
