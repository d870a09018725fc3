"""What runs came to, from a real training and from numbers written by hand."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_samples import line, saved, write_run

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import find_runs, sizes, summarise

HOW = Attack(epsilon=0.4, step_size=0.2, steps=2)


def test_a_training_has_everything(runs: Path) -> None:
    found = summarise(runs / "freelb")
    log = (runs / "freelb" / "output.txt").read_text()
    # The same numbers, looked for in fairseq's own log.
    rows = [json.loads(row[row.index("{") :]) for row in log.splitlines() if "| valid | {" in row]
    best = max(rows, key=lambda row: (float(row["valid_accuracy"]), row["epoch"]))
    assert (found.name, found.criterion, found.updates, found.metric) == ("freelb", "freelb", 24, "accuracy")
    assert (found.score, found.epoch) == (float(best["valid_accuracy"]), best["epoch"])
    assert found.loss == pytest.approx(float(best["valid_loss"]) * math.log(2), abs=4e-4)
    assert found.sizes == "steps 3, lr 0.1, max-norm 0.0, init-mag 0.2"
    assert 0 < found.seconds_per_update < 10 and found.seed == "7" and found.split == "valid"


@pytest.mark.parametrize(
    ("lines", "metric", "score", "epoch", "loss"),
    [
        # checkpoint_best.pt is the last that a validation has made the best: of equal scores the last.
        ([line(10, loss_nats=1, accuracy=80), saved(10), line(20, loss_nats=2, accuracy=80), saved(20),
          line(30, loss_nats=3, accuracy=70), saved(30, False)], None, 80, 2, 2),
        # fairseq validates, but saves nothing, at --validate-interval-updates.
        ([line(10, accuracy=86), line(20, accuracy=70), saved(20), line(30, accuracy=90)],
         None, 70, 2, math.nan),
        # Another number than the one by which the checkpoint was chosen, and of the same checkpoint.
        ([line(10, accuracy=90, mcc=1), saved(10), line(20, accuracy=80, mcc=9)], "mcc", 1, 1, math.nan),
        ([line(10, accuracy=9, task_loss=0.5), saved(10)], "task_loss", 0.5 * math.log(2), 1, math.nan),
        # No checkpoint yet; the second split does not count.
        ([line(10, accuracy=80, loss=1), line(20, accuracy=70, loss=2), line(20, "other", accuracy=1)],
         None, 70, 2, 2 * math.log(2)),
        ([line(10, loss=1, accuracy=3)], "pearson", math.nan, 1, math.log(2)),
        ([line(7, "train_inner", epoch=1, loss=1)], None, math.nan, math.nan, math.nan),
        ([], None, math.nan, math.nan, math.nan),
    ],
)  # fmt: skip
def test_the_score_is_that_of_the_best_checkpoint(
    tmp_path: Path, lines: list[Any], metric: str | None, score: float, epoch: float, loss: float
) -> None:
    found = summarise(write_run(tmp_path / "a", *lines), metric)
    assert [found.score, found.epoch, found.loss] == pytest.approx([score, epoch, loss], nan_ok=True)
    assert found.updates == (lines[-1]["update"] if lines else 0)


def test_seconds_are_those_of_whole_epochs(tmp_path: Path) -> None:
    """The last one, of which --max-update left two updates, counts as two."""
    lines = [line(10, "train_epoch", ups=0.5), line(20, "train_epoch"), line(22, "train_epoch", ups=0.25)]
    assert summarise(write_run(tmp_path / "a", *lines)).seconds_per_update == pytest.approx(28 / 12)


def test_a_folder_of_runs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run{k}", line(10, accuracy=80)) for k in (1, 2, 10)]
    (tmp_path / "multirun.yaml").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run3").mkdir()
    (tmp_path / "run3" / "checkpoint_last.pt").touch()  # made before metrics.jsonl: it will be told
    assert find_runs([tmp_path]) == [*runs[:2], tmp_path / "run3", runs[2]]
    assert find_runs([runs[1], tmp_path])[:2] == [runs[1], runs[0]]
    for wrong, why in (("gone", "no such folder"), ("empty", "no run in it"), ("multirun.yaml", "no such")):
        with pytest.raises(DataError, match=f"{tmp_path}/{wrong}: {why}"):
            find_runs([tmp_path / wrong])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"_name": "pgd", "adv_steps": "3", "adv_lr": "0.1", "adv_start_update": "0", "adv_relative": "True"},
         "steps 3, lr 0.1, relative"),
        ({"_name": "freelb", "adv_start_update": "50", "adv_init_mag": "0.0", "adv_norm_type": "l2"},
         "start-update 50, init-mag 0.0"),
        ({"_name": "r3f", "r3f_lambda": "1.0", "r3f_share_dropout": "True"},
         "r3f-lambda 1.0, r3f-share-dropout"),
        ({"flood_level": "auto", "flood_scope": "update"}, "flood-level auto"),
        ({"flood_level": "None", "seed": "1"}, ""),
    ],
)  # fmt: skip
def test_sizes(options: dict[str, str], expected: str) -> None:
    assert sizes(options) == expected


def test_attacks_are_on_the_split_that_was_validated_first(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = summarise(runs / "freelb", attacks=[HOW])
    assert found.score == summarise(runs / "freelb").score and found.attacked[0][0] > found.loss
    folder, splits = shutil.copytree(runs / "freelb", tmp_path / "freelb"), []
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(
        text.replace('"valid_subset": "valid"', '"valid_subset": "dev,valid"')
    )

    def attack(path: str, how: Attack, *, split: str, **_: Any) -> dict[str, float]:
        splits.append(split)
        return {"loss": 0.5, "perturbed_loss": 1.0}  # a regression's

    monkeypatch.setattr("fairseq_adv.evaluation.summaries.attack_checkpoint", attack)
    ((loss, accuracy),) = summarise(folder, attacks=[HOW]).attacked
    assert loss == 1 and math.isnan(accuracy) and splits == ["dev"]
