"""``fairseq-adv compare``: the table, the attack, the picture."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support import CommandMain, fairseq_train, train_args, without_matplotlib, write_task


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three updates: logged/ with a log, bare/ without one."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_task(folder / "data", train=12)
    (folder / "logged").mkdir()
    best = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", "--max-epoch", "1"]
    log = ["--log-file", str(folder / "logged" / "train.log")]
    fairseq_train(*train_args(data, folder / "logged", "standard", *best, *log, "--no-epoch-checkpoints"))
    shutil.copytree(folder / "logged", folder / "bare", ignore=shutil.ignore_patterns("train.log"))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("compare", capsys)


def test_runs_with_and_without_a_log(runs: Path, run: CommandMain) -> None:
    done = run(runs / "logged", runs / "bare")
    assert done.returncode == 0, done.stderr
    head, _, logged, bare, _ = done.stdout.splitlines()
    assert "dev accuracy" in head and "loss@" not in head
    assert logged.split()[:5] == ["logged", *bare.split()[1:5]]  # criterion, updates, accuracy, epoch
    assert bare.split()[5] == "–" and logged.split()[5] != "–"
    assert not (runs / "logged" / "attack-0.4.json").exists()


def test_a_metric_that_no_log_has_is_told(
    runs: Path, run: CommandMain, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(runs / "logged", "--metric", "accuracy").returncode == 0 and not caplog.text
    assert run(runs / "logged", "--metric", "pearson").returncode == 0
    assert re.search(r"train\.log: has no pearson\. It has .*accuracy, .*loss", caplog.text)


def test_runs_of_one_name_are_told_by_their_paths(runs: Path, tmp_path: Path, run: CommandMain) -> None:
    other = shutil.copytree(runs / "logged", tmp_path / "logged")
    lines = run(runs / "logged", other).stdout.splitlines()
    assert lines[2].startswith(f"{runs}/logged ") and lines[3].startswith(f"{other} ")


def test_an_attack(runs: Path, run: CommandMain) -> None:
    done = run(runs / "logged", "--epsilon", "0.4", "--absolute", "--steps", "2")
    assert done.returncode == 0, done.stderr
    means = json.loads((runs / "logged" / "attack-0.4.json").read_text())["means"]
    assert done.stdout.splitlines()[2].split()[5:7] == [
        f"{means['loss']:.3f}", f"{means['perturbed_loss']:.3f}",
    ]  # fmt: skip


def test_a_relative_attack_is_another_one_with_a_file_of_its_own(runs: Path, run: CommandMain) -> None:
    found = []
    for unit, told in (
        ("--absolute", "epsilon 0.2 (a length in the space of the embeddings)."),
        ("--relative", "epsilon 0.2 (20 % of the norm of an example's embeddings)."),
    ):
        done = run(runs / "logged", "--epsilon", "0.2", "--steps", "2", unit)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].endswith(f"after 2 ascent steps within {told}")
        found.append(done.stdout.splitlines()[2].split()[6])
    kept = [runs / "logged" / name for name in ("attack-0.2.json", "attack-0.2-relative.json")]
    assert found == [f"{json.loads(path.read_text())['means']['perturbed_loss']:.3f}" for path in kept]
    assert found[0] != found[1]


def test_learning_curves(
    runs: Path, tmp_path: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(runs / "logged", runs / "bare", "--curves", tmp_path / "new" / "curves.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"wrote {tmp_path}/new/curves.png\n")
    assert done.stderr == "note: bare has no train.log, so it has no curve\n"
    assert (tmp_path / "new" / "curves.png").read_bytes().startswith(b"\x89PNG")
    without_matplotlib(monkeypatch)
    done = run(runs / "logged", "--curves", tmp_path / "none.png")
    assert done.returncode == 2 and done.stdout.startswith("run ")
    assert done.stderr.startswith("error: no figure was drawn: that needs matplotlib.")
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "none.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUNS/data"], "neither train.log nor checkpoint_best.pt nor checkpoint_last.pt"),
        (["RUNS/logged", "--steps", "2"], "pass its radius with --epsilon"),
        (["RUNS/logged", "--relative"], "pass its radius with --epsilon"),
        (["RUNS/logged", "--absolute"], "pass its radius with --epsilon"),
        (["RUNS/logged", "--epsilon", "0.1"], "pass --relative if it is a share of the norm of each"),
        (["RUNS/logged", "--curves", "out.pdf"], "pass a file name that ends in .png"),
    ],
)
def test_mistakes_end_with_one_line(words: list[str], message: str, runs: Path, run: CommandMain) -> None:
    done = run(*(word.replace("RUNS", str(runs)) for word in words))
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")


def test_a_folder_of_runs(runs: Path, run: CommandMain) -> None:
    """The same as its runs one by one; what is none is skipped, and named."""
    done = run(runs)
    assert done.returncode == 0 and done.stdout == run(runs / "bare", runs / "logged").stdout
    assert done.stderr == f"note: skipped, not training runs: {runs}/data\n"


def test_a_run_without_numbers_yet_is_skipped(runs: Path, tmp_path: Path, run: CommandMain) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "train.log").write_text("2026-11-25 | INFO | fairseq | started\n")
    done = run(runs / "logged", tmp_path / "begun")
    assert done.returncode == 0 and done.stdout == run(runs / "logged").stdout
    assert done.stderr.startswith(f"note: skipped {tmp_path}/begun/train.log: no JSON lines of numbers")
    done = run(tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {tmp_path}/begun/train.log: no JSON")
    shutil.copytree(tmp_path / "begun", tmp_path / "also")
    done = run(tmp_path)
    assert done.returncode == 2 and "error: none of these runs has logged numbers yet" in done.stderr


def test_runs_of_several_seeds_are_one_row_unless_each_is_asked_for(
    runs: Path, tmp_path: Path, run: CommandMain
) -> None:
    for seed in (1, 2):
        other = shutil.copytree(runs / "logged", tmp_path / f"run-{seed}")
        log = (other / "train.log").read_text(encoding="utf-8")
        (other / "train.log").write_text(
            re.sub(r"(\bseed'?(: |=))\d+", rf"\g<1>{seed}", log), encoding="utf-8"
        )
    rows = run(tmp_path).stdout.splitlines()[2:-2]
    assert len(rows) == 1 and rows[0].startswith("run (2 seeds) ") and "±" in rows[0]
    each = run(tmp_path, "--each").stdout.splitlines()[2:-1]
    assert [line.split()[0] for line in each] == ["run-1", "run-2"]
