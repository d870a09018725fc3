"""Commands in forks of a server process that has imported torch, fairseq and the plug-in.

A training of a test takes less time than these imports. The server has done nothing but import them, so a
fork of it begins like a process of its own.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

DEADLINE = 600.0  # seconds


@cache
def _server() -> ForkServerContext:
    """It has this process's path, also where Python's own server hasn't, and one thread for operations."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fairseq_cli.train", "fairseq_adv.plugin"])
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), OMP_NUM_THREADS="1"):
        forkserver.ensure_running()
    return context


def run_forked(
    main: str, words: Sequence[str], environment: Mapping[str, str], workers: int = 1
) -> subprocess.CompletedProcess[str]:
    """Runs a command's function to its end, such as ``"fairseq_cli.train:cli_main"``, in several workers as
    torchrun starts them: with its variables, and if one fails the others are killed.

    Args:
        words: the command line, its name first.
    """
    with TemporaryDirectory() as folder:
        processes, plugin = [], importlib.import_module("fairseq_adv").__file__
        for rank, variables in enumerate(_as_torchrun(workers) if workers > 1 else [{}]):
            args = (main, list(words), {**environment, **variables}, f"{folder}/{rank}", plugin)
            processes.append(_server().Process(target=_run, args=args))
        try:
            for process in processes:
                process.start()
            left, deadline = {one.sentinel for one in processes}, time.monotonic() + DEADLINE
            while left and not any(one.exitcode for one in processes):
                ended = wait([*left], deadline - time.monotonic())
                left = left.difference(ended) if ended else set()
        finally:  # none outlives the test
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
        code = next((process.exitcode for process in processes if process.exitcode), 0)
        ranks = range(workers - 1, -1, -1)  # the first, which tells of the run, ends last
        out, err = ("".join(_read(f"{folder}/{rank}.{kind}") for rank in ranks) for kind in ("out", "err"))
    return subprocess.CompletedProcess(list(words), code or 0, out, err)


def _as_torchrun(workers: int) -> list[dict[str, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(workers)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(workers)]


def _read(path: str) -> str:
    return Path(path).read_text("utf-8", "replace") if os.path.exists(path) else ""


def _run(main: str, words: list[str], environment: Mapping[str, str], out: str, plugin: str | None) -> None:
    """In the fork: as Python would run the command."""
    assert importlib.import_module("fairseq_adv").__file__ == plugin, "the server has another checkout's"
    for kind, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{out}.{name}", os.O_WRONLY | os.O_CREAT), kind)
    sys.stdout, sys.stderr = (open(kind, "w", buffering=1, closefd=False) for kind in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(words)
    warnings.simplefilter("ignore")
    # As fairseq_cli.train does when it is imported, which the server has.
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", datefmt="%Y-%m-%d %H:%M:%S",
        level=environment.get("LOGLEVEL", "INFO").upper(), stream=sys.stdout, force=True,
    )  # fmt: skip
    module, function = main.split(":")
    try:
        sys.exit(getattr(importlib.import_module(module), function)())
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()  # which a fork's end leaves out
