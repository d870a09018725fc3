"""The evidence run: its data and cells, a run that is stopped and resumed, its records."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_samples import wait_for, write_evidence_data, write_small_encoder
from support import PLUGIN, build, handle_interrupts, run_command, slow, start_command, write_task

from fairseq_adv.cli.train_command import TrainOptions
from fairseq_adv.criterions import methods
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import locked

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "evidence")]
import fill  # noqa: E402
import grid  # noqa: E402
import records as kept  # noqa: E402
import splits  # noqa: E402
from splits import GRID, TASKS, Row  # noqa: E402

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as their owners distribute them, of a tiny encoder's words; the movie reviews in OUT/reviews."""
    return write_evidence_data(tmp_path_factory.mktemp("data"))


def record_of(cell: grid.Cell, dev: float = 50.0, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    """A record of a cell."""
    scores = {"rows": 9, "accuracy": dev, "loss": loss}
    return {
        "name": cell.name, "task": cell.task, "method": cell.method, "setting": cell.setting,
        "seed": cell.seed, "options": cell.options(), "design": GRID["design"], "precision": "bf16",
        "encoder": "0123", "commit": "a", "device": "cpu", "torch": "2", "machine": "a machine", "updates": 6,
        "starts": 1, "cpu_seconds": 10.0, "after_cpu_seconds": 5.0, "peak_mib": 900.0, "attacks": {},
        "word_attacks": {}, "scores": {"valid" if cell.is_choice else "test": scores}, **more,
    }  # fmt: skip


def by_name(*found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found}


# --- the grid


def test_a_setting_is_chosen_by_the_mean_dev_score_of_all_its_seeds() -> None:
    scores = {0: (70, 90, 75), 1: (80, 80, 81), 2: (81, 80, 80), 3: (80, 81, 80)}
    losses = {0: 0.1, 1: 1.2, 2: 1.1, 3: math.inf}  # the last has diverged
    found = [
        record_of(cell, scores[cell.setting][cell.seed - 101], loss=losses[cell.setting])
        for cell in grid.choices("freelb")
    ]
    assert len(found) == 12 and grid.chosen("freelb", by_name(*found[:-1])) == -1, "one is missing"
    assert grid.chosen("freelb", by_name(*found)) == 2, "equal means: the lower loss"
    others = [record_of(cell, dev=cell.setting) for cell in grid.choices("noise")]
    assert len(others) == 4 and grid.chosen("noise", by_name(*others)) == 3


def test_the_grid_is_fair_and_in_order() -> None:
    assert {len(grid.settings(name)) for name in GRID["methods"]} == {4}, "the same budget"
    first = grid.cells({})
    assert [cell.seed for cell in first[:36]] == [101] * 12 + [102] * 12 + [103] * 12
    others = 36 + 4 * len(grid.OTHERS)
    assert {cell.seed for cell in first[36:others]} == {101}, "the others' settings"
    assert {cell.setting for cell in first[others:]} == {-1}, "not chosen yet"
    best = {"standard": 0, "freelb": 1, "pgd": 3}
    found = [
        record_of(cell, 60 + (cell.setting == best.get(cell.method, 2)))
        for name in GRID["methods"]
        for cell in grid.choices(name)
    ]
    cells = grid.cells(by_name(*found))
    assert len({cell.name for cell in cells}) == len(cells)
    primary = cells[others : others + 144]
    assert [(one.task, one.method, one.setting, one.seed) for one in primary[:4]] == [
        ("movie-reviews", "standard", 0, 1), ("movie-reviews", "freelb", 1, 1),
        ("movie-reviews", "pgd", 3, 1), ("CoLA", "standard", 0, 1),
    ]  # fmt: skip
    assert [one.seed for one in primary] == [seed for seed in range(1, 9) for _ in range(18)]
    assert sum(bool(one.word_attacks) for one in cells) == 9
    controls = [one for one in cells if one.is_control]
    assert {(one.method, one.setting) for one in controls} == {("standard", 1), ("standard", 2)}, "1e-4, 2e-4"
    attacked = [one for one in cells if one.radii]
    assert len(attacked) == 72 + 48 and {one.seed for one in attacked} == {1, 2, 3, 4}
    assert sum(one.is_control for one in attacked) == 48 and not any(one.word_attacks for one in controls)
    assert cells[others + 144 : others + 204] == controls, "next, all tasks with five seeds"
    later = [name for name in grid.OTHERS if "tasks" in GRID["methods"][name]]
    found_next = [(one.task, one.method, one.seed) for one in cells[others + 204 : others + 234]]
    assert found_next == [(grid.MOVIES, name, seed) for seed in range(1, 6) for name in later]
    counts = Counter(one.method for one in cells[others + 144 :] if not one.is_control)
    seeds = dict.fromkeys(grid.OTHERS, 10) | {"standard-3x": 8}
    seeds |= dict.fromkeys(later, 5)
    assert counts == seeds
    longer = next(one for one in cells if one.method == "standard-3x").options()
    assert longer[longer.index("--max-update") + 1] == "576"


@pytest.mark.parametrize("name", [name if name == "smart" else slow(name) for name in GRID["methods"]])
def test_every_cell_is_a_command_that_fairseq_accepts(name: str, tmp_path: Path) -> None:
    """Options are checked when the criterion is built; a misspelt one ends the parser."""
    tiny = "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32"
    more = f"{tiny} --encoder-attention-heads 2 --max-positions 16 --cpu --no-save".split()
    options = grid.Cell("CoLA", name, 3, 1).options()
    built = build([str(write_task(tmp_path)), "--user-dir", PLUGIN, *options, *more])
    assert built.cfg.optimization.lr[0] == grid.settings(name)[3][0]


def sizes_in(text: str) -> dict[str, float]:
    given = TrainOptions(text.split()).given
    return {name: float(value) for name, value in given.items() if value.replace(".", "").isdecimal()}


LOWER_RATES = {"pgd": 1e-4}  # at the chosen one, 10 of 48 models failed


@pytest.mark.parametrize("name", [name for name in GRID["methods"] if name in methods()])
def test_train_fills_in_what_was_chosen(name: str) -> None:
    """The sizes, and the learning rate of small encoders, of all methods whose settings have been tried."""
    setting = grid.chosen(name, kept.read_records(kept.RECORDS))
    if setting < 0:
        pytest.skip(f"the settings of {name} have not been tried yet")
    lr, sizes = grid.settings(name)[setting]
    assert sizes_in(methods()[name].train_sizes) == sizes_in(sizes)
    rate = LOWER_RATES.get(name, lr)
    assert float(methods()[name].train_lr or 5e-5) == rate and (rate, sizes) in grid.settings(name)


# --- its data


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TRAINED", 40), ("ATTACKED", 10), ("TESTED", 100)):
        monkeypatch.setattr(splits, name, value)
    for name in ("movie-reviews", "CoLA"):
        monkeypatch.setitem(TASKS, name, replace(TASKS[name], dev=20))
    splits.load.cache_clear()


def row(*texts: str, label: str = "0") -> Row:
    return Row(texts, label)


def test_texts_that_are_the_same_stay_together() -> None:
    rows = [
        row("A film.", "one"), row("a film", "ONE!"), row("b", "two"), row("b", "three"), row("three", "c"),
        row("d", "e"), row("d", "f"), row("x", "y", label="0"), row("X", "y?", label="1"),
    ]  # fmt: skip
    found, groups = splits.ordered(rows, splits.texts_of)
    assert len(found) == 6, "one of two equal rows, and none of two with different labels"
    sets = [{found[i].texts for i in np.flatnonzero(groups == group)} for group in range(groups[-1] + 1)]
    assert sorted(map(len, sets)) == [1, 2, 3]
    assert {("b", "two"), ("b", "three"), ("three", "c")} in sets, "also over a third row"
    assert splits.ordered(rows[:1:-1], splits.texts_of)[0] == splits.ordered(rows[2:], splits.texts_of)[0]
    six = [
        row("it is one of the best films"),
        row("Now is one of the best films, no?"),
        row("is one of the best"),
    ]
    found, groups = splits.ordered(six, splits.runs_of_six)
    of = dict(zip(found, groups.tolist()))
    assert of[six[0]] == of[six[1]] != of[six[2]], "six words in a row in common; five are too few"


@pytest.mark.usefixtures("small")
def test_no_row_is_on_two_sides(data: Path) -> None:
    """Nor is one that shares a text with it; each seed has a draw of its own, the same on every machine."""
    for task in ("movie-reviews", "CoLA"):
        found = splits.load(task, data, data)
        draws = [found.draw(seed) for seed in (1, 2)]
        assert [len(set(draw.tolist())) for draw in draws] == [40, 40]
        assert len(found.dev) == 20 and set(draws[0]) != set(draws[1])
        for draw in draws:
            tested = splits.tested(found.groups, draw)
            assert not set(found.groups[draw]) & set(found.groups[tested])
            assert tested[:10].tolist() == list(range(10)), "the attacked rows are never drawn"
            assert min(draw) >= 10 and 50 < len(tested) <= 100
    # Fixed for good: a change would mix records of other rows.
    assert splits.load("CoLA", data, data).draw(1)[:5].tolist() == [43, 17, 150, 24, 124]


@pytest.mark.usefixtures("small")
def test_mistakes_in_files_are_named(data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    path = folder / "glue" / "CoLA" / "dev.tsv"
    lines = path.read_text().splitlines()
    for wrong, message in (
        ("src\t1\tw1 w2", r"CoLA/dev\.tsv:3: .*3"),
        ("src\t7\t\tw1 w2", r"CoLA/dev\.tsv:3: the label '7' is none of 0, 1"),
    ):
        path.write_text("\n".join([*lines[:2], wrong, *lines[3:]]) + "\n")
        splits.load.cache_clear()
        with pytest.raises(DataError, match=message):
            splits.load("CoLA", folder, folder)
    path.write_text(lines[0] + "\n")
    (path.parent / "train.tsv").write_text(lines[1] + "\n")
    with pytest.raises(DataError, match="CoLA has 2 rows, too few"):
        splits.load("CoLA", folder, folder)


@pytest.mark.skipif(not SHARED.is_dir(), reason="wants the real files in ../shared/data")
@pytest.mark.parametrize(
    ("task", "rows", "dev", "test", "common"),
    [
        ("CoLA", 9512, 1000, 7512, 130), ("MRPC", 5786, 500, 4285, 200), ("QNLI", 14461, 1000, 8000, 85),
        ("SNLI", 18838, 1000, 8000, 62), ("TREC", 5864, 500, 4364, 215),
    ],
)  # fmt: skip
def test_the_real_files_are_as_the_page_says(task: str, rows: int, dev: int, test: int, common: int) -> None:
    found = splits.load(task, SHARED, SHARED)
    draws = [found.draw(seed) for seed in (1, 2)]
    tested = [len(splits.tested(found.groups, draw)) for draw in draws]
    assert abs(tested[0] - test) <= 1 and len(set(draws[0]) & set(draws[1])) == common
    given = {splits.plain(text) for row in found.dev for text in row.texts}
    assert len(found.dev) == dev and not any(
        splits.plain(t) in given for row in found.rows for t in row.texts
    )
    page = (EXAMPLES / "evidence" / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {task} \|.*", page, re.M)
    assert all(f"| {number:,} |" in line.replace("| 1000 |", "| 1,000 |").replace("| 8000 |", "| 8,000 |")
               for number in (rows, dev, test, common))  # fmt: skip


# --- the run

# Leaves a log as fairseq-train's; what behave.sh says comes first.
TRAIN = """#!/bin/sh
for word; do [ "$before" != --save-dir ] || run=$word; before=$word; done
echo "$run $(ls "$run" | grep -c checkpoint)" >>made
touch "$run/checkpoint_last.pt"
[ ! -f behave.sh ] || . ./behave.sh
echo '{"epoch": 1, "train_loss": "0.5", "train_num_updates": "10"}' >"$run/train.log"
"""
# In place of Python itself, which runs measure.py; as many rows as the splits of the data have.
MEASURE = f"""#!{sys.executable}
import json, os, sys, numpy
if os.path.exists("no-measuring"):
    sys.exit("no measuring")
_, _, _, answers, splits, radii, _ = sys.argv
splits = splits.split(",")
numpy.savez(answers, **{{name: numpy.full((9, 1), 0.25, "float16") for name in splits}})
scores = {{name: {{"rows": 9, "accuracy": 55.0, "loss": float("nan")}} for name in splits}}
attacks = {{radius: {{"rows": [25], "right": [20]}} for radius in radii.split(",") if radius}}
print(json.dumps({{"scores": scores, "attacks": attacks}}))
"""
ATTACK = """#!/bin/sh
for word; do [ "$before" != --out ] || out=$word; before=$word; done
mkdir -p "$out" && echo '{"status": "failed"}' >"$out/examples.jsonl" && echo '{"queries": 30}'
"""
SMALL = f"""
import sys
sys.path[:0] = [{str(EXAMPLES)!r}, {str(EXAMPLES / "evidence")!r}]
import splits, dataclasses
splits.TRAINED, splits.ATTACKED, splits.TESTED = 40, 10, 100
splits.GRID.update(updates=6, seeds=2, choosing=[101], radii_seeds=1, word_seeds=1, radii=[0.02],
                   primary=["standard", "freelb"], secondary=[])
splits.GRID["methods"] = {{name: splits.GRID["methods"][name] for name in ("standard", "freelb")}}
kept = {{name: dataclasses.replace(splits.TASKS[name], dev=20) for name in ("movie-reviews", "CoLA")}}
splits.TASKS.clear()
splits.TASKS.update(kept)
import fill, grid, pathlib
"""
CELLS = 2 * 4 + 2 * 2 * 2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_small_encoder(tmp_path_factory.mktemp("encoder"))
    (folder / "conversion.json").write_text('{"source_sha256": {"model": "1"}}')
    return folder


@pytest.fixture
def out(tmp_path: Path, encoder: Path, data: Path) -> Path:
    """An output folder with the encoder, and beside it the program with a small grid and stand-ins."""
    program, commands = tmp_path / "fill.py", tmp_path / "bin"
    commands.mkdir()
    for name, text in (("fairseq-train", TRAIN), ("fairseq-adv", ATTACK), ("python", MEASURE)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    program.write_text(f"{SMALL}\nfill.COMMANDS = pathlib.Path({str(commands)!r})\nsys.exit(fill.main())\n")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "encoder").symlink_to(encoder)
    (folder / "reviews").symlink_to(data / "reviews")
    return folder


@pytest.fixture
def worker(data: Path, out: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> fill.Worker:
    """In this process, with the stand-ins."""
    monkeypatch.setattr(fill, "COMMANDS", out.parent / "bin")
    (out / "cells").mkdir()
    given = [str(data), str(out), "--records", str(out.parent / "records")]
    return fill.Worker(fill.parser().parse_args(given))


CHOICE = grid.Cell("CoLA", "standard", 0, 101)


def command(data: Path, out: Path, *more: str) -> list[str]:
    program = str(out.parent / "fill.py")
    return [sys.executable, program, str(data), str(out), "--records", str(out.parent / "records"), *more]


def lines_of(out: Path) -> list[dict[str, Any]]:
    paths = sorted((out.parent / "records").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def made(out: Path) -> list[str]:
    """The trainings begun: the cell, and how many checkpoints it found."""
    return (out / "made").read_text().splitlines()


def test_every_cell_is_made_once_and_leaves_one_record(data: Path, out: Path) -> None:
    """With several workers, and never again."""
    done = run_command(*command(data, out, "--jobs", "3"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{CELLS} of {CELLS} cells are done") == 1
    found = lines_of(out)
    assert len(made(out)) == len(set(made(out))) == len(found) == CELLS
    assert sorted(one["name"] for one in found) == sorted(line.split()[0] for line in made(out))
    choice, attacked = (next(one for one in found if one["seed"] == seed) for seed in (101, 1))
    assert choice["scores"] == {"valid": {"rows": 9, "accuracy": 55.0, "loss": None}}
    assert choice["precision"] == "bf16" and choice["starts"] == 1 and choice["after_cpu_seconds"] > 0
    movies = next(one for one in found if one["name"] == "movie-reviews-standard-0-1")
    assert attacked["attacks"] == {"0.02": {"rows": [25], "right": [20]}}
    assert movies["word_attacks"]["textfooler"] == {"right": "1", "queries": 30}
    assert set(movies["scores"]) == {"test", "products", "tweets"}
    assert str(out) not in json.dumps(found), "a record says nothing of where it was made"
    folder = out.parent / "records" / "movie-reviews"
    assert len(list(folder.glob("movie*.npz"))) == 4, "none for choices"
    with np.load(folder / "movie-reviews-freelb-0-2.npz") as answers:
        assert set(answers.files) == {"test", "products", "tweets", "draw"} and len(answers["draw"]) == 40
    assert not list(out.glob("movie*")) and not list((out / "cells").iterdir()), "nothing is left behind"
    again = run_command(*command(data, out))
    assert again.returncode == 0 and len(made(out)) == CELLS


def test_a_cell_that_another_has_made_or_is_making_is_not_taken(
    worker: fill.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third, *_ = worker.missing()
    taken: list[grid.Cell] = []

    def made_meanwhile() -> list[grid.Cell]:
        """The first is missing only when first asked for."""
        worker.missing = lambda: [second, third]  # type: ignore[method-assign]
        return [first, second, third]

    monkeypatch.setattr(worker, "missing", made_meanwhile)
    monkeypatch.setattr(worker, "make", taken.append)
    with locked(worker.out / "cells" / second.name):
        assert worker.make_next() and taken == [third]


def test_training_that_has_ended_is_not_repeated(worker: fill.Worker) -> None:
    """What is measured on it may have begun: a checkpoint that is saved again would be another one."""
    (worker.out / "no-measuring").touch()
    with pytest.raises(DataError, match=r"CoLA-standard-0-101: python ended with status 1; .*\nno measuring"):
        worker.make(CHOICE)
    costs = json.loads((worker.out / CHOICE.name / "trained.json").read_text())
    assert costs["peak_mib"] > 0 and costs["wall_seconds"] >= 0
    (worker.out / "no-measuring").unlink()
    worker.make(CHOICE)
    (record,) = lines_of(worker.out)
    assert record["starts"] == 2 and record["cpu_seconds"] == costs["cpu_seconds"]
    assert made(worker.out) == [f"{CHOICE.name} 0"]


def test_a_cell_of_other_options_begins_anew(worker: fill.Worker) -> None:
    folder = worker.out / CHOICE.name
    folder.mkdir()
    (folder / "starts.jsonl").write_text('["fairseq-train", "--lr", "1"]\n')
    (folder / "checkpoint_last.pt").touch()
    worker.make(CHOICE)
    assert made(worker.out) == [f"{CHOICE.name} 0"] and lines_of(worker.out)[0]["starts"] == 1


@pytest.mark.timing
def test_a_killed_run_resumes_its_cell_and_repeats_nothing(data: Path, out: Path) -> None:
    """kill -9 in the third cell, which also ends its training."""
    (out / "behave.sh").write_text(
        "[ $(wc -l <made) != 3 ] || { echo $$ >pid.new; mv pid.new pid; exec sleep 600; }\n"
    )
    process = start_command(command(data, out), preexec_fn=handle_interrupts)
    try:
        wait_for((out / "pid").is_file)
    finally:
        process.kill()
        process.wait()
    training = int((out / "pid").read_text())
    if fill.ENDS_WITH_US:
        wait_for(lambda: not is_alive(training))
    else:
        os.killpg(training, signal.SIGKILL)
    assert len(lines_of(out)) == 2
    (out / "behave.sh").unlink()
    done = run_command(*command(data, out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(made(out)).most_common(1)[0][1] == 1 and len(made(out)) == CELLS + 1
    third = made(out)[2].split()[0]
    assert made(out)[3] == f"{third} 1", "the checkpoint of the first start is there"
    assert {one["name"] for one in lines_of(out) if one["starts"] == 2} == {third}


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.is_file() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["terminated", "failed"])
def test_what_ends_it_ends_its_workers_and_their_children(data: Path, out: Path, how: str) -> None:
    (out / "behave.sh").write_text(
        "sleep 600 & echo $! >$run/pid\n"
        "while [ $(ls */pid | wc -l) != 2 ]; do sleep 0.1; done; ls */pid >pids.new; mv pids.new pids\n"
        f"{'[ $run != *-101 ] || exit 3' if how == 'failed' else ''}\nwait\n"
    )
    process = start_command(command(data, out, "--jobs", "2"), preexec_fn=handle_interrupts, text=True)
    try:
        wait_for((out / "pids").is_file)
        pids = [int((out / name).read_text()) for name in (out / "pids").read_text().split()]
        if how == "terminated":
            process.terminate()
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    wait_for(lambda: not any(map(is_alive, pids)), 20)
    if how == "terminated":
        assert process.returncode == 143 and errors == "stopped; run the same command again to resume\n"
    else:
        assert process.returncode == 2 and "fairseq-train ended with status 3" in errors
        assert "Traceback" not in errors


@pytest.mark.slow
def test_it_stops_after_its_minutes(worker: fill.Worker, data: Path, out: Path) -> None:
    """In the middle of a command, and before a cell."""
    (out / "behave.sh").write_text("sleep 600 & echo $! >pid; wait\n")
    worker.end = time.monotonic() + 1
    with pytest.raises(fill.TimeIsUp):
        worker.make(CHOICE)
    assert not (out / "pid").is_file() or not is_alive(int((out / "pid").read_text()))
    assert not worker.make_next() and len(made(out)) <= 1
    program = out.parent / "fill.py"
    program.write_text(program.read_text().replace("sys.exit(", "fill.MINUTE = 0\nsys.exit("))
    done = run_command(*command(data, out, "--jobs", "2", "--stop-after", "1"))
    assert done.returncode == 0 and f"0 of {CELLS} cells" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_missing_data_are_named(tmp_path: Path) -> None:
    done = run_command(str(EXAMPLES / "evidence" / "run.sh"), "nowhere", str(tmp_path / "out"))
    assert done.returncode == 2 and "nowhere/attack/counterfitted_neighbors.json: no such file" in done.stderr


@pytest.mark.slow
def test_the_project_s_own_command_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By which the encoder and the reviews are fetched."""
    fill.run_verb("user-dir")
    assert capfd.readouterr().out == f"{PLUGIN}\n"
    with pytest.raises(DataError, match="fairseq-adv convert failed: see above"):
        fill.run_verb("convert", tmp_path / "gone", tmp_path / "out")
    assert f"error: {tmp_path}/gone" in capfd.readouterr().err


def test_a_real_cell(data: Path, out: Path) -> None:
    """Trains, measures and attacks with the real commands; the answers kept give the scores of the record."""
    program = out.parent / "fill.py"
    program.write_text(
        SMALL + "cell = grid.Cell('movie-reviews', 'freelb', 0, 1)\n"
        "grid.cells = lambda records: [cell]\n"
        "sys.exit(fill.main())\n"
    )
    done = run_command(*command(data, out))
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = lines_of(out)
    assert record["updates"] == 6 and record["scores"]["test"]["rows"] == 100
    folder = out.parent / "records" / "movie-reviews"
    draw, test, products = kept.read_arrays(folder / f"{record['name']}.npz", "draw", "test", "products")
    groups, labels, others = kept.read_arrays(folder / "rows.npz", "groups", "labels", "products")
    right = (test[:, 0] < 0.5) == labels[splits_tested(groups, draw)]
    assert 100 * right.mean() == pytest.approx(record["scores"]["test"]["accuracy"], abs=1.01)
    assert len(products) == len(others) == record["scores"]["products"]["rows"]
    attack = record["attacks"]["0.02"]
    assert attack["rows"] == [10] and 0 <= attack["right"][0] <= round(right[:10].sum())
    assert set(record["word_attacks"]) == {"deepwordbug", "textfooler"}
    assert all(len(one["right"]) == 10 and one["queries"] > 2 for one in record["word_attacks"].values())


def splits_tested(groups: Any, draw: Any) -> Any:
    return np.flatnonzero(~np.isin(groups, groups[draw]))[:100]


# --- records that are not of this grid


def refused(tmp_path: Path, *found: dict[str, Any]) -> str:
    folder = tmp_path / "records"
    folder.mkdir(exist_ok=True)
    (folder / "CoLA.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in found))
    with pytest.raises(DataError, match=r"CoLA\.jsonl:\d: ") as error:
        kept.read_records(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_records_of_another_design_precision_or_encoder_are_refused(tmp_path: Path) -> None:
    good, other = (record_of(grid.Cell("CoLA", "pgd", 1, seed)) for seed in (1, 2))
    old = (EXAMPLES / "evidence" / "records-2026-11" / "movie-reviews.jsonl").read_text().splitlines()[0]
    assert "CoLA.jsonl:1: design None, not '2026-11-24'. Keep" in refused(tmp_path, json.loads(old))
    for key in ("precision", "encoder"):
        assert f"CoLA.jsonl:2: {key} 'x', not " in refused(tmp_path, good, {**other, key: "x"})
    for changed in ({"options": ["--lr", "1"]}, {"method": "none"}, {"setting": 4}, {"seed": 3}):
        assert "CoLA.jsonl:1: name and options are not those" in refused(tmp_path, {**good, **changed})
    (tmp_path / "records" / "CoLA.jsonl").write_text(
        f"{json.dumps(good)}\n{json.dumps({**good, 'starts': 2})}\n"
    )
    assert kept.read_records(tmp_path / "records") == {good["name"]: good}, "the first counts"
    good["scores"]["test"]["loss"] = None
    (tmp_path / "records" / "CoLA.jsonl").write_text(json.dumps(good) + "\n")
    (found,) = kept.read_records(tmp_path / "records").values()
    assert found["scores"]["test"] == {"rows": 9, "accuracy": 50.0, "loss": math.inf}, "NaN"


def test_a_run_does_not_go_on_with_others_records(data: Path, out: Path) -> None:
    (out.parent / "records").mkdir()
    record = record_of(grid.Cell("CoLA", "pgd", 1, 1))
    (out.parent / "records" / "CoLA.jsonl").write_text(json.dumps(record) + "\n")
    done = run_command(*command(data, out))
    assert done.returncode == 2 and "encoder '0123', not '" in done.stderr and "Traceback" not in done.stderr
    record["encoder"] = fill.setup(fill.parser().parse_args([str(data), str(out)]))["encoder"]
    (out.parent / "records" / "CoLA.jsonl").write_text(json.dumps(record) + "\n")
    done = run_command(*command(data, out, "--precision", "fp32"))
    assert done.returncode == 2 and "precision 'bf16', not 'fp32'" in done.stderr
    assert not (out / "made").exists()


@pytest.mark.usefixtures("small")
def test_records_of_other_rows_and_damaged_ones(data: Path, tmp_path: Path) -> None:
    found = splits.load("CoLA", data, data)
    kept.keep_rows("CoLA", found, tmp_path)
    kept.keep_rows("CoLA", found, tmp_path)
    with pytest.raises(DataError, match=r"CoLA/rows\.npz: other rows of CoLA than DATA's"):
        kept.keep_rows("CoLA", replace(found, rows=found.rows[1:]), tmp_path)
    path = tmp_path / "CoLA" / "a.npz"
    np.savez_compressed(path, test=np.arange(1000))
    torn = bytearray(path.read_bytes())
    torn[100:200] = bytes(100)
    path.unlink()
    rows = (tmp_path / "CoLA" / "rows.npz").read_bytes()
    for content in (None, b"", b"PK\x03\x04 and more", rows, bytes(torn)):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.npz: missing or damaged .* Restore it") as error:
            kept.read_arrays(path, "test")
        assert "\n" not in str(error.value)


def test_the_plan_goes_by_what_was_spent(tmp_path: Path) -> None:
    first, *_ = grid.cells({})
    slow = record_of(first, cpu_seconds=4 * first.seconds(), after_cpu_seconds=0.0)
    hours = [
        float(re.search(r"primary: \d+ cells, ([\d.]+)", fill.plan(found))[1])  # type: ignore[index]
        for found in ({}, {slow["name"]: slow})
    ]
    assert hours[1] == pytest.approx(4 * hours[0], rel=0.02)
    total = len(grid.cells({}))
    assert fill.plan({}).startswith(f"0 of {total} cells are done, in 0.0 hours of one core; left:")


def test_the_readme_has_a_row_for_each_method() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    ours = {name for name, one in methods().items() if one.__module__.startswith("fairseq_adv.")}
    assert set(rows) == ours and len(rows) == len(ours)
