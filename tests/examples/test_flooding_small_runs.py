"""examples/flooding/small_runs.sh: trains, attacks, tabulates, goes on after a stop; and its tables."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import (
    run_script,
    start_script,
    table_rows,
    trainings,
    wait_for,
    write_glue,
    write_small_encoder,
)  # fmt: skip
from support import run_command

FLOODING = Path(__file__).resolve().parents[2] / "examples" / "flooding"
SCRIPT, TABULATE = FLOODING / "small_runs.sh", FLOODING / "tabulate_flooding_runs.py"
SHORT = {"ROWS": "40", "EPOCHS": "2", "SEEDS": "1", "ATTACKED": "1", "TASKS": "MRPC"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for task in ("CoLA", "MRPC"):
        write_glue(folder / "glue", task)
    return folder


def small_runs(encoder: Path, *given: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, encoder, {**SHORT, **settings}, *given)


def test_everything_once_and_then_nothing(tmp_path: Path, data: Path, encoder: Path) -> None:
    out = tmp_path / "out"
    settings = ("measured", "standard", "flooding-0.69", "auto-head")
    done = small_runs(encoder, str(data), str(out), *settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    rows = table_rows(done.stdout)
    wide = {row[0]: row for row in rows if len(row) == 11}
    assert list(wide) == ["MRPC", "`standard`", "`flooding-0.69`", "`auto-head`", "`measured`"]
    flooded = wide["MRPC"].index("updates flooded, last epoch")
    assert wide["`standard`"][flooded] == "" and wide["`measured`"][flooded] == "0%"
    assert wide["`flooding-0.69`"][flooded] != "0%"  # the labels are drawn: the loss stays near ln 2
    # Measuring changes nothing: not the logged losses, not what the attack finds in the last checkpoint.
    assert wide["`measured`"][1:flooded] == wide["`standard`"][1:flooded]
    assert "by at most 0 bits" in done.stdout
    attacks = [json.loads((out / f"MRPC-{s}-1" / "attack.json").read_text()) for s in settings]
    assert attacks[0] == attacks[1] and attacks[0]["examples"] == 16
    assert attacks[0]["perturbed_loss"] > attacks[0]["loss"]
    assert [row[:3] for row in rows if len(row) == 8][1:] == [
        ["MRPC", "`auto-head`", "1"], ["MRPC", "`measured`", "1"],
    ]  # fmt: skip
    curve = (out / "MRPC-measured-1" / "accordance.csv").read_text().splitlines()
    assert curve[0].startswith("update,cosine_all") and len(curve) == 1 + 6  # each of 6 updates, half of 3
    assert not list(out.glob("*/checkpoint_*.pt"))

    again = small_runs(encoder, str(data), str(out), *settings)
    assert again.returncode == 0 and "== " not in again.stdout
    assert table_rows(again.stdout) == rows
    assert (out / "table.md").read_text() in again.stdout


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_stopped_run_leaves_no_training_and_begins_anew(tmp_path: Path, data: Path, encoder: Path) -> None:
    out = tmp_path / "out"
    words = str(data), str(out), "standard"
    endless = {**SHORT, "TASKS": "CoLA", "EPOCHS": "100000"}
    script = start_script(SCRIPT, encoder, endless, *words)
    run = out / "CoLA-standard-1"
    try:
        wait_for(lambda: (run / "train.log").is_file() and "num_updates" in (run / "train.log").read_text())
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=60)
        assert script.returncode == 130
        wait_for(lambda: not trainings(out))
    finally:
        script.kill()
        for pid in trainings(out):
            os.kill(pid, signal.SIGKILL)
    assert not (run / "done").exists()
    done = small_runs(encoder, *words, TASKS="CoLA")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "== CoLA-standard-1: 40 rows, 2 epochs, 1 mini-batches attacked" in done.stdout
    assert [row[0] for row in table_rows(done.stdout)] == ["CoLA", "`standard`"]
    other = small_runs(encoder, *words, TASKS="CoLA", EPOCHS="1", ATTACKED="2")
    assert "== CoLA-standard-1: 40 rows, 1 epochs, 2" in other.stdout, "another length is another run"
    assert json.loads((run / "attack.json").read_text())["examples"] == 20


@pytest.mark.parametrize(("task", "rows", "wanted"), [("CoLA", 7, 7), ("MRPC", 7, 7), ("MRPC", 500, 200)])
def test_the_rows_are_spread_over_the_training_set(
    tmp_path: Path, data: Path, encoder: Path, task: str, rows: int, wanted: int
) -> None:
    """Without a seed it prepares the data alone."""
    done = small_runs(encoder, str(data), str(tmp_path), "standard", TASKS=task, ROWS=str(rows), SEEDS=" ")
    assert "holds no finished run" in done.stderr
    lines = (data / "glue" / task / "train.tsv").read_text().splitlines()
    head, body = (lines[:1], lines[1:]) if task == "MRPC" else ([], lines)
    taken = (tmp_path / f"glue-{rows}" / task / "train.tsv").read_text().splitlines()
    at = [body.index(line) for line in taken[len(head) :]]
    assert taken[: len(head)] == head and len(at) == wanted and at == sorted(at)
    gaps = [right - left for left, right in zip(at, at[1:])]
    assert set(gaps) <= {200 // wanted, -(-200 // wanted)} and at[-1] == 199


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (["x"], {}, "usage: "),
        (["nowhere", "out"], {}, "nowhere/glue/MRPC/train.tsv: no such file"),
        (["DATA", "out", "flood"], {}, "no setting is called flood"),
        (["DATA", "out"], {"TASKS": "RTE"}, "no task is called RTE"),
        (["DATA", "out"], {"ENCODER": "nothing"}, "nothing/model.pt: no such file"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, data: Path, encoder: Path, given: list[str], settings: dict[str, str], message: str
) -> None:
    words = [str(data) if w == "DATA" else str(tmp_path / w) if w == "out" else w for w in given]
    done = small_runs(encoder, *words, **settings)
    assert done.returncode == 2 and message in done.stderr


def test_help_is_the_head_of_the_script(encoder: Path) -> None:
    done = small_runs(encoder, "--help")
    assert done.returncode == 0 and done.stdout.startswith("Fine-tunes a small encoder")
    assert done.stdout.rstrip().endswith("on a thread each") and "set -e" not in done.stdout


# --- the tables


def accordance(update: int, loss: float, **cosines: float) -> str:
    values = {
        "update": update, "epoch": 1, "train_loss_nats": loss, "cosine": cosines,
        "eq13": {group: value / 2 for group, value in cosines.items()}, "pairs": 12, "batches": 4,
        "seconds": 1.0,
    }  # fmt: skip
    return f"gradient accordance | {json.dumps(values)}\n"


def write_run(
    out: Path, name: str, score: float, lines: str = "", flooded: str = "", loss: float = 0.5
) -> None:
    """A finished run of two epochs, as fairseq and small_runs.sh log it."""
    run = out / name
    run.mkdir(parents=True)
    epochs = "".join(
        f"epoch 00{n} | {flooded}loss {loss / n} | num_updates {10 * n} | train_wall {4 + n} | wall 9\n"
        f"epoch 00{n} | valid on 'valid' subset | loss {n} | accuracy {score} | mcc {score} | f1 80 "
        f"| num_updates {10 * n} | best_accuracy 99\n"
        for n in (1, 2)
    )
    (run / "train.log").write_text(lines + epochs)
    (run / "seconds").write_text("30.0 20.0 10.0\n")
    attack = {"loss": 1.0, "perturbed_loss": score / 20, "accuracy": 60.0, "perturbed_accuracy": 40.0}
    (run / "attack.json").write_text(json.dumps(attack))
    (run / "done").write_text("x\n")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    for seed, score in ((1, 70.0), (2, 74.0)):
        write_run(out, f"MRPC-flooding-0.1-{seed}", score, flooded=f"flooded 0.{seed} | flood_level 0.1 | ")
    write_run(out, "MRPC-standard-1", 60.0)
    measured = accordance(5, 0.6, all=-0.5, head=-0.25) + accordance(10, 0.3, all=-0.125, head=0.5)
    write_run(out, "MRPC-measured-1", 60.0, measured, "flooded 0 | ", loss=0.75)
    start = {"update": 10, "level": 0.3, "crossing": "up", "group": "head", "before": -0.25, "after": 0.5}
    write_run(out, "MRPC-auto-head-1", 61.0, f"{measured}flood level | {json.dumps(start)}\n", "flooded 1 | ")
    unfinished = out / "MRPC-freelb-1"
    unfinished.mkdir()
    (unfinished / "train.log").write_text("epoch 001 | loss 1 | num_updates 10\n")
    return out


def test_tables_hold_what_the_logs_say(runs: Path) -> None:
    done = run_command(sys.executable, str(TABULATE), str(runs))
    rows = table_rows(done.stdout)
    half = f"{0.25 * math.log(2):.3f}"
    assert rows[1] == [
        "`standard`", "60.00 (60.00)", "80.00 (80.00)", "1.386 (1.386)", f"{half} ({half})", "", "1.000",
        "3.000 (3.000)", "40.0 (40.0)", "6", "30",
    ]  # fmt: skip
    assert rows[2][:2] == ["`flooding-0.1`", "72.00 ± 2.83 (70.00, 74.00)"]
    assert rows[2][5:8] == ["15%", "1.000", "3.600 ± 0.141 (3.500, 3.700)"]
    assert [row[0] for row in rows[3:5]] == ["`auto-head`", "`measured`"]
    crossed = "-0.25 → +0.50; up at 10 (loss 0.300)"
    assert rows[6] == ["MRPC", "`auto-head`", "1", "-0.50 → -0.12; none", crossed, "0.300 from 10 on", "10"]
    assert rows[7][5] == "none"
    assert ["5", "-0.500", "-0.250", "0.600", ""] in rows
    assert ["10", "-0.125", "+0.500", "0.300", "0.693"] in rows
    assert ["20", "", "", "", "1.386"] in rows
    assert re.search(r"differ from those .* by at most 0\.25 bits", done.stdout)


def test_tables_go_between_the_markers(tmp_path: Path, runs: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    assert run_command(sys.executable, str(TABULATE), str(runs), "--into", str(page)).returncode == 0
    text = page.read_text()
    assert text.startswith("before\n") and "old" not in text and text.endswith("end -->\nafter\n")
    done = run_command(sys.executable, str(TABULATE), str(tmp_path / "nothing"))
    assert done.returncode == 2 and "holds no finished run" in done.stderr
