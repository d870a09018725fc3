"""Importing the packages fetches nothing and starts no program."""

from __future__ import annotations

import sys

from support import run_command

# An audit hook sees what the interpreter does, whichever library does it.
WATCH = """
import sys
seen = []
EVENTS = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec",
          "os.posix_spawn", "urllib.Request", "pty.spawn", "os.fork")
sys.addaudithook(lambda event, args: seen.append((event, str(args)[:99])) if event in EVENTS else None)
"""


def seen_by(code: str) -> str:
    done = run_command(sys.executable, "-c", f"{WATCH}{code}\nprint('saw', seen)")
    assert done.returncode == 0, done.stderr
    return str(done.stdout.splitlines()[-1])


def test_imports_fetch_nothing() -> None:
    modules = ["fairseq_adv_compat", "fairseq_adv.cli", "fairseq_adv.plugin", "fairseq_adv.data.fetch",
               "fairseq_adv.evaluation.trained", "fairseq_adv.retrieval.tantivy_index",
               "fairseq_adv.data.wsc.noun_phrases"]  # fmt: skip
    assert seen_by(f"import {', '.join(modules)}") == "saw []"


def test_the_hook_sees_them() -> None:
    connect = "try: socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError: pass"
    seen = seen_by(f"import os, socket\nos.system('true')\n{connect}")
    assert "os.system" in seen and "socket.connect" in seen
