"""The evidence run: its grid, its data, a run that is stopped and resumed, its records."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evidence_samples import (
    CELLS,
    EVIDENCE,
    ROOT,
    SMALL,
    record_of,
    small_program,
    wait_for,
    write_evidence_data,
    write_small_encoder,
)
from filelock import FileLock
from support import build, handle_interrupts, run_command, slow, start_command

import fill  # isort: skip
import grid  # isort: skip
import measure  # isort: skip
import records as kept  # isort: skip
from grid import GRID, TASKS, Row

from fairseq_adv.criterions import methods
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_folder import class_order
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.evaluation.attack import Attack

SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_evidence_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setitem(GRID, name, value)
    grid.load.cache_clear()


# --- the grid


def test_the_grid_is_that_of_the_page() -> None:
    page, cells = (EVIDENCE / "README.md").read_text(encoding="utf-8"), grid.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    counts = Counter((cell.encoder, cell.rows, cell.method == "pgd") for cell in cells)
    assert list(counts) == [
        ("minilm", 1000, False), ("mpnet", 1000, False), ("minilm", 250, False), ("minilm", 4000, False),
        ("minilm", 1000, True),
    ]  # fmt: skip
    order = page.partition("## Order and cost")[2].partition("\n## ")[0]
    assert [int(count) for count in re.findall(r"\((\d+) cells\)", order)] == list(counts.values())
    one_seed = [(cell.task, cell.method, cell.lr) for cell in cells[:45]]
    rates = [("standard", 1e-4), ("standard", 5e-5), ("standard", 2e-4), ("freelb", 1e-4), ("freelb", 5e-5)]
    assert one_seed == [(task, *rate) for task in TASKS for rate in rates], "the default rate first"
    assert [cell.seed for cell in cells[:360]] == [seed for seed in range(11, 19) for _ in range(45)]
    on_words = [cell for cell in cells if cell.word_attacks]
    assert len(on_words) == 5 * 8 and {cell.bundle[:24] for cell in on_words} == {"movie-reviews-minilm-100"}
    assert GRID["updates"] == {"250": 96, "1000": 192, "4000": 384}
    assert all(class_order(task.labels) == task.labels for task in TASKS.values()), "as the model's"
    pairs = {cell.encoder for cell in cells if "--separator-token" in cell.options()}
    assert pairs == {"mpnet"}, "whose tokenizer puts two tokens between two texts"
    ours, filled = GRID["methods"]["freelb"], methods()["freelb"].suggested_options
    assert TrainOptions(filled.split()).given.items() <= TrainOptions(ours.split()).given.items()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [slow("standard"), "freelb", slow("pgd")])
def test_every_cell_is_a_command_that_fairseq_accepts(
    name: str, worker: fill.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are checked when the criterion is built; a misspelt one ends the parser."""
    monkeypatch.chdir(worker.out)
    cell = grid.Cell("minilm", "CoLA", 40, name, 2e-4, 11)
    rows = grid.load(cell.task, worker.data, worker.out)
    run = build([*worker._training(cell, fill.prepare(cell, rows, worker.out))[1:], "--cpu"])
    assert run.cfg.criterion._name == name and run.cfg.optimization.lr == [2e-4]
    assert run.cfg.common.seed == 11 and run.cfg.common.amp and run.cfg.model.dropout is None


# --- its data


def row(*texts: str, label: str = "0") -> Row:
    return Row(texts, label)


def test_texts_that_are_the_same_stay_together() -> None:
    rows = [
        row("A film.", "one"), row("a film", "ONE!"), row("b", "two"), row("b", "three"), row("three", "c"),
        row("d", "e"), row("d", "f"), row("x", "y", label="0"), row("X", "y?", label="1"),
    ]  # fmt: skip
    found, groups = grid.ordered(rows, grid.texts_of)
    assert len(found) == 6, "one of two equal rows, and none of two with different labels"
    sets = [{found[i].texts for i in np.flatnonzero(groups == group)} for group in range(groups[-1] + 1)]
    assert sorted(map(len, sets)) == [1, 2, 3]
    assert {("b", "two"), ("b", "three"), ("three", "c")} in sets, "also over a third row"
    assert grid.ordered(rows[:1:-1], grid.texts_of)[0] == grid.ordered(rows[2:], grid.texts_of)[0]
    six = [row(text) for text in ("it is one of the best films", "Now is one of the best films, no?",
                                  "is one of the best")]  # fmt: skip
    found, groups = grid.ordered(six, grid.runs_of_six)
    of = dict(zip(found, groups.tolist()))
    assert of[six[0]] == of[six[1]] != of[six[2]], "six words in a row in common; five are too few"


