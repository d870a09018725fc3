"""Runs side by side as text; those that differ only in the seed are one row."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from run_samples import line, write_run

from fairseq_adv.evaluation.comparison import join_seeds, table
from fairseq_adv.evaluation.summaries import Summary, summarise

PLAIN = Summary("plain", "standard", "", 1200, "accuracy", 81.234, 3, 0.4567, seconds_per_update=0.25)
OTHER = Summary("a-long-name", "freelb", "steps 3, lr 0.1", 60, "accuracy", 82.5, 10, 0.4)


def test_what_a_run_does_not_hold_is_a_dash() -> None:
    head, rule, plain, other, empty, note = table([PLAIN, OTHER, Summary("new")]).splitlines()
    assert " ".join(head.split()) == "run criterion updates dev accuracy epoch dev loss s/update sizes"
    assert plain.split() == ["plain", "standard", "1200", "81.23", "3", "0.457", "0.25", "–"]
    assert " ".join(other.split()) == "a-long-name freelb 60 82.50 10 0.400 – steps 3, lr 0.1"
    assert empty.split() == ["new", *"–––––––"]
    assert plain.index("1200") + 4 == other.index("60") + 2  # numbers end below each other
    assert set(rule) == {"-"} and "in nats" in note
    rows = table([PLAIN, Summary("mlm", metric="ppl", score=3.5)]).splitlines()
    assert "dev score" in rows[0] and "81.23 accuracy" in rows[2] and "3.50 ppl" in rows[3]


def test_seeds_are_joined_and_nothing_else(tmp_path: Path) -> None:
    def run(name: str, seed: int, score: float, updates: int = 10, **options: Any) -> Summary:
        folder = tmp_path / name
        own = {"common": {"seed": seed, "log_file": f"{folder}/log"}, "dataset": {"num_workers": seed}}
        places = {**own, "model": {"seed": seed, **options}}
        lines = line(updates, accuracy=score, loss_nats=score / 100)
        return summarise(write_run(folder, lines, **places))

    scores = [80.0, 81.0, 83.0]
    made = [run(f"freelb-seed{seed}", seed, score) for seed, score in enumerate(scores, 1)]
    made += [run("dropout", 1, 71, dropout=0.1), run("other", 2, 70, dropout=0.2)]
    rows = join_seeds(made)
    assert [row.name for row in rows] == ["freelb (3 seeds)", "dropout", "other"]
    half = 4.302652729911275 * statistics.stdev(scores) / math.sqrt(3)
    assert rows[0].score == statistics.fmean(scores) and rows[0].halves[0] == pytest.approx(half, rel=1e-9)
    assert rows[0].loss == pytest.approx(rows[0].score / 100)
    text = table(rows)
    assert f"81.33 ± {half:.2f}" in text and "Student's t" in text and " 70.00 " in text
    assert "±" not in table(rows[1:])
    (row,) = join_seeds([made[0], run("freelb-seed9", 9, 80, updates=30)])  # one is unfinished
    assert row.name == "freelb (2 seeds, 10 to 30 updates)" and row.updates is None
    assert len(join_seeds([made[0], made[0]])) == 2  # of one seed: the same run twice


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("common.seed={},method=freelb", "method=freelb"),
        ("a=1,common.seed={},method=freelb", "a=1,method=freelb"),
        ("a=1,common.seed={}", "a=1"),
        ("out/common.seed={}", "out"),
        ("common.seed={}", "common.seed=1, common.seed=2"),
    ],
)
def test_names_of_joined_jobs_of_hydra(folder: str, name: str) -> None:
    rows = [Summary(folder.format(seed), setting="s", seed=str(seed)) for seed in (1, 2)]
    assert [row.name for row in join_seeds(rows)] == [f"{name} (2 seeds)"]


def test_attacks_of_seeds() -> None:
    rows: list[Any] = [
        Summary(f"{k}", setting="s", seed=f"{k}", score=80 + k, loss=0.5, attacked=[(1.0 + k, 40.0 - k)])
        for k in (0, 2)
    ]
    (row,) = join_seeds(rows)
    assert row.name == "0, 2 (2 seeds)" and row.attacked == [(2.0, 39.0)]
    assert row.halves == pytest.approx([12.706204736, 0, 12.706204736, 12.706204736])
    rows[1].score = math.nan
    assert math.isnan(join_seeds(rows)[0].score)
