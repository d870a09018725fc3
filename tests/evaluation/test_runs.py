"""What runs leave behind, read and set side by side; and the two scripts, on a real run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from support import fairseq_train, logged, run_command, train_args, write_task

from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.runs import read_log, summarise, table

HOW = Attack(epsilon=0.4, step_size=0.2, steps=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished freelb run in ``freelb/``."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_task(folder / "data", train=48)
    args = train_args(data, folder / "freelb", "freelb", "--adv-init-mag", "0.2", "--no-epoch-checkpoints")
    best = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    log = ["--log-file", str(folder / "freelb" / "train.log")]
    (folder / "freelb").mkdir()
    fairseq_train(*args, *best, *log)
    return folder


def test_reads_every_epoch_of_fairseq_s_log(runs: Path) -> None:
    log = read_log(runs / "freelb" / "train.log")
    assert len(log.train) == len(log.valid) == 2
    text = (runs / "freelb" / "train.log").read_text()
    scores = [float(score) for score in re.findall(r'"valid_accuracy": "([\d.]+)"', text)]
    assert scores and log.best("accuracy") == max(scores)
    assert log.seconds_per_update() == sum(1 / epoch["ups"] for epoch in log.train) / 2
    assert 0 < log.train[-1]["adv_ratio"] < 1 and log.train[-1]["num_updates"] == 24


def test_a_summary_repeats_the_validation_and_keeps_the_attack(runs: Path) -> None:
    first = summarise(runs / "freelb", HOW)
    assert first.score == read_log(runs / "freelb" / "train.log").best("accuracy")
    assert first.perturbed_loss > first.loss
    kept = runs / "freelb" / "attack.json"
    changed = json.loads(kept.read_text())
    changed["means"]["loss"] = 123.0
    kept.write_text(json.dumps(changed))
    assert summarise(runs / "freelb", HOW).loss == 123.0  # read, not measured again
    other = Attack(epsilon=0.5, step_size=0.2, steps=2)
    assert summarise(runs / "freelb", other).loss == first.loss  # another attack is measured anew
    text = table([first], HOW)
    assert f"{first.score:.2f}" in text and "2 ascent steps within epsilon 0.4" in text


def test_the_clean_loss_is_the_one_that_fairseq_validated(runs: Path) -> None:
    data = str(runs / "data")
    args = train_args(Path(data), None, "freelb", "--max-epoch", "1", "--lr", "0")
    restored = ["--finetune-from-model", str(runs / "freelb" / "checkpoint_best.pt")]
    bits = logged(fairseq_train(*args, *restored), "valid")[-1]["valid_loss"]
    assert summarise(runs / "freelb", HOW).loss / 0.6931471805599453 == pytest.approx(bits, abs=6e-4)


def script(repo: Path, name: str, *args: str) -> tuple[int, str, str]:
    done = run_command(sys.executable, str(repo / "scripts" / name), *args)
    return done.returncode, done.stdout, done.stderr


def test_the_scripts_print_their_tables(repo: Path, runs: Path) -> None:
    code, out, err = script(repo, "compare_runs.py", str(runs / "freelb"), "--epsilon", "0.4", "--steps", "2")
    assert code == 0, err
    assert "freelb" in out and "perturbed" in out
    checkpoint = str(runs / "freelb" / "checkpoint_best.pt")
    code, out, err = script(repo, "loss_under_perturbation.py", checkpoint, "--epsilon", "0.4", "--json")
    assert code == 0, err
    means = json.loads(out.splitlines()[-1])
    assert means["examples"] == 8 and means["perturbed_loss"] > means["loss"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gone.pt", "--epsilon", "1"], "error: gone.pt: no such checkpoint"),
        (["CHECKPOINT", "--epsilon", "0"], "error: an attack needs epsilon > 0"),
        (["CHECKPOINT", "--epsilon", "1", "--split", "test"], "has no split 'test'"),
    ],
)
def test_mistakes_are_told_without_a_traceback(repo: Path, runs: Path, args: list[str], message: str) -> None:
    words = [str(runs / "freelb" / "checkpoint_best.pt") if a == "CHECKPOINT" else a for a in args]
    code, _, err = script(repo, "loss_under_perturbation.py", *words)
    assert code == 2
    assert message in err and "Traceback" not in err
