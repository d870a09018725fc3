"""Console commands without their start-up: one process imports torch and fairseq, and is forked for each.

Tests whose subject is what a command does, and not how it starts, put :func:`folder` in front of PATH: what
lies there under the commands' names is this file, as a client.

client   ``python -IS warm.py SOCKET COMMAND WORD...`` hands its words, environment, folder and standard
         streams to the server, forwards signals, and ends as the command does, with the same status or
         signal. What can't be handed over (options and variables of Python itself) it runs directly.
server   ``python warm.py SOCKET``: one thread, a fork for each client. When a client is killed, so is the
         command, with every process that it started.

``tests/test_warm.py`` compares commands with directly run ones.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

FORWARDED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
HANDED_OVER = {"PYTHONWARNINGS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
COMMANDS = [
    "fairseq-adv", "fairseq-hydra-train", "fairseq-preprocess", "fairseq-train", "fairseq-validate", "python",
    "python3", "torchrun",
]  # fmt: skip
LENGTH, STATUS = struct.Struct("!I"), struct.Struct("!i")


# --- for tests ----------------------------------------------------------------------------------

_folder: Path | None = None


def folder() -> Path:
    """A folder with the commands; the server starts at the first call and ends with this process."""
    global _folder
    if _folder is None:
        made = Path(tempfile.mkdtemp(prefix="warm-"))
        words = [sys.executable, str(Path(__file__).resolve()), str(made / "socket")]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert server.stdin is not None and server.stdout is not None
        for name in COMMANDS:
            client = f'exec "{sys.executable}" -IS "{words[1]}" "{words[2]}" {name} "$@"'
            (made / name).write_text(f"#!/bin/sh\n{client}\n")
            (made / name).chmod(0o755)
        assert server.stdout.readline() == b"ready\n", "the server did not start"
        atexit.register(lambda: (server.stdin.close(), server.wait()))  # type: ignore[union-attr]
        _folder = made
    return _folder


# --- client -------------------------------------------------------------------------------------


def run_client(path: str, name: str, words: list[str]) -> None:
    """Never returns."""
    program = str(Path(sys.executable).parent / name)
    is_python = name.startswith("python")
    understood = bool(words) and (not words[0].startswith("-") or words[0] in ("-c", "-m", "-u"))
    own = {variable for variable in os.environ if variable.startswith("PYTHON")} - HANDED_OVER
    if own or (is_python and not understood):
        os.execv(program, [program, *words])
    ignored = [number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN]
    umask = os.umask(0)
    os.umask(umask)
    request = json.dumps({
        "argv": words if is_python else [program, *words], "environment": dict(os.environ),
        "folder": os.getcwd(), "umask": umask, "ignored": ignored,
        "python": str(Path(path).with_name("python")),
    }).encode()  # fmt: skip
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    for number in set(FORWARDED) - set(ignored):
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    socket.send_fds(server, [LENGTH.pack(len(request))], [0, 1, 2])
    server.sendall(request)
    (status,) = STATUS.unpack(server.recv(STATUS.size, socket.MSG_WAITALL))
    if status < 0:
        end_by_signal(-status)
    os._exit(status)


def end_by_signal(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# --- server -------------------------------------------------------------------------------------


def serve(path: str) -> None:
    """Until the standard input ends, which the process that started it holds open."""
    import selectors

    import composition

    composed, tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    prepare(lambda overrides: tell.send(json.dumps(overrides).encode()))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    selector.register(composed, selectors.EVENT_READ)
    running: dict[int, socket.socket] = {}
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            kind, pid = key.data or ("", 0)
            if key.fileobj is listener:
                client, _ = listener.accept()
                pid = start(client, [listener, *running.values()])
                running[pid] = client
                selector.register(client, selectors.EVENT_READ, ("client", pid))
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, ("command", pid))
            elif key.fileobj is composed:
                composition.compose_ahead(json.loads(composed.recv(1 << 20)))
            elif kind == "client":
                if pid in running:  # or its end came with this, and has been reported
                    signal_command(pid, key.fileobj, selector)
            elif kind == "command":
                selector.unregister(key.fileobj)
                os.close(key.fd)
                report_end(pid, running.pop(pid), selector)
            else:
                for pid in running:
                    kill_tree(pid)
                return


def signal_command(pid: int, client: Any, selector: Any) -> None:
    """Forwards what the client has sent; the end of its connection is the end of the client."""
    try:
        numbers = client.recv(16)
    except OSError:
        numbers = b""
    if not numbers:
        selector.unregister(client)
        kill_tree(pid)
    for number in numbers:
        os.kill(pid, number)


def kill_tree(pid: int) -> None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return  # a grandchild that someone else has killed in the meantime
    for child in children:
        kill_tree(int(child))


def report_end(pid: int, client: socket.socket, selector: Any) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if client in [key.fileobj for key in selector.get_map().values()]:
        selector.unregister(client)
        with contextlib.suppress(BrokenPipeError):  # the client was killed, too, and its end is not yet read
            client.sendall(STATUS.pack(status))
    client.close()


def prepare(tell: Callable[[list[str]], None]) -> None:
    """Imports what the commands import, the plug-in as by ``--user-dir``."""
    import argparse
    import gc
    import importlib
    import logging

    import composition
    from fairseq import utils

    from fairseq_adv_compat import machine

    machine.CPUINFO = Path(os.devnull)  # see conftest.py
    for name in ("fairseq.trainer", "torch.distributed.run", "torch._dynamo", "sentencepiece", "tiktoken",
                 "tokenizers"):  # fmt: skip
        with contextlib.suppress(ImportError):  # an older torch has not all of them
            importlib.import_module(name)
    del sys.path[0]
    plugin = Path(__file__).resolve().parent.parent / "fairseq_adv"
    utils.import_user_module(argparse.Namespace(user_dir=str(plugin)))
    composition.remember(tell)
    composition.compose_ahead([])  # fairseq's own defaults
    logging.getLogger().handlers.clear()  # an import wrote a line; a command sets up its own log
    gc.collect()
    gc.freeze()  # a fork that collects garbage would copy all of it


def start(client: socket.socket, others: list[socket.socket]) -> int:
    """Forks: the command never returns from here."""
    length, files, _, _ = socket.recv_fds(client, LENGTH.size, 3)
    request = json.loads(client.recv(LENGTH.unpack(length)[0], socket.MSG_WAITALL))
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        return pid
    for other in [client, *others]:
        other.close()
    become(request, files)
    raise AssertionError("unreachable")


def become(request: dict[str, Any], files: list[int]) -> None:
    """Takes over the streams, environment, folder and signals of the client, and runs its command."""
    import random

    import numpy as np

    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for number in FORWARDED:
        ours = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else ours)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.umask(request["umask"])
    random.seed()
    np.random.seed()
    sys.executable = request["python"]  # what this command starts is warm, too
    os._exit(run(request["argv"]))


def run(argv: list[str]) -> int:
    """The command in this process, with the exit status that Python gives it."""
    import logging
    import runpy
    import threading
    import traceback

    if argv[0] == "-u" or os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    argv = argv[argv[0] == "-u" :]
    status = 0
    try:
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            sys.path.insert(0, "")
            exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
        elif argv[0] == "-m":
            sys.argv = argv[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path.insert(0, str(Path(argv[0]).resolve().parent))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        status = 0 if end.code is None else end.code & 255 if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        traceback.print_exc()
        status = -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        end_by_signal(-status)
    return status


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        run_client(sys.argv[1], sys.argv[2], sys.argv[3:])
