"""examples/alum/small_runs.sh: trains, tabulates, goes on where it was stopped, and does nothing again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fairseq import checkpoint_utils
from small_runs import (
    run_script,
    start_script,
    table_rows,
    trainings,
    wait_for,
    words,
    write_glue,
    write_small_encoder,
)  # fmt: skip
from support import run_command

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "alum" / "small_runs.sh"
TABULATE = ROOT / "examples" / "alum" / "tabulate_alum_runs.py"
SHORT = {
    "WARMUP_UPDATES": "6", "MINUTES": "0.1", "EPSILONS": "0.5", "UPDATES": "10", "SEEDS": "1",
    "STARTS": "plain",
}  # fmt: skip


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text and two GLUE tasks, made of the encoder's words."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    (folder / "text").mkdir()
    for split, lines in (("train", 300), ("valid", 60)):
        (folder / "text" / f"{split}.txt").write_text("".join(f"{words(rng, 40)}\n\n" for _ in range(lines)))
    for task in ("RTE", "MRPC"):
        write_glue(folder / "glue", task)
    return folder


def small_runs(encoder: Path, *given: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, encoder, {**SHORT, **settings}, *given)


@pytest.mark.slow
def test_everything_once_and_then_nothing(tmp_path: Path, data: Path, encoder: Path) -> None:
    out = tmp_path / "out"
    done = small_runs(encoder, str(data), str(out))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    rows = table_rows(done.stdout)
    pretrained = [row for row in rows if len(row) == 6]
    names = ["run", "start of both (after the warm-up)", "plain", "ALUM", "plain, as many updates as ALUM"]
    assert [row[0] for row in pretrained] == names
    updates = [int(row[1]) for row in pretrained[1:]]
    # On a busy machine the time may be over after the first update.
    assert updates[0] == 6 and updates[1] >= updates[2] == updates[3] >= 1
    for row in pretrained[1:]:
        assert float(row[4]) < float(row[5])  # an attack raises the loss
    tuned = [row[:4] for row in rows if row[0] in ("MRPC", "RTE")]
    methods = ("`standard`", "`alum_vat`", "`smart`")
    assert tuned == [[task, "plain", method, "10"] for task in ("MRPC", "RTE") for method in methods]
    for arm in ("plain", "alum"):
        log = (out / f"pretrain-{arm}" / "train.log").read_text()
        assert "Stopping training due to cumulative_training_time" in log

    start = checkpoint_utils.load_checkpoint_to_cpu(str(out / "warmup" / "start.pt"))
    assert "previous_training_time" not in start["extra_state"] and start["last_optimizer_state"] is None

    again = small_runs(encoder, str(data), str(out))
    assert again.returncode == 0 and "== " not in again.stdout
    assert table_rows(again.stdout) == rows
    assert (out / "table.md").read_text() in again.stdout


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_stopped_run_leaves_no_training_and_goes_on(tmp_path: Path, data: Path, encoder: Path) -> None:
    out = tmp_path / "out"
    done = small_runs(encoder, str(data), str(out), "corpus")
    assert done.returncode == 0, done.stderr[-3000:]
    script = start_script(
        SCRIPT, encoder, {**SHORT, "WARMUP_UPDATES": "100000"}, str(data), str(out), "warmup"
    )
    saved = out / "warmup" / "checkpoint_last.pt"
    try:
        wait_for(saved.is_file)
        second = small_runs(encoder, str(data), str(out), "warmup")
        assert second.returncode == 2 and "still at work there" in second.stderr
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=60)
        assert script.returncode == 130
        wait_for(lambda: not trainings(out))
    finally:
        script.kill()
        for pid in trainings(out):
            os.kill(pid, signal.SIGKILL)
    reached = _updates(saved)
    assert reached > 0 and not (out / "warmup" / "done").exists()

    done = small_runs(encoder, str(data), str(out), "warmup", WARMUP_UPDATES=str(reached + 20))
    assert done.returncode == 0, done.stderr[-3000:]
    log = (out / "warmup" / "output.txt").read_text()
    assert f"@ {reached} updates" in log and _updates(saved) == reached + 20


def _updates(checkpoint: Path) -> int:
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    return int(state["optimizer_history"][-1]["num_updates"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["x"], "usage: "),
        (["nowhere", "out"], "nowhere/text/train.txt: no such file"),
        (["DATA", "out", "finetuning"], "no stage is called finetuning"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, data: Path, encoder: Path, given: list[str], message: str
) -> None:
    done = small_runs(
        encoder, *(str(data) if w == "DATA" else str(tmp_path / w) if w == "out" else w for w in given)
    )
    assert done.returncode == 2 and message in done.stderr


def test_an_encoder_that_is_not_there(tmp_path: Path, data: Path) -> None:
    done = small_runs(tmp_path / "nothing", str(data), str(tmp_path / "out"))
    assert done.returncode == 2 and "nothing/model.pt: no such file" in done.stderr


def test_a_failed_training_shows_its_error(tmp_path: Path, data: Path, encoder: Path) -> None:
    out = str(tmp_path / "out")
    assert small_runs(encoder, str(data), out, "corpus").returncode == 0
    done = small_runs(encoder, str(data), out, "finetune")  # before there is a checkpoint to start from
    assert done.returncode == 2 and "fairseq-train failed" in done.stderr


def write_runs(out: Path) -> Path:
    """Logs of two seeds of one method, as fairseq and small_runs.sh write them."""
    for seed, accuracy in ((1, 70.0), (2, 74.0)):
        run = out / "finetune" / f"MRPC-alum-smart-{seed}"
        run.mkdir(parents=True)
        (run / "train.log").write_text(
            "epoch 001 | valid on 'valid' subset | loss 0.9 | accuracy 50.00 | f1 60.00 | num_updates "
            f"5\nepoch 001 | valid on 'valid' subset | loss 0.8 | accuracy {accuracy} | mcc -1.5 | f1 80.00 "
            "| acc_and_f1 75 | num_updates 10 | best_accuracy 99\n"
        )
        (run / "seconds").write_text("12.0 20.0 10.0\n")
        (run / "done").write_text("10 updates\n")
    unfinished = out / "finetune" / "MRPC-alum-smart-3"
    unfinished.mkdir()
    for name, values in (
        ("warmup", (4.0, 5.0)), ("pretrain-plain", (3.1, 3.9)), ("pretrain-alum", (3.0, 3.5)),
    ):  # fmt: skip
        run = out / name
        run.mkdir()
        (run / "valid.log").write_text("2026-01-01 | INFO | valid |  | loss 5 | ppl 32.5 | wps 0\n")
        lines = [
            "epoch 001:      2 / 9 loss=6.1, task_loss=6.1, vat_cosine=0.5, vat_norm_inf=1e-05, "
            "num_updates=2",
            f"epoch 001:      4 / 9 loss={values[0]}, task_loss={values[0]}, vat_cosine=0.7, "
            "vat_norm_inf=1e-05, num_updates=4, lr=1e-3",
            "epoch 001 | loss 6.2 | vat_cosine 0.6 | num_updates 5 | lr 0.001",
        ]
        (run / "train.log").write_text("\n".join(lines) + "\n")
        (run / "seconds").write_text("60.0 50.0 10.0\n120.0 90.0 0.0\n")
        (run / "done").write_text("x\n")
        means = {"loss": values[0], "perturbed_loss": values[1]}
        (run / "attack-0.05.json").write_text(json.dumps(means))
    return out


def test_tables_hold_what_the_logs_say(tmp_path: Path) -> None:
    done = run_command(sys.executable, str(TABULATE), str(write_runs(tmp_path)))
    rows = table_rows(done.stdout)
    assert ["ALUM", "5", "3.0, 2.5", "32.50", "3.000", "3.500"] in rows
    assert "differ by at most 0.100 bits, in 2 lines" in done.stdout
    assert ["`vat_cosine`", "0.6", "0.5", "0.7"] in rows
    assert ["`vat_norm_inf`", "1e-05", "1e-05", "1e-05"] in rows
    assert [
        "MRPC", "ALUM", "`smart`", "10", "72.00 ± 2.83 (70.00, 74.00)", "80.00 ± 0.00 (80.00, 80.00)", "30",
    ] in rows  # fmt: skip


def test_tables_go_between_the_markers(tmp_path: Path) -> None:
    out, page = write_runs(tmp_path / "out"), tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    for _ in range(2):
        assert run_command(sys.executable, str(TABULATE), str(out), "--into", str(page)).returncode == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- tables: end -->\nafter\n")
    assert "old" not in text and text.count("| MRPC |") == 1
    page.write_text("no markers\n")
    done = run_command(sys.executable, str(TABULATE), str(out), "--into", str(page))
    assert done.returncode == 2 and "lacks the lines" in done.stderr and page.read_text() == "no markers\n"


def test_no_run_to_tabulate(tmp_path: Path) -> None:
    done = run_command(sys.executable, str(TABULATE), str(tmp_path))
    assert done.returncode == 2 and "holds no finished run" in done.stderr
