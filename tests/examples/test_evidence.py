"""The evidence run: its grid and data, a run that is stopped and resumed, and its tables."""

from __future__ import annotations

import json
import math
import re
import sys
from argparse import Namespace
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary, indexed_dataset
from small_runs import table_rows, wait_for, write_evidence_data, write_glue, write_small_encoder
from support import handle_interrupts, run_command, start_command

from fairseq_adv_cli.names import CRITERIONS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "evidence")]
import fill  # noqa: E402
import grid  # noqa: E402
import intervals  # noqa: E402
import overview  # noqa: E402
import results  # noqa: E402
import sources  # noqa: E402
import word_attacks  # noqa: E402
from cells import Cells  # noqa: E402
from figures import ATTACKS, SCORES, WORDS, draw, look  # noqa: E402

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as their owners distribute them, of a tiny encoder's words."""
    return write_evidence_data(tmp_path_factory.mktemp("data"))


# --- the grid


def fake(run: Any, dev: float, loss: float = 1.0, test: float = 50.0) -> dict[str, Any]:
    """A record of a cell."""
    metric = grid.TASKS[run.labels["task"]].metric
    attacks = {f"attack-{radius:g}": {"accuracy": test, "perturbed_accuracy": test - 100 * radius}
               for radius in grid.RADII}  # fmt: skip
    return {
        "name": run.name, "labels": dict(run.labels), "seed": run.seed, "options": list(run.options),
        "valid": [{metric: dev, "loss": loss}], "train": [{"loss": 0.5}], "starts": 1, "device": "cpu",
        "test": {metric: test, "loss": 1 / math.log(2)}, "attacks": attacks, "cpu_seconds": 7.0,
        "peak_mib": 900.0, "machine": "a machine", "torch": "2.0", "word_attacks": {},
    }  # fmt: skip


def test_a_candidate_is_chosen_by_the_dev_split_alone() -> None:
    task, method = grid.TASKS["movie-reviews"], grid.METHODS["freelb"]
    runs = grid.choices(task, method)
    records = [fake(runs[0], 70), fake(runs[1], 80, 1.0, test=0), fake(runs[2], 80, 1.2, test=99)]
    assert grid.chosen(task, method, records) is None, "one is missing"
    assert grid.chosen(task, method, [*records, fake(runs[3], 60, test=100)]) == 1, "equal scores: lower loss"


def test_the_grid_is_fair_and_in_order() -> None:
    task = grid.TASKS["movie-reviews"]
    assert {len(method.candidates) for method in grid.METHODS.values()} == {4}, "the same budget"
    first = grid.whole_grid([])
    assert first[0].name == "movie-reviews-1000-standard-choice0" and all(run.seed == 0 for run in first)
    known = [run for name in grid.FIRST for run in grid.choices(task, grid.METHODS[name])]
    runs = [run for run in grid.whole_grid([fake(run, 50) for run in known]) if run.seed]
    assert [(run.labels["method"], run.seed) for run in runs[:12]] == [
        *((name, seed) for name in ("standard", "freelb") for seed in (1, 2, 3)),  # attacked with words
        *(("standard-3x", seed) for seed in (1, 2, 3)),
        *((name, 4) for name in ("standard", "freelb", "standard-3x")),
    ]
    assert [grid.has_word_attacks(run) for run in runs[:12]] == [True] * 6 + [False] * 6
    assert [run.labels["rows"] for run in runs[::15]] == ["1000", "250", "4000"]
    updates = {run.labels["method"]: run.options[run.options.index("--max-update") + 1] for run in runs[:7]}
    assert updates == {"standard": "192", "freelb": "192", "standard-3x": "576"}
    assert len({run.name for run in runs}) == len(runs) == 45


