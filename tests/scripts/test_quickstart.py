"""scripts/quickstart.sh: mistakes are told in one line, before its set-up begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_from_scratch


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--glue", "{tmp}/gone"], "--glue {tmp}/gone: no such folder"),
        (
            ["--glue", "{tmp}/films"],
            "--glue {tmp}/films: the folder must be named after its task: CoLA,",
        ),
        (["--glue", "{tmp}/RTE"], "--glue {tmp}/RTE: no train.tsv in it"),
        (["--encoder", "{tmp}/films"], "--encoder {tmp}/films: no config.json in it"),
        (["--epochs", "08"], "--epochs 08: pass a whole number from 1 to 9999"),
        (["--epochs", "0"], "--epochs 0: pass"),
        (["--epochs", "-1"], "--epochs -1: pass"),
        (["--epochs", "1.5"], "--epochs 1.5: pass"),
        (["--epochs", "inf"], "--epochs inf: pass"),
        (["--epochs", "99999999999999999999"], "--epochs 99999999999999999999: pass"),
        (["--epochs", ""], "--epochs : pass"),
        (["--epochs"], "--epochs needs a value"),
        (["--out", "{tmp}/file/out"], "--out {tmp}/file/out: can't be created"),
        (["--out", "{tmp}/taken"], "--out {tmp}/taken: can't be written"),
        (["--out", ""], "--out: empty"),
        (["--speed", "1"], "unknown option '--speed'"),
    ],
)
def test_a_mistake_is_told_before_the_set_up(
    repo: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    for name in ("films", "RTE", "taken/quickstart.log"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    words = [word.format(tmp=tmp_path) for word in words]
    if "--out" not in words:
        words = ["--out", f"{tmp_path}/out", *words]
    # Were the set-up to begin, this Python would end it.
    places = {"VENV": f"{tmp_path}/env", "PYTHON": f"{tmp_path}/no-python"}
    done = run_from_scratch("bash", str(repo / "scripts" / "quickstart.sh"), *words, **places)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: " + message.format(tmp=tmp_path)) and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
