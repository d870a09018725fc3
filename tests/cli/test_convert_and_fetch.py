"""The verbs convert and fetch: result on stdout, a user's mistake as one line, exit status 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hf_models
import pytest
from support import run_command, verb


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(*verb(words[0]), *words[1:])


def test_converts_and_reuses(tmp_path: Path) -> None:
    hf_models.save_bert(tmp_path / "hf")
    words = ["convert", str(tmp_path / "hf"), str(tmp_path / "out")]
    first = run(*words)
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith(f"wrote {tmp_path / 'out'}\n")
    assert "newly initialised: encoder.lm_head" in first.stderr
    assert "left out: pooler.dense.weight" in first.stderr
    second = run(*words)
    assert second.returncode == 0
    assert second.stdout.endswith(f"{tmp_path / 'out'} is already there; nothing to do\n")


@pytest.mark.parametrize("name", ["convert", "fetch"])
def test_mistake_is_one_line(repo: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    source = [] if name == "fetch" else [str(tmp_path / "absent")]
    done = run(name, *source, str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout
