"""Runs are found in folders and by patterns, and those that differ only in the seed become one row."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from test_summaries import valid, write_log

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.find_runs import find_runs, join_seeds, student_t
from fairseq_adv.evaluation.summaries import Summary, summarise, table

OPTIONS = (
    "{{'_name': None, 'common': {{'seed': {seed}, 'log_file': 'out/{seed}/train.log'}}, 'checkpoint': "
    "{{'save_dir': 'out/{seed}', 'best_checkpoint_metric': 'accuracy', "
    "'maximize_best_checkpoint_metric': True}}, 'model': "
    "Namespace(seed={seed}, save_dir='out/{seed}', dropout={dropout}), "
    "'criterion': {{'_name': 'freelb', 'seed': {seed}}}, 'lr_scheduler': {{'lr': [{lr}]}}}}"
)


def write_run(folder: Path, seed: int, score: float, lr: float = 0.1, dropout: float = 0.0) -> Path:
    line = OPTIONS.format(seed=seed, lr=lr, dropout=dropout)
    return write_log(folder, f"2026-11-25 | INFO | {line}", valid(10, accuracy=score, loss_nats=score / 100))


def test_a_folder_and_a_pattern_of_runs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run{k}", k, 80) for k in (1, 2, 10)]
    (tmp_path / "multirun.yaml").write_text("")
    (tmp_path / "empty").mkdir()
    others = [tmp_path / "empty", tmp_path / "multirun.yaml"]
    assert find_runs([tmp_path]) == (runs, others)
    assert find_runs([tmp_path / "*"]) == (runs, others) or sorted(find_runs([tmp_path / "*"])[0]) == sorted(
        runs
    )
    assert find_runs([*runs, *others]) == (runs, others)  # as the shell expands the pattern
    assert find_runs([runs[0], tmp_path])[0] == runs
    for wrong in ("nothing", "none*", "empty"):
        with pytest.raises(DataError, match=f"{tmp_path}/{wrong}".replace("*", r"\*")):
            find_runs([tmp_path / wrong])


def test_seeds_are_joined_and_nothing_else(tmp_path: Path) -> None:
    scores = [80.0, 81.0, 83.0]
    made = [write_run(tmp_path / f"freelb-seed{k}", k, score) for k, score in enumerate(scores, 1)]
    made += [write_run(tmp_path / "lr", 1, 70, lr=0.2), write_run(tmp_path / "dropout", 1, 71, dropout=0.1)]
    made.append(write_log(tmp_path / "unknown", valid(10, accuracy=60)))  # its options are not known
    rows = join_seeds([summarise(run) for run in made])
    assert [row.name for row in rows] == ["freelb (3 seeds)", "lr", "dropout", "unknown"]
    half = 4.302652729911275 * statistics.stdev(scores) / math.sqrt(3)
    assert rows[0].score == statistics.fmean(scores) and rows[0].halves[0] == pytest.approx(half, rel=1e-9)
    assert rows[0].loss == pytest.approx(rows[0].score / 100)
    text = table(rows)
    assert f"81.33 ± {half:.2f}" in text and "Student's t" in text and " 70.00 " in text
    assert "±" not in table(rows[1:])


def test_an_unfinished_run_shows_in_the_row_of_its_seeds(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"freelb-seed{k}", k, 80) for k in (1, 2)]
    with (runs[1] / "train.log").open("a") as log:
        log.write(json.dumps(valid(30, accuracy=90)) + "\n")
    (row,) = join_seeds([summarise(run) for run in runs])
    assert row.name == "freelb (2 seeds, 10 to 30 updates)" and row.updates is None


def test_a_start_that_trained_nothing_changes_no_row(tmp_path: Path) -> None:
    """Such as one that was refused because its options were others: its log has them, too."""
    before = summarise(write_run(tmp_path / "run", 1, 80))
    with (tmp_path / "run" / "train.log").open("a") as log:
        log.write(OPTIONS.format(seed=2, lr=0.2, dropout=0.1).replace("freelb", "pgd") + "\n")
    assert summarise(tmp_path / "run") == before and before.criterion == "freelb"
    with (tmp_path / "run" / "train.log").open("a") as log:
        log.write(json.dumps(valid(20, accuracy=90)) + "\n")
    changed = summarise(tmp_path / "run")
    assert (changed.criterion, changed.seed) == ("pgd", "2")


def test_attacks_of_seeds(tmp_path: Path) -> None:
    rows: list[Any] = [
        Summary(f"{k}", setting="s", score=80 + k, loss=0.5, attacked=[(1.0 + k, 40.0 - k)]) for k in (0, 2)
    ]
    assert len(join_seeds(rows)) == 2  # of one seed: the same run twice
    rows[1].seed = "2"
    (row,) = join_seeds(rows)
    assert row.name == "0, 2 (2 seeds)" and row.attacked == [(2.0, 39.0)]
    assert row.halves == pytest.approx([12.706204736, 0, 12.706204736, 12.706204736])
    rows[1].score = math.nan
    assert math.isnan(join_seeds(rows)[0].score)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 30, 31, 60, 61, 1000, 5001])
def test_students_t_for_any_number_of_seeds(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="an oracle for the intervals")
    t = float(stats.t.ppf(0.975, freedom))
    assert student_t(freedom) == pytest.approx(t, rel=1e-9)
    rows = [Summary(f"{k}", setting="s", seed=f"{k}", score=k % 2) for k in range(freedom + 1)]
    spread = statistics.stdev(row.score for row in rows)
    assert join_seeds(rows)[0].halves[0] == pytest.approx(t * spread / (freedom + 1) ** 0.5, rel=1e-9)