@pytest.mark.parametrize("name", list(grid.METHODS))
def test_every_cell_is_a_command_that_fairseq_accepts(name: str, tmp_path: Path) -> None:
    """Options are checked when the criterion is built."""
    from support import PLUGIN, build, write_task

    for number in (0, 3):
        run = grid.candidate(grid.TASKS["CoLA"], 8551, grid.METHODS[name], number, 1)
        tiny = "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32"
        more = f"{tiny} --encoder-attention-heads 2 --max-positions 16 --cpu --no-save".split()
        folder = write_task(tmp_path / str(number))
        built = build([str(folder), "--user-dir", PLUGIN, *run.options, *more])
        wanted = dict(zip(run.options[::1], run.options[1::1]))
        assert float(wanted["--lr"]) == built.cfg.optimization.lr[0]


# --- its data


def read(folder: Path, split: str) -> list[tuple[str, str]]:
    """Texts and labels of a binarised split."""
    parts = []
    for part in ("input0", "label"):
        words_of = Dictionary.load(str(folder / part / "dict.txt"))
        rows = indexed_dataset.make_dataset(str(folder / part / split), "mmap")
        parts.append([words_of.string(row) for row in rows])
    return list(zip(*parts))


@pytest.mark.usefixtures("warm_python")
def test_the_splits_of_a_task(data: Path, tmp_path: Path) -> None:
    write_small_encoder(tmp_path / "encoder")
    for rows in (100, 40):
        sources.prepare(data, tmp_path, "movie-reviews", rows)
    large, small = (tmp_path / "data" / f"movie-reviews-{rows}" for rows in (100, 40))
    splits = {split: read(large, split) for split in ("train", "valid", "test", "attack")}
    assert len(splits["train"]) == 100 and splits["train"][:40] == read(small, "train"), "nested"
    assert splits["attack"] == splits["test"][:200] and 10 < len(splits["test"]) < 60
    assert not set(splits["train"]) & set(splits["valid"]) and not set(splits["valid"]) & set(splits["test"])
    lines = (data / "sentence" / "rt-polarity.all").read_text().splitlines()
    labels = {line[1:].strip(): line[0] for line in lines}
    assert all(labels[text] == label for text, label in splits["train"])

    sources.prepare(data, tmp_path, "CoLA", 200)
    folder = tmp_path / "data" / "CoLA-200"
    train, valid, test = (read(folder, split) for split in ("train", "valid", "test"))
    assert [len(train), len(valid), len(test)] == [200, 10, 10] and not set(valid) & set(test)
    with pytest.raises(ValueError, match="MRPC has 200 rows for training, not 300"):
        sources.prepare(data, tmp_path, "MRPC", 300)
    assert not (tmp_path / "data" / "MRPC-300").exists()


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "some.all").write_text("1 good .\n2 bad\n")
    with pytest.raises(ValueError, match=r"some\.all:2: not '0 TEXT' or '1 TEXT'"):
        sources.movie_reviews(tmp_path / "some.all")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"1\t7\t7\tw1 w2", r"data/glue/MRPC/dev\.tsv:4: 4 column\(s\) instead of 5"),
        ("1\t7\t7\tcaf\xe9\tw1".encode("latin-1"), r"data/glue/MRPC/dev\.tsv:4: not UTF-8"),
    ],
)
def test_a_mistake_is_named_in_the_users_own_file(tmp_path: Path, row: bytes, message: str) -> None:
    write_glue(tmp_path / "data" / "glue", "MRPC")
    path = tmp_path / "data" / "glue" / "MRPC" / "dev.tsv"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], row, *lines[4:]]))
    with pytest.raises(ValueError, match=message):
        sources.prepare(tmp_path / "data", tmp_path / "out", "MRPC", 100)
    options = Namespace(data=tmp_path / "data", out=tmp_path / "out", encoder="encoder")
    with pytest.raises(ValueError, match=message):
        sources.small.prepare_glue(options, "MRPC", 100)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not SHARED.is_dir(), reason="wants the real files in ../shared/data")
