"""examples/small_runs.sh: trains, tabulates, and does nothing again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import build, run_command, train_args, write_encoder, write_questions, write_wsc

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "small_runs.sh"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as scripts/convert_hf_checkpoint.py writes it; tiny and untrained."""
    folder = tmp_path_factory.mktemp("encoder")
    args = train_args(write_questions(folder / "data"), None, "standard", task="commonsense_qa")
    build([*args, "--no-save-optimizer-state", "--max-positions", "64"]).trainer.save_checkpoint(
        str(folder / "model.pt"), {}
    )
    write_encoder(folder)
    (folder / "model_args.txt").write_text(
        "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
        "--encoder-attention-heads 2 --max-positions 64\n"
    )
    return folder


def small_runs(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(str(SCRIPT), *words, UPDATES="20")


def test_runs_are_trained_once_and_tabulated(tmp_path: Path, encoder: Path) -> None:
    write_questions(tmp_path / "data" / "commonsense_qa", choices=(5,), train=64)
    write_wsc(tmp_path / "data" / "wsc", train=32)
    (tmp_path / "data" / "wsc" / "valid.jsonl").rename(tmp_path / "data" / "wsc" / "val.jsonl")
    # The candidates are there already, so that no spaCy model is needed.
    shutil.copytree(tmp_path / "data" / "wsc", tmp_path / "out" / "wsc")
    words = [str(tmp_path / "data"), str(encoder), str(tmp_path / "out"), "commonsense_qa", "wsc"]
    done = small_runs(*words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    names = [(row[0].strip(), row[1].strip()) for row in rows]
    tasks = ("commonsense_qa", "wsc")
    assert names == [(task, method) for task in tasks for method in ("freelb", "standard")]
    assert [row[4].strip() for row in rows[:2]] == ["20.00"] * 2  # chance of five choices
    assert [row[4].strip() for row in rows[2:]] == ["62.50"] * 2  # 5 of 8 sentences are true
    assert (tmp_path / "out" / "table.md").read_text() in done.stdout
    again = small_runs(*words)
    assert again.returncode == 0 and "== " not in again.stdout
    assert [line for line in again.stdout.splitlines() if line.startswith("| ")] == [
        line for line in done.stdout.splitlines() if line.startswith("| ")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["x"], "usage: "), (["data", "nowhere", "out"], "nowhere/model.pt: no such file")],
)
def test_what_is_missing_is_said(words: list[str], message: str) -> None:
    done = small_runs(*words)
    assert done.returncode == 2 and message in done.stderr


def test_an_unknown_run_is_named(tmp_path: Path, encoder: Path) -> None:
    done = small_runs(str(tmp_path), str(encoder), str(tmp_path / "out"), "arcc")
    assert done.returncode == 2 and "no run is called arcc" in done.stderr
