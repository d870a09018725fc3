"""Commands whose standard output nobody reads any more, or lies on a full disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from support import environment, start_command, verb


@pytest.fixture
def gone() -> Iterator[IO[bytes]]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as file:
        yield file


@pytest.fixture
def full() -> Iterator[IO[bytes]]:
    """A disk that is always full."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, which Linux has")
    with open("/dev/full", "wb") as file:
        yield file


# Where Python writes line by line, the work itself fails, not the end of the output.
COMMANDS = [
    (["--help"], ""),
    (["user-dir"], ""),
    (["user-dir"], "1"),
    (["predict", "MODEL", "--stdin", "--cpu"], ""),
]


def run(words: list[str], unbuffered: str, into: IO[bytes], films: Path) -> tuple[int, str]:
    """The exit status of a verb, and what is on standard error; what Python says at its end counts, too."""
    model = str(films / "save" / "checkpoint_best.pt")
    command = [*verb(""), *(model if word == "MODEL" else word for word in words)]
    env = environment(PYTHONUNBUFFERED=unbuffered)
    process = start_command(command, stdin=subprocess.PIPE, stdout=into, env=env)
    error = process.communicate(b"a film\n" * 3, timeout=600)[1].decode()
    return process.returncode, error


@pytest.mark.parametrize(("words", "unbuffered"), COMMANDS)
def test_a_reader_who_has_gone(words: list[str], unbuffered: str, gone: IO[bytes], films: Path) -> None:
    assert run(words, unbuffered, gone, films) == (0, "")


@pytest.mark.parametrize(("words", "unbuffered"), COMMANDS)
def test_a_full_disk(words: list[str], unbuffered: str, full: IO[bytes], films: Path) -> None:
    status, error = run(words, unbuffered, full, films)
    assert status == 2 and error.count("\n") == 1, error
    assert error.startswith(
        "error: standard output: No space left on device. Fix that and run the same command again"
    )
