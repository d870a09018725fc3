"""The two scripts as a person runs them: result on stdout, a user's mistake as one line, exit status 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import run_command


def run(repo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command(sys.executable, str(repo / words[0]), *words[1:])


def test_converts_and_reuses(repo: Path, tmp_path: Path) -> None:
    sys.path.insert(0, str(repo / "tests" / "hub"))
    import hf_models

    hf_models.save_bert(tmp_path / "hf")
    words = ["scripts/convert_hf_checkpoint.py", str(tmp_path / "hf"), str(tmp_path / "out")]
    first = run(repo, *words)
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith(f"{tmp_path / 'out'}: written\n")
    assert "newly initialised: encoder.lm_head" in first.stderr
    assert "left out: pooler.dense.weight" in first.stderr
    second = run(repo, *words)
    assert second.returncode == 0
    assert second.stdout.endswith(f"{tmp_path / 'out'}: already there, reused\n")


@pytest.mark.parametrize("script", ["convert_hf_checkpoint.py", "fetch_minilm.py"])
def test_mistake_is_one_line(repo: Path, tmp_path: Path, script: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    source = [] if script == "fetch_minilm.py" else [str(tmp_path / "absent")]
    done = run(repo, f"scripts/{script}", *source, str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize("script", ["convert_hf_checkpoint.py", "fetch_minilm.py"])
def test_help(repo: Path, script: str) -> None:
    done = run(repo, f"scripts/{script}", "--help")
    assert done.returncode == 0
    assert "usage:" in done.stdout