def test_the_real_files_are_large_enough() -> None:
    reviews = sources.movie_reviews(SHARED / "sentence" / "rt-polarity.all")
    assert {split: len(rows) for split, rows in reviews.items()} == {
        "train": 8610, "valid": 991, "test": 1061,
    }  # fmt: skip
    texts = {split: {text for text, _ in rows} for split, rows in reviews.items()}
    assert not texts["train"] & (texts["valid"] | texts["test"]) and not texts["valid"] & texts["test"]
    for task, has_head in (("CoLA", False), ("MRPC", True)):
        _, parts = sources.glue(SHARED / "glue" / task, has_head)
        assert len(parts["train"]) == max(grid.TASKS[task].updates)
        assert abs(len(parts["valid"]) - len(parts["test"])) <= 1


# --- the run

# Leaves a log as fairseq-train's; what behave.sh says comes first.
TRAIN = """#!/bin/sh
for word; do [ "$before" != --save-dir ] || run=$word; before=$word; done
echo "$run $(ls "$run" | grep -c checkpoint)" >>made
touch "$run/checkpoint_last.pt"
[ ! -f behave.sh ] || . ./behave.sh
cp log.json "$run/train.log"
"""
LOG = [
    {"epoch": 1, "train_loss": "0.5", "train_num_updates": "10"},
    {"epoch": 1, "valid_loss": "1", "valid_accuracy": "60", "valid_num_updates": "10"},
    {"epoch": 1, "test_loss": "1", "test_accuracy": "55", "test_num_updates": "10"},
]
SMALL = f"""
import sys
sys.path[:0] = [{str(EXAMPLES)!r}, {str(EXAMPLES / "evidence")!r}]
import fill, grid
grid.TASKS = {{"movie-reviews": grid.Task("movie-reviews", {{100: 6}})}}
grid.METHODS = {{name: grid.METHODS[name] for name in ("standard", "freelb")}}
grid.FIRST, grid.SEEDS = ("standard", "freelb"), (1, 2)
grid.ATTACKED, grid.ATTACKED_SEEDS = ("standard", "freelb"), (1,)
"""
STAND_IN = """
import driver, pathlib
driver.COMMANDS = pathlib.Path({bin!r})
"""
CELLS = 2 * 4 + 2 * 2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def out(tmp_path: Path, encoder: Path) -> Path:
    """An output folder with the encoder, and beside it the program with a small grid and a stand-in."""
    program, commands = tmp_path / "fill.py", tmp_path / "bin"
    commands.mkdir()
    said = {"accuracy": 55.0, "perturbed_accuracy": 44.0, **dict.fromkeys(word_attacks.NUMBERS, 33.0)}
    attack = f"#!/bin/sh\necho '{json.dumps(said)}'\n"
    for name, text in (("fairseq-train", TRAIN), ("fairseq-adv", attack)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    program.write_text(SMALL + STAND_IN.format(bin=str(commands)) + "sys.exit(fill.main())\n")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "encoder").symlink_to(encoder)
    (folder / "log.json").write_text("".join(f"{json.dumps(line)}\n" for line in LOG))
    return folder


def command(data: Path, out: Path, *more: str) -> list[str]:
    program = str(out.parent / "fill.py")
    given = ["--records", str(out.parent / "records"), "--wordnet", str(data / "wordnet")]
    return [sys.executable, program, str(data), str(out), *given, *more]


def records_of(out: Path) -> list[dict[str, Any]]:
    return fill.read_records(out.parent / "records")


