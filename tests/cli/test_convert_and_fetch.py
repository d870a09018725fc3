"""The verbs convert and fetch: result on stdout, a user's mistake as one line, exit status 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hf_models
import pytest
from support import CommandMain, run_command, verb


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


@pytest.mark.parametrize("words", [["convert", "{tmp}/absent"], ["fetch", "minilm"], ["fetch", "reviews"]])
def test_mistake_is_one_line(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    done = run(*(word.format(tmp=tmp_path) for word in words), str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["out/m 1"],
            "fetch out/m 1: say what to fetch, such as `fairseq-adv fetch minilm 'out/m 1'`. Known: ",
        ),
        (["films", "out"], "fetch films: say what to fetch, such as `fairseq-adv fetch minilm out`. "),
        (["reviews"], "fetch reviews: pass the output folder too: fairseq-adv fetch reviews OUT"),
    ],
)
def test_fetch_names_what_is_missing(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first is the command of version 0.2.0."""
    done = CommandMain("fetch", capsys)(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