def check_draw(rows: grid.Data, seed: int, size: int) -> Any:
    """No group or text is on two sides; no row that is attacked is drawn. Returns the training rows."""
    (dev, train), attacked = rows.draw(seed, size), GRID["attacked"]
    tested = grid.tested(rows.groups, dev, train)
    assert [len(set(some.tolist())) for some in (dev, train)] == [GRID["dev"], size]
    assert tested[:attacked].tolist() == list(range(attacked)) and len(tested) <= GRID["tested"]
    assert min(*dev, *train) >= attacked
    for kind in (lambda i: {rows.groups[i]}, lambda i: set(grid.texts_of(rows.rows[i]))):
        sides = [set().union(*map(kind, side)) for side in (dev, train, tested)]
        assert sum(map(len, sides)) == len(set().union(*sides)), "on two sides"
    return train


@pytest.mark.usefixtures("small")
def test_no_row_is_on_two_sides(data: Path) -> None:
    """Each seed has a draw of its own, the same on every machine, and a smaller draw begins a larger one."""
    for task in ("movie-reviews", "CoLA"):
        found = grid.load(task, data, data)
        draws = [check_draw(found, seed, 40).tolist() for seed in (1, 2)]
        assert set(draws[0]) != set(draws[1]) and check_draw(found, 1, 10).tolist() == draws[0][:10]
    # Fixed for good: a change would mix records of other rows.
    assert grid.load("CoLA", data, data).draw(1, 40)[1][:5].tolist() == [140, 80, 77, 196, 125]


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
        grid.load.cache_clear()
        with pytest.raises(DataError, match=message):
            grid.load("CoLA", folder, folder)
    path.write_text(lines[0] + "\n")
    (path.parent / "train.tsv").write_text(lines[1] + "\n")
    with pytest.raises(DataError, match="CoLA has 2 rows, too few"):
        grid.load("CoLA", folder, folder)


