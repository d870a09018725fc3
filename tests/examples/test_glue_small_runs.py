"""examples/glue/small_runs.sh: trains, attacks, tabulates, does nothing twice; and its tables."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import run_script, table_rows, write_glue, write_small_encoder
from support import run_command

GLUE = Path(__file__).resolve().parents[2] / "examples" / "glue"
SCRIPT, TABULATE = GLUE / "small_runs.sh", GLUE / "tabulate_glue_runs.py"
SHORT = {"ROWS": "40", "UPDATES": "6", "SEEDS": "1", "ATTACKED": "1", "TASKS": "RTE"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_glue(folder / "glue", "RTE")
    return folder


def small_runs(encoder: Path, *given: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, encoder, {**SHORT, **settings}, *given)


def test_everything_once_and_then_nothing(tmp_path: Path, data: Path, encoder: Path) -> None:
    out = tmp_path / "out"
    words = str(data), str(out), "freeat", "standard"
    done = small_runs(encoder, *words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    head, *rows = table_rows(done.stdout)
    assert head[:4] == ["RTE", "seeds", "updates", "dev accuracy"] and len(head) == 13
    assert [row[:3] for row in rows] == [["`standard`", "1", "6"], ["`freeat`", "1", "6"]]
    for row, method in zip(rows, ("standard", "freeat")):
        run = out / f"RTE-{method}-1"
        assert (run / "done").read_text() == "40 rows, 6 updates, 1 mini-batches attacked\n"
        attack = json.loads((run / "attack.json").read_text())
        assert attack["examples"] == 16 and row[head.index("attacked rows")] == "16"
        assert attack["perturbed_loss"] > attack["loss"]
        log = (run / "train.log").read_text()
        assert ("adv_norm" in log) == (method == "freeat")
        # Of the five mini-batches in an epoch freeat sees two, three times each.
        assert ("epoch 002 |" in log) == (method == "standard")
    assert not list(out.glob("*/checkpoint_*.pt"))

    again = small_runs(encoder, *words)
    assert again.returncode == 0 and "== " in done.stdout and "== " not in again.stdout
    assert table_rows(again.stdout) == [head, *rows]
    assert (out / "table.md").read_text() in again.stdout


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (["x"], {}, "usage: "),
        (["nowhere", "out"], {}, "nowhere/glue/RTE/train.tsv: no such file"),
        (["DATA", "out", "plain"], {}, "no method is called plain"),
        (["DATA", "out", "freelb", "free_at"], {}, "no method is called free_at"),
        (["DATA", "out"], {"TASKS": "RTE MRPC"}, "no task is called MRPC"),
        (["DATA", "out"], {"TASKS": "CoLA"}, "glue/CoLA/train.tsv: no such file"),
        (["DATA", "out"], {"ENCODER": "nothing"}, "nothing/model.pt: no such file"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, data: Path, encoder: Path, given: list[str], settings: dict[str, str], message: str
) -> None:
    words = [str(data) if w == "DATA" else str(tmp_path / w) if w == "out" else w for w in given]
    done = small_runs(encoder, *words, **settings)
    assert done.returncode == 2 and message in done.stderr
    assert not list(tmp_path.glob("out/*-1")), "nothing was trained"


def test_help_is_the_head_of_the_script(encoder: Path) -> None:
    done = small_runs(encoder, "--help")
    assert done.returncode == 0 and done.stdout.startswith("Fine-tunes a small encoder")
    assert "standard freelb pgd freeat yopo" in done.stdout and "set -e" not in done.stdout


# --- the tables


def write_run(out: Path, name: str, score: float, *, updates: int = 20, attacked: int = 16) -> Path:
    """A finished run of two epochs, as fairseq and small_runs.sh log it."""
    run = out / name
    run.mkdir(parents=True)
    ends = {1: updates // 2, 2: updates}
    (run / "train.log").write_text("".join(
        f"epoch 00{n} | loss {score / 50 / n} | num_updates {end} | train_wall {4 + n} | wall 9\n"
        f"epoch 00{n} | valid on 'valid' subset | loss {n} | accuracy {score + n} | mcc {score / 2} "
        f"| num_updates {end} | best_accuracy 99\n"
        for n, end in ends.items()
    ))  # fmt: skip
    (run / "seconds").write_text("99.0 30.0\n90.0 80.0 10.0\n")  # the first start was killed
    attack = {
        "examples": attacked, "loss": 0.5, "perturbed_loss": score / 50, "accuracy": 60.0,
        "perturbed_accuracy": 40.0,
    }  # fmt: skip
    (run / "attack.json").write_text(json.dumps(attack))
    (run / "done").write_text("x\n")
    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    for seed, score in ((10, 70.0), (2, 75.0)):
        write_run(out, f"RTE-yopo-{seed}", score)
    write_run(out, "RTE-freeat-1", 50.0, updates=40, attacked=32)
    write_run(out, "RTE-standard-1", 60.0)
    write_run(out, "CoLA-pgd-1", 60.0)
    write_run(out, "CoLA-pgd-2", 60.0, updates=60, attacked=8)
    write_run(out, "MRPC-pgd-1", 60.0)
    (write_run(out, "RTE-pgd-1", 60.0) / "done").unlink()
    (write_run(out, "RTE-freelb-1", 60.0) / "attack.json").unlink()
    return out


def test_tables_hold_what_the_logs_say(runs: Path) -> None:
    done = run_command(sys.executable, str(TABULATE), str(runs))
    assert done.returncode == 0, done.stderr
    cola, pgd, rte, *rows = table_rows(done.stdout)
    assert (
        cola[0] == "CoLA"
        and cola[3] == "dev mcc"
        and pgd[0] == "`pgd`"
        and pgd[3] == "30.00 ± 0.00 (30.00, 30.00)"
    )
    assert pgd[1:3] == ["1, 2", "20, 60"] and pgd[7] == "8, 16", "runs that are not alike show it"
    assert rte[0] == "RTE" and rte[3] == "dev accuracy"
    assert [row[0] for row in rows] == ["`standard`", "`freeat`", "`yopo`"], "finished and attacked alone"
    train = f"{0.6 * math.log(2):.3f}"
    assert rows[0][1:] == [
        "1", "20", "62.00 (62.00)", "1.386 (1.386)", f"{train} ({train})", "0.55", "16", "0.500",
        "1.200 (1.200)", "0.7000 (0.7000)", "40.0 (40.0)", "1.5",
    ]  # fmt: skip
    assert rows[1][2] == "40" and rows[1][6:8] == ["0.28", "32"]
    assert rows[2][1] == "2, 10" and rows[2][3] == "74.50 ± 3.54 (77.00, 72.00)"
    assert rows[2][9:11] == ["1.450 ± 0.071 (1.500, 1.400)", "0.9500 ± 0.0707 (1.0000, 0.9000)"]


def test_tables_go_between_the_markers(tmp_path: Path, runs: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    assert run_command(sys.executable, str(TABULATE), str(runs), "--into", str(page)).returncode == 0
    text = page.read_text()
    assert text.startswith("before\n") and "old" not in text and text.endswith("end -->\nafter\n")
    assert [row[0] for row in table_rows(text)][:2] == ["CoLA", "`pgd`"]


def test_an_attack_that_cannot_be_read_is_named(runs: Path) -> None:
    (runs / "RTE-standard-1" / "attack.json").write_text("{")
    done = run_command(sys.executable, str(TABULATE), str(runs))
    assert done.returncode == 2 and "RTE-standard-1/attack.json: is no json" in done.stderr
    assert "Traceback" not in done.stderr
