"""``SAVE_DIR/metrics.jsonl``: what training writes there, and how a run that resumes continues it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support import fairseq_train, fork_command, logged, slow, train_args, write_task
from token_data import write_spans

from fairseq_adv.data.run_metrics import read_metrics

ACCURACY = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
# And the best score before, which an additional validation has set.
SPEEDS = {"seconds", "wps", "ups", "train_wall", "best_accuracy"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data"), train=24)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The lines without the first, as any program reads them."""
    text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()[1:]]


def numbers(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """By split and update, of which each pair occurs once."""
    found = {
        (row["split"], row["update"]): {k: v for k, v in row.items() if k not in SPEEDS}
        for row in rows(folder)
    }
    assert len(found) == len(rows(folder))
    return found


@pytest.mark.parametrize("criterion", ["freelb", slow("sentence_prediction")])
def test_every_logged_number_is_there_in_whole_precision(data: Path, tmp_path: Path, criterion: str) -> None:
    """With fairseq's own criterion, too. The log rounds losses to three digits."""
    done = fairseq_train(*train_args(data, tmp_path, criterion, *ACCURACY, "--valid-subset", "valid,train"))
    run = read_metrics(tmp_path)
    assert run.option("criterion", "_name") == criterion and run.option("common", "seed") == 7
    for split, tag in (("train_inner", "train_inner"), ("train_epoch", "train"), ("valid", "valid")):
        shown, found = logged(done, tag), run.of(split)
        if tag == "train":  # two kinds of lines have this name there
            shown = [values for values in shown if "train_gnorm" in values]
        assert [line.update for line in found] == ([*range(1, 13)] if tag == "train_inner" else [6, 12])
        prefix = "" if tag == "train_inner" else f"{tag}_"
        for line, text in zip(found, shown):
            names = {name[len(prefix) :] for name in text if name.startswith(prefix)} - {
                "num_updates",
                "wall",
            }
            assert line.epoch == text["epoch"] and names - {"epoch", "update"} == line.values.keys()
            assert line.values["loss"] == pytest.approx(text[f"{prefix}loss"], abs=5.1e-4)
        assert any(round(line.values["loss"], 3) != line.values["loss"] for line in found)
    assert [line.update for line in run.of("train")] == [6, 12]  # a validation of that name
    seconds = [line.seconds for line in run.lines]
    assert seconds == sorted(seconds) and seconds[0] > 0
    best = torch.load(tmp_path / "checkpoint_best.pt")["optimizer_history"][-1]["num_updates"]
    assert [line.update for line in run.of("checkpoint") if line.values["is_best"]][-1] == best


@pytest.mark.parametrize("workers", [1, slow(2)])
def test_a_run_that_resumes_continues_its_file(data: Path, tmp_path: Path, workers: int) -> None:
    """From the update of its checkpoint, in an epoch or at its end: the lines are those of one run."""
    size = ["--batch-size", "4" if workers == 1 else "2"]
    whole, parts = (
        train_args(data, tmp_path / name, "freelb", *ACCURACY, *size) for name in ("whole", "parts")
    )
    fairseq_train(*whole, workers=workers)
    fairseq_train(*parts, "--max-update", "4", workers=workers)
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as file:
        # A start that was killed after update 5, while it wrote a line: both are made again.
        file.write(
            json.dumps({**rows(tmp_path / "parts")[0], "update": 5, "loss": 99.0}) + '\n{"update": 6, "ep'
        )
    fairseq_train(*parts, workers=workers)
    once, again = numbers(tmp_path / "whole"), numbers(tmp_path / "parts")
    assert ("train_inner", 5) in again and again.keys() - once.keys() == {("valid", 4), ("checkpoint", 4)}
    assert {key: again[key] for key in once if key[0] != "checkpoint"} == {
        key: row for key, row in once.items() if key[0] != "checkpoint"
    }
    assert [row["update"] for row in rows(tmp_path / "parts")] == sorted(key[1] for key in again)
    before = (tmp_path / "parts" / "metrics.jsonl").read_bytes()
    fairseq_train(*parts, workers=workers)  # nothing is left to do
    assert (tmp_path / "parts" / "metrics.jsonl").read_bytes() == before
    for path in (tmp_path / "parts").glob("*.pt"):
        path.unlink()
    fairseq_train(*parts, "--max-update", "1", "--seed", "8", workers=workers)
    run = read_metrics(tmp_path / "parts")
    assert run.updates == 1 and run.option("common", "seed") == 8


def test_a_run_that_starts_from_another_s_checkpoint_keeps_no_lines_of_a_third(
    data: Path, tmp_path: Path
) -> None:
    for name, more in (("a", []), ("b", ["--seed", "8"])):
        fairseq_train(*train_args(data, tmp_path / name, "standard", "--max-epoch", "1", *more))
    (tmp_path / "b" / "checkpoint_last.pt").unlink()
    named = ["--restore-file", str(tmp_path / "a" / "checkpoint_last.pt")]
    fairseq_train(*train_args(data, tmp_path / "b", "standard", "--max-epoch", "2", *named))
    assert {row["epoch"] for row in rows(tmp_path / "b")} == {2}


def test_a_file_that_can_not_be_written_does_not_end_the_run(data: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    done = fairseq_train(*train_args(data, tmp_path, "standard", "--max-update", "2"))
    assert done.stdout.count("metrics.jsonl can't be written (") == 1 and "Traceback" not in done.stderr
    assert (tmp_path / "checkpoint_last.pt").is_file()


def test_a_damaged_file_begins_anew(data: Path, tmp_path: Path) -> None:
    args = train_args(data, tmp_path, "standard")
    fairseq_train(*args, "--max-update", "2")
    text = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(text.replace('"epoch"', '"e"', 1))
    done = fairseq_train(*args, "--max-update", "3")
    assert "metrics.jsonl:2: the key 'epoch' is missing" in done.stdout and "begins anew" in done.stdout
    assert [row["update"] for row in rows(tmp_path)] == [3, 3, 3, 3]


def test_splits_that_a_run_would_leave_out_are_named(tmp_path: Path) -> None:
    data = write_spans(tmp_path / "data", impossible=True)
    shutil.copy(data / "valid.json", data / "valid1.json")
    args = train_args(data, tmp_path / "run", "standard", "--max-epoch", "1", task="span_qa")
    done = fork_command("fairseq-train", *args)
    told = "--valid-subset valid: the data have valid1 too. Pass --valid-subset valid,valid1, or"
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"error: {told}"), done.stderr
