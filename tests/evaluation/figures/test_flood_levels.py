"""Scores over flood levels, from logs as fairseq-train writes them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fairseq_adv.evaluation.figures.flood_levels import by_level, levels_csv, levels_table, read_run


def write_run(folder: Path, level: float | None, *scores: float, found: int | None = None) -> Path:
    """The log of a run with these accuracies after its epochs; ``found``: the update after which auto did."""
    flood = {} if level is None else {"flood_level": level}
    flood.update({} if found is None else {"flood_start": found})
    lines = []
    for i, score in enumerate(scores, 1):
        valid = {"loss": 2 - i, "accuracy": score}
        for prefix, values in (("valid", valid), ("train", {"loss": 1, **flood})):
            values["num_updates"] = i
            numbers = {f"{prefix}_{name}": f"{value:g}" for name, value in values.items()}
            lines.append(json.dumps({"epoch": i, **numbers}))
    folder.mkdir()
    (folder / "train.log").write_text("".join(f"{one}\n" for one in lines))
    return folder


def test_the_level_and_the_score_of_a_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", 0.05, 60, 80, 70), "accuracy")
    assert (run.name, run.level, run.is_auto, run.score) == ("a", 0.05, False, 70)
    assert read_run(tmp_path / "a" / "train.log", "accuracy", "best").score == 80
    assert read_run(tmp_path / "a", "loss", "best").score == -1  # of a loss the lowest
    assert read_run(write_run(tmp_path / "b", 0.1, 60), "accuracy").level == 0.1
    plain = read_run(write_run(tmp_path / "c", None, 60), "accuracy")
    assert (plain.level, plain.is_auto) == (0, False)


def test_a_level_that_auto_found_or_not(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", 0.31, 60, found=4), "accuracy")
    assert (run.level, run.is_auto) == (0.31, True)
    run = read_run(write_run(tmp_path / "b", 0, 60, found=0), "accuracy")
    assert (run.level, run.is_auto) == (0, True)


def test_seeds_of_a_level_stand_together_and_auto_runs_alone(tmp_path: Path) -> None:
    made = [
        write_run(tmp_path / "b-1", 0.1, 70), write_run(tmp_path / "b-2", 0.1, 74),
        write_run(tmp_path / "plain", None, 60),
        write_run(tmp_path / "auto-1", 0.2, 66, found=4),
        write_run(tmp_path / "auto-2", 0.2, 67, found=4),
    ]  # fmt: skip
    levels = by_level([read_run(run, "accuracy") for run in made])
    assert [(one.level, one.is_auto, one.scores) for one in levels] == [
        (0, False, (60,)), (0.1, False, (70, 74)), (0.2, True, (66,)), (0.2, True, (67,)),
    ]  # fmt: skip
    rows = list(csv.DictReader(levels_csv(levels, "accuracy", "last").splitlines()))
    assert rows[1] == {
        "flood_level_nats": "0.1", "found_by": "option", "runs": "2", "last_accuracy_mean": "72",
        "lowest": "70", "highest": "74", "names": "b-1 b-2",
    }  # fmt: skip
    assert rows[2]["found_by"] == "auto"
    table = levels_table(levels, "accuracy", "last").splitlines()
    assert table[2].split() == ["0.1", "72", "70", "74", "2"] and table[3].split()[:2] == ["0.2", "auto"]


def test_one_level_alone_is_refused(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", 0.1, 70), write_run(tmp_path / "b", 0.1, 71, found=4)]
    with pytest.raises(ValueError, match=r"two or more flood levels, but these runs have: 0\.1. Pass"):
        by_level([read_run(run, "accuracy") for run in runs])


def test_a_run_that_has_no_score_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "b", 0.1, 60)
    with pytest.raises(
        ValueError, match=r"b/train\.log: no validation metric 'mcc'. Pass --metric with one of accuracy,"
    ):
        read_run(run, "mcc")
    with pytest.raises(ValueError, match=r"c/train\.log: no JSON lines"):
        read_run(write_run(tmp_path / "c", 0.1), "accuracy")
