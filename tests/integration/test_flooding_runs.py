"""Flooding in whole runs: any spread of a batch, a probe that changes nothing, a level kept over kill -9."""

from __future__ import annotations

import gc
import logging
import re
import subprocess
from pathlib import Path

import pytest
import torch
from support import ADVERSARIAL, batch, build, fairseq_train, logged, slow, train_args, weights, write_task
from token_data import write_tags

from integration.test_equal_updates import SGD, assert_close, start_and_kill

DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]
PROBE = ["--accordance-interval", "4", "--accordance-batches", "4", "--accordance-batch-size", "8"]


def run(data: Path, save: Path, method: str, *words: str, workers: int = 1) -> dict[str, torch.Tensor]:
    args = train_args(data, save, method, "--no-epoch-checkpoints", *words)
    fairseq_train(*args, workers=workers)
    return weights(save / "checkpoint_last.pt")


def measured_in(done: subprocess.CompletedProcess[str]) -> list[dict[str, float]]:
    """The json line of each measurement: that of the update after which it was made."""
    inner = logged(done, "train_inner")
    return [line for line in inner if line.get("accordance_update") == line["num_updates"]]


@pytest.mark.parametrize(
    ("base", "level"),
    [slow("standard", "0.7"), slow("flooding", "0.9"), slow("freelb", "0.8"), slow("yopo", "0.8")],
)
def test_whole_equals_update_freq_equals_two_processes(tmp_path: Path, base: str, level: str) -> None:
    """Updates on both sides of b, some with micro-batches on both sides.

    An update is an epoch, since fairseq puts other rows together when its batches have another size.
    """
    data = write_task(tmp_path / "data")
    words = [
        *SGD, "--max-epoch", "4", "--flood-level", level,
        *(ADVERSARIAL if base in ("freelb", "yopo") else []),
    ]  # fmt: skip
    args = train_args(data, tmp_path / "whole", base, *words, "--no-epoch-checkpoints")
    updates = logged(fairseq_train(*args, "--batch-size", "16"), "train_inner")
    assert {line["flooded"] for line in updates} == {0.0, 1.0}
    whole = weights(tmp_path / "whole" / "checkpoint_last.pt")
    parts = run(data, tmp_path / "parts", base, *words, "--batch-size", "4", "--update-freq", "4")
    workers = run(data, tmp_path / "workers", base, *words, "--batch-size", "8", workers=2)
    assert_close(parts, whole, atol=3e-6)
    assert_close(workers, whole, atol=3e-6)


@pytest.mark.parametrize(
    "dropout", [slow([]), slow(["--accordance-dropout"])], ids=["probe-without-dropout", "with"]
)
def test_probing_changes_nothing(tmp_path: Path, dropout: list[str]) -> None:
    """52 updates with dropout and Adam: weights and logged losses are those of plain training, to the bit."""
    data = write_task(tmp_path / "data", train=52)
    words = [*DROPOUT, "--lr", "0.001", "--max-epoch", "4", "--no-epoch-checkpoints"]
    level = ["--flood-level", "0"]
    done = [
        fairseq_train(*train_args(data, tmp_path / name, criterion, *words, *extra))
        for name, criterion, extra in (
            ("plain", "standard", []),
            ("probed", "flooding", [*level, *PROBE, *dropout]),
        )
    ]
    plain, probed = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("plain", "probed"))
    assert all(torch.equal(probed[name], plain[name]) for name in plain)
    losses = [[line["loss"] for line in logged(text, "train_inner")] for text in done]
    assert losses[0] == losses[1] and len(losses[0]) == 52
    assert [line["num_updates"] for line in measured_in(done[1])] == list(range(4, 53, 4))
    assert not measured_in(done[0])


