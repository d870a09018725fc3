"""Commands whose standard output nobody reads any more, or lies on a full disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from support import environment, slow, start_command, verb

# What starts no torch.
LIGHT = [["--help"], ["user-dir"], slow(["prepare", "--help"]), slow(["predict", "--help"])]
HEAVY = [
    ["predict", "MODEL", "--stdin", "--cpu"],
    *map(slow, (["options", "freelb"], ["compare", "SAVE"], ["doctor"])),
]
# Where Python writes line by line, the work itself fails, not the end of the output. argparse is silent then.
LINE_BY_LINE = [["user-dir"], slow(["doctor"])]


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


def run(words: list[str], into: IO[bytes], unbuffered: str = "") -> tuple[int, str]:
    """The exit status of a verb, and what is on standard error; what Python says at its end counts, too."""
    env = environment(PYTHONUNBUFFERED=unbuffered)
    done = subprocess.run([*verb(""), *words], stdout=into, stderr=subprocess.PIPE, env=env, timeout=600)
    return done.returncode, done.stderr.decode()


def run_on_films(words: list[str], into: IO[bytes], films: Path) -> tuple[int, str]:
    """As ``run``, with texts to read; SAVE and MODEL are those of a trained model."""
    names = {"SAVE": films / "save", "MODEL": films / "save" / "checkpoint_best.pt"}
    command = [*verb(""), *(str(names.get(word, word)) for word in words)]
    env = environment(PYTHONUNBUFFERED="")
    process = start_command(command, stdin=subprocess.PIPE, stdout=into, env=env)
    error = process.communicate(b"a film\n" * 3, timeout=600)[1].decode()
    return process.returncode, error


def check_gone(words: list[str], status: int, error: str) -> None:
    assert error == "" and (status == 0 or words == ["doctor"])  # its status is what it has found


def check_full(status: int, error: str) -> None:
    assert status == 2 and error.count("\n") == 1, error
    assert error.startswith(
        "error: standard output: No space left on device. Fix that and run the same command again"
    )


@pytest.mark.parametrize("words", LIGHT)
def test_a_reader_who_has_gone(words: list[str], gone: IO[bytes]) -> None:
    check_gone(words, *run(words, gone))


@pytest.mark.parametrize("words", HEAVY)
def test_a_reader_who_has_gone_and_torch(words: list[str], gone: IO[bytes], films: Path) -> None:
    check_gone(words, *run_on_films(words, gone, films))


@pytest.mark.parametrize("words", LINE_BY_LINE)
def test_a_reader_who_has_gone_line_by_line(words: list[str], gone: IO[bytes]) -> None:
    check_gone(words, *run(words, gone, unbuffered="1"))


@pytest.mark.parametrize("words", LIGHT)
def test_a_full_disk(words: list[str], full: IO[bytes]) -> None:
    check_full(*run(words, full))


@pytest.mark.parametrize("words", HEAVY)
def test_a_full_disk_and_torch(words: list[str], full: IO[bytes], films: Path) -> None:
    check_full(*run_on_films(words, full, films))


@pytest.mark.parametrize("words", LINE_BY_LINE)
def test_a_full_disk_line_by_line(words: list[str], full: IO[bytes]) -> None:
    check_full(*run(words, full, unbuffered="1"))