def test_every_cell_is_made_once_and_leaves_one_record(data: Path, out: Path) -> None:
    """With several workers, and never again."""
    done = run_command(*command(data, out, "--jobs", "3"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CELLS} of the {CELLS} cells known by now are done" in done.stdout
    made = (out / "made").read_text().splitlines()
    records = records_of(out)
    assert len(made) == len(set(made)) == len(records) == CELLS
    assert sorted(record["name"] for record in records) == sorted(line.split()[0] for line in made)
    first = records[0]
    assert first["labels"] == {
        "task": "movie-reviews", "rows": "100", "method": "standard", "stage": "choice",
        "encoder": "MiniLM-L6",
    }  # fmt: skip
    assert first["test"]["accuracy"] == 55 and first["valid"][0]["accuracy"] == 60
    assert first["attacks"] == {} and records[-1]["attacks"]["attack-0.01"]["perturbed_accuracy"] == 44
    assert all(
        first[name] for name in ("commit", "machine", "torch", "updates", "peak_mib", "options", "device")
    )
    assert first["starts"] == 1 and first["cpu_seconds"] >= 0 and "--lr" in first["options"]
    assert str(out) not in json.dumps(records), "a record says nothing of where it was made"
    assert not list(out.glob("movie*")) and not list((out / "cells").iterdir()), "nothing is left behind"
    again = run_command(*command(data, out))
    assert again.returncode == 0 and (out / "made").read_text().splitlines() == made


def test_a_cell_that_another_worker_has_made_meanwhile_is_not_taken(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "records"
    filler = fill.Filler(fill.parser().parse_args([str(data), str(tmp_path), "--records", str(records)]))
    (tmp_path / "cells").mkdir()
    first, second, *_ = stale = list(filler.missing())
    fill.append(fake(first, 50), records)
    monkeypatch.setattr(filler, "missing", lambda: iter(stale))
    with ExitStack() as held:
        assert filler._take(held) is second
        assert [path.name for path in (tmp_path / "cells").iterdir()] == [f"{second.name}.lock"]


def test_a_killed_run_resumes_its_cell_and_repeats_nothing(data: Path, out: Path) -> None:
    """kill -9 in the third cell; another worker beside it has left the lock to the system."""
    (out / "behave.sh").write_text("[ $(wc -l <made) != 3 ] || { touch third; sleep 600; }\n")
    process = start_command(command(data, out), preexec_fn=handle_interrupts)
    try:
        wait_for((out / "third").is_file)
    finally:
        process.kill()
        process.wait()
    assert len(records_of(out)) == 2
    (out / "behave.sh").unlink()
    done = run_command(*command(data, out))
    assert done.returncode == 0, done.stdout + done.stderr
    made = (out / "made").read_text().splitlines()
    assert Counter(made).most_common(1)[0][1] == 1 and len(made) == CELLS + 1
    third = made[2].split()[0]
    assert made[3] == f"{third} 1", "the checkpoint of the first start is there"
    records = records_of(out)
    assert len(records) == CELLS and [one["starts"] for one in records[:4]] == [1, 1, 2, 1]


def test_it_stops_after_its_minutes(data: Path, out: Path) -> None:
    (out / "behave.sh").write_text("sleep 600 & wait\n")
    program = out.parent / "fill.py"
    program.write_text(program.read_text().replace("import fill, grid", "import fill, grid\nfill.MINUTE = 3"))
    done = run_command(*command(data, out, "--stop-after", "1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"0 of the {8} cells" in done.stdout and len((out / "made").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("behave", "line", "message"),
    [
        ("echo no memory >&2; exit 3", "", "standard-choice0: fairseq-train ended with status 3"),
        ("", '{"name": ', "movie-reviews.jsonl:1: not JSON"),
        ("", '{"name": "a"}', "movie-reviews.jsonl:1: the key 'labels' is missing. Delete the line."),
        ("", "[]", "movie-reviews.jsonl:1: expected a JSON object"),
    ],
)
def test_what_fails_is_named(data: Path, out: Path, behave: str, line: str, message: str) -> None:
    (out / "behave.sh").write_text(behave + "\n")
    if line:
        (out.parent / "records").mkdir()
        (out.parent / "records" / "movie-reviews.jsonl").write_text(line + "\n")
    done = run_command(*command(data, out))
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_missing_data_are_named(tmp_path: Path) -> None:
    done = run_command(str(EXAMPLES / "evidence" / "run.sh"), "nowhere", str(tmp_path / "out"))
    assert done.returncode == 2 and "nowhere/sentence/rt-polarity.all: no such file" in done.stderr


def test_a_real_cell(data: Path, out: Path) -> None:
    """Trains, tests and attacks with the real commands, and interrupts nothing."""
    program = out.parent / "fill.py"
    program.write_text(
        SMALL + "grid.METHODS = {'freelb': grid.METHODS['freelb']}\n"
        "grid.FIRST, grid.SEEDS, grid.RADII = ('freelb',), (1,), (0.02,)\n"
        "grid.ATTACKED = ('freelb',)\n"
        "grid.chosen = lambda task, method, records: 0\n"
        "grid.choices = lambda task, method: []\n"
        "sys.exit(fill.main())\n"
    )
    done = run_command(*command(data, out))
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records_of(out)
    attack = record["attacks"]["attack-0.02"]
    assert attack["examples"] == len(read(out / "data" / "movie-reviews-100", "attack"))
    assert attack["perturbed_loss"] > attack["loss"]
    assert record["updates"] == 6 and record["test"]["accuracy"] != record["valid"][-1]["accuracy"]
    # The attack's clean loss is that of the test split, whose first 200 rows are all that there are.
    assert attack["loss"] == pytest.approx(record["test"]["loss"] * math.log(2), rel=1e-3)
    assert 0 < record["train"][-1]["adv_ratio"] < 0.02
    assert set(record["word_attacks"]) == set(word_attacks.NAMES)
    assert {one["clean"] for one in record["word_attacks"].values()} == {attack["accuracy"]}
    assert all(one["queries"] > 5 and one["aua"] <= one["clean"] for one in record["word_attacks"].values())


# --- the tables


def test_intervals_and_the_sign_test_by_hand() -> None:
    """t(.975, 4) = 2.7764; five of five: 2 / 2^5."""
    found = intervals.interval([1, 2, 3, 4, 5])
    assert found.mean == 3 and found.half == pytest.approx(2.776445 * (2.5 / 5) ** 0.5, rel=1e-5)
    assert str(intervals.interval([2.0])) == "2.00"
    assert intervals.sign_test([1, 2, 0.5, 3, 1]) == (5, 0, pytest.approx(1 / 16))
    assert intervals.sign_test([1, -2, 0, 3]) == (2, 1, pytest.approx(1.0))
    assert intervals.sign_test([0, 0]) == (0, 0, 1.0)


def test_the_page_shows_what_there_is(tmp_path: Path) -> None:
    page, records = tmp_path / "page.md", tmp_path / "records"
    page.write_text("above\n<!-- tables: begin -->\n<!-- tables: end -->\n")
    given = ["--records", str(records), "--page", str(page)]
    script = str(EXAMPLES / "evidence" / "tabulate.py")
    assert run_command(sys.executable, script, *given).returncode == 0
    assert "**0 of " in page.read_text() and not list(tmp_path.glob("*.svg"))

    task = grid.TASKS["movie-reviews"]
    known = [run for name in grid.FIRST for run in grid.choices(task, grid.METHODS[name])]
    choices = [fake(run, 50) for run in known]
    cells = [run for run in grid.whole_grid(choices) if run.seed]
    cells = sorted(cells, key=lambda run: (run.labels["rows"] != "1000", run.seed))[:8]
    scores = dict(zip([run.name for run in cells], (70, 72, 71, 74, 73, 71, 70, 75)))
    for record in [*choices, *(fake(run, 60, test=scores[run.name]) for run in cells)]:
        fill.append(record, records)
    fill.append(fake(cells[0], 60, test=0), records)  # from another machine: the first counts
    assert run_command(sys.executable, script, *given).returncode == 0
    text = page.read_text()
    rows = {row[0]: row for row in table_rows(text.partition("192 updates of 32")[2].partition("## How")[0])}
    assert rows["method"][1:4] == ["seeds", "test accuracy", "difference to `standard`"]
    assert rows["`standard`"][1:6] == ["3", "71.33 ± 5.74", "", "", ""]
    assert rows["`freelb`"][1:6] == ["3", "73.33 ± 3.79", "2.00 ± 7.45", "2, 1", "1"]
    assert rows["`standard-3x`"][1:4] == ["2", "71.00 ± 0.00", "-1.00 ± 25.41"]
    assert rows["`standard`"][6:] == ["1.000", "70.33 ± 5.74", "69.33 ± 5.74", "7", "900"]
    assert "| `freelb` | 3 | +2.00 | 7.45 |" in text
    assert text.count("| chosen |") == 3 and text.startswith("above\n")
    figures = {path.name: path.read_bytes() for path in tmp_path.glob("*.*g")}
    names = ("accuracy-under-attack", "gain-and-cost", "score-over-rows")
    assert sorted(figures) == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert run_command(sys.executable, script, *given).returncode == 0
    assert figures == {path.name: path.read_bytes() for path in tmp_path.glob("*.*g")}, "the same again"


def test_tables_of_attacks_on_words_by_hand(tmp_path: Path) -> None:
    """A cell whose record lacks them is made again; the record that has them counts."""
    task = grid.TASKS["movie-reviews"]
    known = [run for name in ("standard", "freelb") for run in grid.choices(task, grid.METHODS[name])]
    records = [fake(run, 50) for run in known]
    cells = [run for run in grid.whole_grid(records) if grid.has_word_attacks(run)]
    records += [fake(run, 60) for run in cells]
    assert not any(grid.is_done(run, records) for run in cells)
    assert word_attacks.tables(Cells(records)) == []
    under = {"standard": (20, 22, 24), "freelb": (30, 31, 35)}
    for run in cells:
        numbers = {"clean": 80, "aua": under[run.labels["method"]][run.seed - 1], "suc": 70, "queries": 30.25,
                   "changed": 12}  # fmt: skip
        found = dict.fromkeys(word_attacks.NAMES, numbers)
        if run.labels["method"] == "freelb":
            found["pwws"] = {**numbers, "aua": numbers["aua"] + 4}
        records.append({**fake(run, 60), "word_attacks": found})
    assert all(grid.is_done(run, records) for run in cells)
    lines = word_attacks.tables(Cells(records))
    assert [line for line in lines if line.startswith("###")] == [
        "### DeepWordBug", "### TextFooler-style", "### TextBugger-style", "### PWWS",
    ]  # fmt: skip
    rows = table_rows("\n".join(lines))[:4]
    assert rows[2] == ["`standard`", "3", "80.00 ± 0.00", "22.00 ± 4.97", "", "70.0", "30.2", "12.0"]
    assert rows[3] == [
        "`freelb`", "3", "80.00 ± 0.00", "32.00 ± 6.57", "10.00 ± 2.48", "70.0", "30.2", "12.0",
    ]  # fmt: skip
    (row,) = table_rows("\n".join(overview.table(Cells(records))))[2:]
    assert row[8:10] == ["+11.00", "2.48"]
    draw(Cells(records), tmp_path)
    assert {f"accuracy-under-attacks-on-words.{kind}" for kind in ("png", "svg")} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_whether_plain_training_has_converged() -> None:
    """Six validations: the second, the fourth and the last; and the last of three times as many updates."""
    task = grid.TASKS["movie-reviews"]
    known = [run for name in grid.FIRST for run in grid.choices(task, grid.METHODS[name])]
    records = [fake(run, 50) for run in known]
    for run in grid.whole_grid(records):
        if run.seed in (1, 2) and run.name in (f"movie-reviews-1000-standard-{run.seed}",
                                               f"movie-reviews-1000-standard-3x-{run.seed}"):  # fmt: skip
            way = [60 + run.seed, 70, 75, 80, 81, 82] if "3x" not in run.name else [1, 2, 83]
            records.append({**fake(run, 0), "valid": [{"accuracy": one, "loss": 1.0} for one in way]})
    lines = results.convergence(Cells(records))
    (row,) = [line for line in lines if line.startswith("| movie-reviews |")]
    assert row == "| movie-reviews | 1000 | 2 | 70.00 ± 0.00 | 80.00 ± 0.00 | 82.00 ± 0.00 | 83.00 ± 0.00 |"
    assert results.convergence(Cells(records[: len(known)])) == []


def test_the_overview_by_hand(tmp_path: Path) -> None:
    """Gains are paired by seed; with three seeds t is 4.303. A method with two seeds is left out."""
    task = grid.TASKS["movie-reviews"]
    methods = ("standard", "freelb", "standard-3x", "flooding")
    known = [run for name in methods for run in grid.choices(task, grid.METHODS[name])]
    records = [fake(run, 50) for run in known]
    assert overview.table(Cells(records)) == ["Not enough runs are done yet to say anything."]
    scores = {"standard": (70, 72, 71), "freelb": (71, 73.5, 72), "flooding": (75, 75)}
    for run in grid.whole_grid(records):
        method = run.labels["method"]
        if run.labels["rows"] == "1000" and 0 < run.seed <= len(scores.get(method, ())):
            one = fake(run, 60, test=scores[method][run.seed - 1])
            one["valid"][-1]["accuracy"] += run.seed if method == "freelb" else 0
            one["attacks"]["attack-0.02"]["perturbed_accuracy"] -= run.seed if method == "freelb" else 0
            records.append({**one, "cpu_seconds": {"standard": 10, "freelb": 25}.get(method, 9)})
    cells = Cells(records)
    (row,) = table_rows("\n".join(overview.table(cells)))[2:]
    assert row == [
        "`freelb`", "3", "+1.17", "0.72", "+2.00", "2.48", "-0.83", "2.59", "", "", "2.5",
    ]  # fmt: skip
    assert overview.draw(cells, tmp_path) and (tmp_path / "gain-and-cost.svg").is_file()


def test_whether_flooding_began() -> None:
    """A level that was given is not worth a remark, one that was never found is."""
    task = grid.TASKS["movie-reviews"]
    methods = ("standard", "flooding-auto")
    known = [run for name in methods for run in grid.choices(task, grid.METHODS[name])]
    records = [fake(run, 50) for run in known]
    cells = [
        run for run in grid.whole_grid(records) if run.labels["rows"] == "1000" and run.seed in (1, 2, 3)
    ]
    for run in cells:
        one = fake(run, 60)
        if run.labels["method"] == "flooding-auto":
            one["train"] = [{**one["train"][-1], "flood_start": 0.0}]
        records.append(one)
    *_, last = overview.table(Cells(records))
    assert last == "`flooding-auto`: flooding began in 0 of 3 runs, so they are plain fine-tuning."
    for record in records:
        if record["name"] in (
            "movie-reviews-1000-flooding-auto-2",
            "movie-reviews-1000-flooding-auto-choice3",
        ):
            record["train"] = [{**record["train"][-1], "flood_start": 140.0}]
    assert overview.table(Cells(records))[-1].endswith(": flooding began in 1 of 3 runs.")
    *_, last = [line for line in results.choice_table(Cells(records)) if "`flooding-auto`" in line]
    assert "| 140 |" in last


def test_each_method_has_a_look_of_its_own() -> None:
    looks = {(one["color"], one["marker"]) for one in map(look, grid.METHODS)}
    assert len(looks) == len(grid.METHODS)


def test_the_page_in_the_project_is_that_of_its_records(tmp_path: Path) -> None:
    """RESULTS.md and the figures were made from the records that are committed."""
    folder = EXAMPLES / "evidence"
    cells = Cells(fill.read_records(fill.RECORDS))
    names = (overview.FIGURE, SCORES, ATTACKS, WORDS)
    drawn = [name for name in names if (folder / f"{name}.svg").is_file()]
    text = "\n".join(results.page(cells, drawn, overview.table(cells)))
    assert text in (folder / "RESULTS.md").read_text(), "run examples/evidence/tabulate.py"


def test_the_readme_has_a_row_for_each_method() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == sorted(CRITERIONS)