def test_a_measurement_is_logged_with_the_loss_since_the_one_before(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", train=52)
    words = ["--max-epoch", "1", "--flood-level", "0", *PROBE]
    done = fairseq_train(*train_args(data, None, "flooding", *words))
    inner = [line["loss_nats"] for line in logged(done, "train_inner")]
    measured = measured_in(done)
    assert [line["accordance_measurements"] for line in measured] == [1, 2, 3]
    for line in measured:
        assert all(-1 <= line[f"accordance_{group}"] <= 1 for group in ("all", "encoder", "head"))
        update = int(line["num_updates"])
        mean = sum(inner[update - 4 : update]) / 4  # batches of one size: the mean over the sub-epoch
        assert line["accordance_loss_nats"] == pytest.approx(mean, abs=2e-6)


@pytest.mark.slow  # the default lane: accordance/test_accordance_workers.py
def test_two_workers_measure_what_one_does(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data")
    words = [*SGD, "--max-epoch", "6", "--flood-level", "0", *PROBE, "--accordance-interval", "2"]
    args = train_args(data, None, "flooding", *words, "--accordance-batch-size", "4")
    one = measured_in(fairseq_train(*args, "--batch-size", "16"))
    two = measured_in(fairseq_train(*args, "--batch-size", "8", workers=2))
    assert [line["num_updates"] for line in one] == [line["num_updates"] for line in two] == [2, 4, 6]
    for ours, expected in zip(two, one):
        for group in ("all", "encoder", "head"):
            assert ours[f"accordance_{group}"] == pytest.approx(expected[f"accordance_{group}"], abs=1e-4)
        assert ours["accordance_loss_nats"] == pytest.approx(expected["accordance_loss_nats"], abs=1e-5)


@pytest.mark.parametrize("task", [slow("sentence_prediction"), "tagging"])
def test_a_run_without_a_crossing_floods_nothing_and_says_so_at_its_end(tmp_path: Path, task: str) -> None:
    data = {"sentence_prediction": write_task, "tagging": write_tags}[task](tmp_path / "data", train=52)
    words = ["--max-epoch", "1", "--flood-level", "auto", *PROBE, "--lr", "0"]
    done = fairseq_train(*train_args(data, None, "flooding", *words, task=task))
    inner = logged(done, "train_inner")
    assert all(line["flooded"] == line["flood_level"] == line["flood_start"] == 0 for line in inner)
    text = done.stdout + done.stderr
    said = re.search(r"nothing was flooded: up to update 13, in 3 measurements, .*\(all\) .*\(up\)", text)
    assert "the first measurement was already above zero" not in text
    assert said and said.start() > text.index("done training")


def test_it_is_said_once_also_where_the_program_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["--flood-level", "auto", *PROBE]
    run = build(train_args(write_task(tmp_path / "data"), None, "flooding", *words))
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    run.criterion.flood.level.measured(1, 0.25)
    with caplog.at_level(logging.INFO):
        del run
        gc.collect()
    assert caplog.text.count("nothing was flooded: up to update 1, in 1 measurements") == 1
    assert "the first measurement was already above zero" in caplog.text


def announcements(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the person at the console reads when flooding starts."""
    return re.findall(r"flooding starts .*", done.stdout)


@pytest.mark.parametrize(
    ("workers", "how"), [(1, "killed"), slow(2, "killed"), slow(1, "stopped"), slow(2, "stopped")]
)
@pytest.mark.timing
def test_a_level_is_found_announced_and_kept_over_restarts(tmp_path: Path, workers: int, how: str) -> None:
    """Killed before the crossing in the middle of a sub-epoch; stopped at the end of an epoch after it."""
    data = write_task(tmp_path / "data", train=64)
    words = [
        *DROPOUT, *PROBE, "--flood-level", "auto", "--max-epoch", "5", "--batch-size", str(4 // workers),
        "--no-epoch-checkpoints", "--save-interval-updates", "3", "--keep-interval-updates", "1",
    ]  # fmt: skip
    straight = fairseq_train(*train_args(data, tmp_path / "straight", "flooding", *words), workers=workers)
    (said,) = announcements(straight)
    inner = {line["num_updates"]: line for line in logged(straight, "train_inner")}
    at, level = int(inner[80]["flood_start"]), inner[80]["flood_level"]
    assert f"after update {at}: " in said and f" {level:g} nats" in said
    measured = {line["num_updates"]: line for line in measured_in(straight)}
    assert measured[at - 4]["accordance_all"] < 0 <= measured[at]["accordance_all"]
    assert measured[at]["accordance_loss_nats"] == level
    assert all(line["flood_level"] == (level if update > at else 0) for update, line in inner.items())
    assert any(line["flooded"] for line in inner.values()) and len(inner) == 80
    expected = weights(tmp_path / "straight" / "checkpoint_last.pt")

    args = train_args(data, tmp_path / how, "flooding", *words)
    if how == "killed":
        start_and_kill(args, workers, after_update=at - 11, before=at)
    else:  # at the end of an epoch fairseq drops the meters
        fairseq_train(*args, "--max-epoch", str(-(-at // 16)), workers=workers)
    resumed = fairseq_train(*args, workers=workers)
    assert announcements(resumed) == ([said] if how == "killed" else [])
    last = logged(resumed, "train_inner")[-1]
    assert (last["flood_level"], last["flood_start"]) == (level, at)
    ended = weights(tmp_path / how / "checkpoint_last.pt")
    assert all(torch.equal(ended[key], expected[key]) for key in expected)
