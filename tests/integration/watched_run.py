"""A real training whose output a test reads as it comes, and whose processes it kills one by one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from support import command, environment, launched, narrow, start_command, writers

GONE = 60.0  # seconds: torchrun gives workers 30 to end


class Run:
    """A training whose output is read as it comes."""

    def __init__(self, args: list[str], workers: int) -> None:
        words = launched([command("fairseq-train"), *args], workers)
        env = environment(PYTHONUNBUFFERED="1")
        self.process = start_command(words, stderr=subprocess.STDOUT, env=env)
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        narrow(self.pipe)
        os.set_blocking(self.pipe.fileno(), False)
        self.text = ""

    def read(self) -> bool:
        """What has come since; whether there may be more."""
        try:
            new = os.read(self.pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        self.text += new.decode()
        return bool(new)

    def updates(self) -> list[int]:
        """The numbers of the updates that were logged."""
        return [int(n) for n in re.findall(r'train_inner.*"num_updates": "(\d+)"', self.text)]

    def resumed(self) -> int:
        """The update that it went on from."""
        found = re.search(r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d+ @ (\d+) updates\)", self.text)
        return int(found.group(1)) if found else 0

    def victims(self, victim: str) -> list[int]:
        """The processes that a shot hits."""
        pids = writers(self.pipe)
        if victim == "all":
            return pids
        if victim in ("launcher", "training"):
            return [self.process.pid]
        variable = f"RANK={victim[-1]}".encode()
        return [pid for pid in pids if variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]

    def wait_until_gone(self) -> float:
        """The seconds until no process of the run is left."""
        begun = time.monotonic()
        while left := writers(self.pipe):
            self.read()
            if time.monotonic() - begun > GONE:
                kill(left)
                raise AssertionError(f"{left} are left after {GONE} s: {self.text[-3000:]}")
            time.sleep(0.05)
        while self.read():
            pass
        self.process.wait()
        self.pipe.close()
        return time.monotonic() - begun


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
