"""``fairseq-adv compare``: the table, the attack, and what it skips."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_samples import line, write_run
from support import CommandMain, fairseq_train, train_args, write_task

from fairseq_adv.evaluation import summaries


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_task(folder / "data", train=12)
    best = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", "--max-epoch", "1"]
    fairseq_train(*train_args(data, folder / "run", "standard", *best, "--no-epoch-checkpoints"))
    return folder / "run"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("compare", capsys)


def test_a_run_under_attack(trained: Path, run: CommandMain) -> None:
    done = run(trained)
    assert done.returncode == 0 and "dev accuracy" in done.stdout and "loss@" not in done.stdout
    found = []
    for unit, told in (
        ("--absolute", "(a length in the space of the embeddings)."),
        ("--relative", "(20 % of the norm of an example's embeddings)."),
    ):
        done = run(trained, "--epsilon", "0.2", "--steps", "2", unit)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].endswith(f"after 2 ascent steps within epsilon 0.2 {told}")
        loss, perturbed = map(float, done.stdout.splitlines()[2].split()[5:7])
        assert perturbed > loss
        found.append(perturbed)
    assert found[0] != found[1]


def test_a_run_without_a_best_checkpoint_is_told_before_the_others_are_attacked(
    trained: Path, tmp_path: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "attack_checkpoint", None)
    later = write_run(tmp_path / "later", line(10, accuracy=80))
    done = run(trained, later, "--epsilon", "0.2", "--absolute")
    assert done.returncode == 2 and f"{later}/checkpoint_best.pt: no such file. Leave the run" in done.stderr


def test_runs_side_by_side(tmp_path: Path, run: CommandMain) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed in (1, 2):
        write_run(runs / f"run-{seed}", line(10, accuracy=80 + seed), common={"seed": seed})
    (runs / "data").mkdir()
    rows = run(runs).stdout.splitlines()[2:-2]
    assert len(rows) == 1 and rows[0].startswith("run (2 seeds) ") and "81.50 ± " in rows[0]
    each = run(runs, "--each")
    assert [row.split()[0] for row in each.stdout.splitlines()[2:-1]] == ["run-1", "run-2"]
    (runs / "old").mkdir()
    (runs / "old" / "checkpoint_best.pt").touch()  # of before
    done = run(runs, "--each")
    assert (done.returncode, done.stdout) == (0, each.stdout)
    assert done.stderr.startswith(f"note: skipped {runs}/old: has no metrics.jsonl: made before 0.4")
    assert done.stderr.count("\n") == 1
    other = shutil.copytree(runs / "run-1", tmp_path / "run-1")  # of one name: told by their paths
    rows = run(runs / "run-1", other).stdout.splitlines()
    assert rows[2].startswith(f"{runs}/run-1 ") and rows[3].startswith(f"{other} ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUNS/gone"], "gone: no such folder. Pass the --save-dir of a training run"),
        (["RUNS/run", "--steps", "2"], "pass its radius with --epsilon"),
        (["RUNS/run", "--epsilon", "0.1"], "pass --relative if it is a share of the norm of each"),
    ],
)
def test_mistakes_end_with_one_line(words: list[str], message: str, tmp_path: Path, run: CommandMain) -> None:
    write_run(tmp_path / "run", line(10, accuracy=80))
    done = run(*(word.replace("RUNS", str(tmp_path)) for word in words))
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