@pytest.mark.skipif(not SHARED.is_dir(), reason="wants the real files in ../shared/data")
@pytest.mark.parametrize(
    "task", ["TREC", "SNLI", *map(slow, ("MRPC", "QNLI", "Subj", "AG-News", "MNLI", "CoLA"))]
)
def test_the_real_files_are_as_the_page_says(task: str) -> None:
    found, page = grid.load(task, SHARED, SHARED), (EVIDENCE / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {task} \|.*", page, re.M)
    common = set(found.draw(11, 1000)[1].tolist()) & set(found.draw(12, 1000)[1].tolist())
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[3:6] == [str(len(TASKS[task].labels)), f"{len(found.rows):,}", str(len(common))]
    for rows, seed in sorted({(cell.rows, cell.seed) for cell in grid.cells() if cell.task == task}):
        train = check_draw(found, seed, rows)
        assert train[:250].tolist() == found.draw(seed, 250)[1].tolist()
        labels = {found.rows[place].label for place in train}
        assert labels == set(TASKS[task].labels), "a class that no row has can't be learned"


# --- the run

# Leaves numbers as a training does; what behave.sh says comes first.
TRAIN = """#!/bin/sh
for word; do [ "$before" != --save-dir ] || run=$word; before=$word; done
echo "$run $(ls "$run" | grep -c checkpoint)" >>made
touch "$run/checkpoint_last.pt"
[ ! -f behave.sh ] || . ./behave.sh
echo '{"options": {}}
{"update": 10, "epoch": 1, "split": "train_epoch", "seconds": 2.5, "loss": 0.5}' >"$run/metrics.jsonl"
"""
# In place of Python itself, which runs measure.py.
MEASURE = f"""#!{fill.sys.executable}
import json, os, sys, numpy
if os.path.exists("no-measuring"):
    sys.exit("no measuring")
_, _, _, answers = sys.argv
numpy.savez(answers, **{{name: numpy.full((9, 2), -0.7, "float16") for name in ("valid", "test")}})
scores = {{"rows": 9, "accuracy": 55.0, "loss": 0.7}}
print(json.dumps({{"scores": {{"valid": scores, "test": scores}}, "attacked": "01"}}))
"""
ATTACK = """#!/bin/sh
for word; do [ "$before" != --out ] || out=$word; before=$word; done
mkdir -p "$out" && echo '{"queries": 30}'
for status in failed succeeded skipped; do echo "{\\"status\\": \\"$status\\"}"; done >"$out/examples.jsonl"
"""


@pytest.fixture
def out(tmp_path: Path, encoder: Path, data: Path) -> Path:
    """An output folder with the encoder, and beside it the program with a small grid and stand-ins."""
    commands, folder = tmp_path / "bin", tmp_path / "out"
    commands.mkdir()
    for name, text in (("fairseq-train", TRAIN), ("fairseq-adv", ATTACK), ("python", MEASURE)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    text = small_program(encoder, f"fill.COMMANDS = pathlib.Path({str(commands)!r})")
    (tmp_path / "fill.py").write_text(text)
    folder.mkdir()
    (folder / "minilm").symlink_to(encoder)
    (folder / "reviews").symlink_to(data / "reviews")
    return folder


@pytest.fixture
def worker(data: Path, out: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> fill.Worker:
    """In this process, with the stand-ins."""
    monkeypatch.setattr(fill, "COMMANDS", out.parent / "bin")
    given = [str(data), str(out), "--records", str(out.parent / "records")]
    return fill.Worker(fill.parser().parse_args(given))


COLA = grid.Cell("minilm", "CoLA", 40, "standard", 1e-4, 11)


def command(data: Path, out: Path, *more: str) -> list[str]:
    program = [fill.sys.executable, str(out.parent / "fill.py")]
    return [*program, str(data), str(out), "--records", str(out.parent / "records"), *more]


def lines_of(out: Path) -> list[dict[str, Any]]:
    paths = sorted((out.parent / "records").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def made(out: Path) -> list[str]:
    """The trainings begun: the cell, and how many checkpoints it found."""
    return (out / "made").read_text().splitlines()


def cell_of(begun: str) -> str:
    return begun.partition(f"-{GRID['design']}-")[0]


def test_every_cell_is_made_once_and_leaves_one_record(data: Path, out: Path) -> None:
    """By several commands at once, and never again."""
    several = [start_command(command(data, out), text=True) for _ in range(3)]
    for process in several:
        said, errors = process.communicate(timeout=240)
        assert process.returncode == 0, said + errors
    found = lines_of(out)
    assert len(made(out)) == len(set(made(out))) == len(found) == CELLS
    assert sorted(one["name"] for one in found) == sorted(map(cell_of, made(out)))
    record = next(one for one in found if one["name"] == "movie-reviews-minilm-40-11-freelb-0.0001")
    assert record["scores"]["test"] == {"rows": 9, "accuracy": 55.0, "loss": 0.7} and record["lr"] == 1e-4
    assert record["precision"] == "bf16" and record["starts"] == 1 and record["after_cpu_seconds"] > 0
    assert record["word_attacks"]["textfooler"] == {"right": "100"}
    assert {one["task"] for one in found if one["word_attacks"]} == {"movie-reviews"}
    assert str(out) not in json.dumps(found), "a record says nothing of where it was made"
    names = ("valid", "test", "dev_places", "train_places")
    arrays = kept.read_arrays(out.parent / "records" / "movie-reviews" / f"{record['name']}.npz", *names)
    assert [len(array) for array in arrays] == [9, 9, 20, 40]
    assert not list(out.glob("*minilm-*")), "nothing is left"
    again = run_command(*command(data, out))
    assert again.returncode == 0 and len(made(out)) == CELLS
    assert again.stdout.startswith(f"{CELLS} of {CELLS} cells are done")


def test_a_cell_that_another_has_made_or_is_making_is_not_taken(
    worker: fill.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor another one of its bundle."""
    first, second, *_ = (cell for cell in worker.missing() if cell.lr == 5e-5)
    same = replace(first, lr=1e-4)
    taken: list[grid.Cell] = []

    def made_meanwhile() -> list[grid.Cell]:
        """The first is missing only when first asked for."""
        worker.missing = lambda: [same, second]  # type: ignore[method-assign]
        return [first, same, second]

    monkeypatch.setattr(worker, "make", taken.append)
    worker.missing = made_meanwhile  # type: ignore[method-assign]
    assert worker.make_next() and taken == [same]
    worker.missing = made_meanwhile  # type: ignore[method-assign]
    with FileLock(worker.out / "locks" / f"{first.bundle}.lock"):
        assert worker.make_next() and taken == [same, second]


def test_a_bundle_is_not_divided_between_makers_of_processors(
    worker: fill.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By records, and what another maker's has begun is not resumed."""
    machines = "AMD EPYC 7B13, 2 cores", "13th Gen Intel(R) Core(TM) i7", "NVIDIA H200", "arm64, 8 cores"
    assert [*map(grid.maker, machines)] == ["AMD", "Intel", "NVIDIA", "arm64"]
    first, other = grid.cells()[0], grid.cells()[6]
    assert other.seed == 12
    kept.append(record_of(other, machine="Another, 2 cores"), {}, worker.records)
    bundles = [cell.bundle for cell in worker.missing()]
    assert other.bundle not in bundles and bundles.count(first.bundle) == 4
    place = worker.place(first)
    monkeypatch.setattr(fill, "setup", lambda: {**worker.setup, "machine": "Another, 4 cores"})
    given = argparse.Namespace(data=worker.data, out=worker.out, records=worker.records)
    second = fill.Worker(given)
    assert [cell.bundle for cell in second.missing()].count(other.bundle) == 2
    assert second.place(first) != place
    (worker.out / second.place(first)).mkdir()
    worker.make(first)
    assert first.bundle not in {cell.bundle for cell in second.missing()}
    assert not list(worker.out.glob(f"{first.name}-*")), "what the other has begun is deleted"


def test_what_is_attacked_by_words_stays_on_cpus(worker: fill.Worker) -> None:
    assert {cell.task for cell in worker.missing() if cell.word_attacks} == {"movie-reviews"}
    worker.setup["machine"], worker.maker = "NVIDIA H200", "NVIDIA"
    left = worker.missing()
    assert len(left) == CELLS - 6 and not any(cell.word_attacks for cell in left)


def test_a_cell_of_another_design_is_not_resumed(
    worker: fill.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = worker.place(COLA)
    monkeypatch.setitem(GRID, "design", "2027-01-01")
    assert worker.place(COLA) != before


def test_a_cell_whose_measuring_failed_goes_on(worker: fill.Worker) -> None:
    (worker.out / "no-measuring").touch()
    with pytest.raises(DataError, match=rf"{COLA.name}: python ended with status 1; .*\nno measuring"):
        worker.make(COLA)
    (worker.out / "no-measuring").unlink()
    worker.make(COLA)
    (record,) = lines_of(worker.out)
    assert record["starts"] == 2 and made(worker.out) == [f"{worker.place(COLA)} {k}" for k in (0, 1)]


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
    assert {one["name"] for one in lines_of(out) if one["starts"] == 2} == {cell_of(third)}


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.is_file() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["terminated", "failed"])
def test_what_ends_it_ends_its_training(data: Path, out: Path, how: str) -> None:
    end = "exit 3" if how == "failed" else "while :; do sleep 0.1; done"
    told = "trap 'touch told; exit 143' TERM\n"
    (out / "behave.sh").write_text(f"{told}echo $$ >pid.new; mv pid.new pid; {end}\n")
    process = start_command(command(data, out), preexec_fn=handle_interrupts, text=True)
    try:
        wait_for((out / "pid").is_file)
        if how == "terminated":
            process.terminate()
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    wait_for(lambda: not is_alive(int((out / "pid").read_text())), 20)
    if how == "terminated":
        assert process.returncode == 143 and errors.count("stopped") == 1 and (out / "told").is_file()
    else:
        assert process.returncode == 2 and "fairseq-train ended with status 3" in errors
    assert "Traceback" not in errors


def test_a_real_cell(data: Path, encoder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains, measures and attacks with the real commands, in a program of its own."""
    cell = grid.Cell("minilm", "movie-reviews", 40, "freelb", 1e-4, 11)
    more = f"grid.cells = lambda: [grid.{cell}]\nfill.shutil.rmtree = lambda *_, **__: None\n"
    (out.parent / "fill.py").write_text(small_program(encoder, more))
    done = run_command(*command(data, out))
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = lines_of(out)
    folder = out.parent / "records" / cell.task
    arrays = kept.read_arrays(folder / f"{cell.name}.npz", "valid", "test", "dev_places", "train_places")
    groups, labels = kept.read_arrays(folder / "rows.npz", "groups", "labels")
    tested = np.flatnonzero(~np.isin(groups, groups[np.concatenate(arrays[2:])]))[:100]
    for name, found, places in (("valid", arrays[0], arrays[2]), ("test", arrays[1], tested)):
        scores, right = record["scores"][name], labels[places]
        assert 100 * (found.argmax(1) == right).mean() == pytest.approx(scores["accuracy"], abs=1.01)
        of_right = found[np.arange(len(right)), right].astype(float)
        assert -of_right.mean() == pytest.approx(scores["loss"], abs=1e-3) and scores["rows"] == len(right)
    clean = arrays[1][:10].argmax(1) == labels[tested[:10]]
    bits = {name: one["right"] for name, one in record["word_attacks"].items()}
    assert set(bits) == {"deepwordbug", "textfooler"}
    for stays in (record["attacked"], *bits.values()):
        assert len(stays) == 10 and all(was or bit == "0" for was, bit in zip(clean, stays)), "in row order"
    monkeypatch.chdir(out)
    (checkpoint,) = out.glob(f"{cell.name}-*/checkpoint_last.pt")
    check_the_measuring(measure.load(str(checkpoint), None, ["test", "attack"], cpu=True))


def check_the_measuring(ours: Any) -> None:
    """Answers are in the order of the rows; the attack is that of fairseq-adv attack, row by row."""
    rows = {name: ours.task.dataset(name) for name in ("test", "attack")}
    alone = {name: [some.collater([some[i]]) for i in range(10)] for name, some in rows.items()}

    def logits() -> Any:
        return torch.cat([ours.objective.predict(ours.model, one).detach() for one in alone["test"]])

    head = ours.model.hf.classifier  # sharper, since so small a model gives all rows nearly the same answer
    head.bias.data.sub_(logits().median(0).values).mul_(1000)
    head.weight.data.mul_(1000)
    found, _ = measure.predict(ours, "test")
    by_row = logits().log_softmax(1).tolist()
    assert (
        found[:10].tolist() == [pytest.approx(row, abs=1e-3) for row in by_row] and found[:, 0].std() > 0.02
    )
    seen = set()
    for radius, steps in ((0.0015, 10), (0.001, 1), (0.008, 1), (0.008, 2), (0.02, 1)):
        how = Attack(radius, radius / 4, steps, relative=True, loss="margin")
        first, second = (
            [
                measure.attack(ours.model, ours.objective, [one], how).perturbed_correct
                for one in alone["attack"]
            ]
            for how in (how, replace(how, start=radius, seed=1))
        )
        for found, restarts in ((first, 1), ([a and b for a, b in zip(first, second)], 2)):
            stays = "".join("01"[bool(one)] for one in found)
            assert measure.under_attack(ours, radius, steps, restarts) == stays
        seen |= {"mixed"} if 0 < sum(first) < 10 else set()
        seen |= {name for name, one in (("first", first), ("second", second)) if one != found}
    assert seen == {"mixed", "first", "second"}, "both restarts decide"
    measure.head_in_fp32(ours)
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(logits(), logits().bfloat16().float()), "not rounded"


# --- records that are not of this grid


def test_records_of_another_design_precision_or_cell_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "CoLA.jsonl"

    def refused(*found: dict[str, Any]) -> str:
        path.write_text("".join(f"{json.dumps(one)}\n" for one in found))
        with pytest.raises(DataError, match=r"CoLA\.jsonl:\d: ") as error:
            kept.read_records(tmp_path)
        assert "\n" not in str(error.value)
        return str(error.value)

    good, other = (record_of(grid.Cell("minilm", "CoLA", 1000, "freelb", 1e-4, seed)) for seed in (11, 12))
    for folder in ("records-2026-11", "records-2026-11-24/records"):
        old = (EVIDENCE / folder / "movie-reviews.jsonl").read_text().splitlines()[0]
        refused(json.loads(old))
    told = "design, precision, name or options are not those of a cell"
    assert f"CoLA.jsonl:2: {told}" in refused(good, {**other, "precision": "fp32"})
    changes = ({"options": ["--lr", "1"]}, {"method": "none"}, {"lr": 5e-5}, {"seed": 3}, {"rows": 250})
    for changed in (*changes, {"design": "2026-11-24"}):
        assert f"CoLA.jsonl:1: {told}" in refused({**good, **changed})
    assert "the key 'machine' is missing" in refused({key: good[key] for key in good if key != "machine"})
    path.write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'starts': 2})}\n")
    assert kept.read_records(tmp_path) == {good["name"]: good}, "the first counts"
    kept.append({**good, "starts": 3}, {}, tmp_path)
    assert len(path.read_text().splitlines()) == 2, "a cell that has a record gets no other"


@pytest.mark.usefixtures("small")
def test_a_run_does_not_go_on_with_other_records_or_weights(data: Path, out: Path) -> None:
    (out.parent / "records").mkdir()
    path = out.parent / "records" / "CoLA.jsonl"
    path.write_text(json.dumps(record_of(COLA, precision="fp32")) + "\n")
    done = run_command(*command(data, out))
    assert done.returncode == 2 and "CoLA.jsonl:1: design, precision" in done.stderr, done.stderr
    path.unlink()
    program = out.parent / "fill.py"
    program.write_text(program.read_text().replace('"sha256": \'', '"sha256": \'0'))
    done = run_command(*command(data, out))
    assert done.returncode == 2 and "minilm/model.safetensors: its SHA-256 is not that of" in done.stderr
    assert "Traceback" not in done.stderr and not (out / "made").exists()


@pytest.mark.usefixtures("small")
def test_records_of_other_rows_and_damaged_ones(data: Path, tmp_path: Path) -> None:
    found = grid.load("CoLA", data, data)
    kept.keep_rows("CoLA", found, tmp_path)
    kept.keep_rows("CoLA", found, tmp_path)
    with pytest.raises(DataError, match=r"CoLA/rows\.npz: not the rows of CoLA in DATA"):
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


def test_the_plan_goes_by_what_was_spent() -> None:
    """That of cells of their kind: two have taken an hour together, and 358 are left."""
    records = [record_of(cell, cpu_seconds=1700.0, after_cpu_seconds=100.0) for cell in grid.cells()[:2]]
    told = fill.plan({one["name"]: one for one in records}).splitlines()
    assert told[0] == f"2 of {len(grid.cells())} cells are done; left:"
    assert told[1] == "  minilm, 1000 rows: 358 cells, 179.0 hours of one core"
    assert told[-1] == "  minilm, 1000 rows, pgd: 64 cells"


def test_the_readme_has_a_row_for_each_method() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    ours = {name for name, one in methods().items() if one.__module__.startswith("fairseq_adv.")}
    assert set(rows) == ours and len(rows) == len(ours)
