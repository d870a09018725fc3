"""Commands in a folder of others, which has modules named like ours, Python's and our dependencies'."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path

import pytest
from support import CommandMain, run_command

from fairseq_adv.data.processes import python_code, python_module

SIZES = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --max-positions 64"
)
# Verbs that start a Python of their own. FILMS has a data folder; OUT is this test's.
WORDS = {"train": f"FILMS/data {SIZES} --save-dir OUT --workers 2 --cpu --max-update 1", "doctor": ""}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the names of modules of the current folder that have run."""
    trap, ran = tmp_path / "trap", tmp_path / "ran"
    trap.mkdir()
    for module in pkgutil.iter_modules():
        code = f"open({str(ran)!r}, 'a').write({module.name!r} + ' ')\nraise ImportError\n"
        (trap / f"{module.name}.py").write_text(code)
    monkeypatch.chdir(trap)
    return ran


def content(ran: Path) -> str:
    return ran.read_text() if ran.exists() else ""


def test_the_modules_run_where_python_looks_for_them(ran: Path) -> None:
    done = run_command(sys.executable, "-c", "import torch")
    assert done.returncode and content(ran) == "torch "


@pytest.mark.parametrize("name", WORDS)
def test_no_verb_runs_them(
    name: str, films: Path, ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb itself runs in this process; as in a command's script, the folder is not on its path."""
    words = WORDS[name].replace("FILMS", str(films)).replace("OUT", str(tmp_path / "out"))
    done = CommandMain(name, capsys)(*words.split())
    assert content(ran) == ""
    assert done.returncode == 0 or name == "doctor", done.stderr  # its status is what it has found


SPAWN = """
import multiprocessing, os
import fairseq_adv.plugin
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=os.getpid)
    worker.start()
    worker.join()
    raise SystemExit(worker.exitcode)
"""


def test_no_worker_that_fairseq_starts_runs_them(ran: Path, tmp_path: Path) -> None:
    """As on several GPUs; with each of them, Python starts a process that watches over what they share."""
    (tmp_path / "command.py").write_text(SPAWN)
    done = run_command(sys.executable, str(tmp_path / "command.py"))
    assert (content(ran), done.returncode) == ("", 0), done.stderr


def test_the_user_s_own_paths_stay(ran: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    code = "import mine; import sys; print(sys.argv[1:])"
    for words, shown in (
        (python_code(code, "a b", "-c"), "mine ['a b', '-c']\n['a b', '-c']\n"),
        (python_module("mine", "a b"), "__main__ ['a b']\n"),
    ):
        for own in (str(tmp_path / "own"), f"{tmp_path}/none:{tmp_path}/own"):
            for safe in ({}, {"PYTHONSAFEPATH": "1"}):
                done = run_command(*words, PYTHONPATH=own, **safe)
                assert (done.stdout, done.stderr) == (shown, "")
