"""The driver of the small runs, with a stand-in for fairseq-train; and the tables of its records."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from small_runs import wait_for
from support import handle_interrupts, load_script, start_command

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from driver import (  # noqa: E402
    Processes,
    Run,
    is_finished,
    make,
    read_record,
    read_records,
    train_and_measure,
)  # fmt: skip
from tables import Column, last, outcome, table, write_between  # noqa: E402

# Leaves a log as fairseq-train's and its name in OUT/made, and does what OUT/behave.sh says.
TRAIN = """#!/bin/sh
for word; do [ "$before" != --save-dir ] || run=$word; before=$word; done
echo "$run" >>made
cp log.json "$run/train.log"
[ ! -f behave.sh ] || . ./behave.sh
"""
LOG = [
    {"epoch": 1, "loss": "3.5", "num_updates": "5"},
    {"epoch": 1, "train_loss": "3", "train_num_updates": "10", "train_wall": "4"},
    {"epoch": 1, "valid_loss": "nan", "valid_accuracy": "60", "valid_num_updates": "10"},
]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output folder with data and a start, in an environment whose fairseq-train is the stand-in."""
    for name, text in (("fairseq-train", TRAIN), ("measure", '#!/bin/sh\necho "{\\"loss\\": $1}"\n')):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setattr("driver.COMMANDS", tmp_path / "bin")
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("data", "start.pt"):
        (folder / name).touch()
    (folder / "log.json").write_text("".join(f"{json.dumps(line)}\n" for line in LOG))
    return folder


def run(name: str, *options: str, **more: Any) -> Run:
    return Run(name, "data", "start.pt", ["--lr", "1", *options], **more)


def made(out: Path) -> list[str]:
    return (out / "made").read_text().split()


def test_a_record_holds_what_was_asked_for_and_what_came_out(out: Path) -> None:
    (out / "behave.sh").write_text('touch "$run/checkpoint_last.pt" "$run/kept.pt"\n')
    after, labels = {"attack": ["measure", "0.5"]}, {"method": "freelb"}
    one = run("a", seed=7, labels=labels, after=after, delete=["checkpoint_*.pt"], curve=["loss"])
    (record,) = make([one], out)
    assert record == json.loads((out / "records" / "a.json").read_text()) == read_records(out)[0]
    assert (record["options"], record["seed"], record["labels"]) == (["--lr", "1"], 7, labels)
    assert record["outcomes"] == {"attack": {"loss": 0.5}} and record["numbers"] == {"loss": [3.5]}
    assert record["updates"] == 10 and record["train"][0]["loss"] == 3
    assert record["valid"][0]["accuracy"] == 60 and record["valid"][0]["loss"] is None
    assert record["peak_mib"] > 0 and record["wall_seconds"] >= 0 and record["cpu_seconds"] >= 0
    assert sorted(path.name for path in (out / "a").glob("*.pt")) == ["kept.pt"]
    assert str(out) not in json.dumps(record), "a record can be kept elsewhere"


def test_a_finished_run_is_not_made_again_and_other_settings_are(out: Path) -> None:
    make([run("a"), run("b")], out)
    make([run("a"), run("b", "--lr", "2"), run("c")], out)
    assert made(out) == ["a", "b", "b", "c"]
    assert is_finished(run("b", "--lr", "2"), out) and not is_finished(run("b"), out)


def test_a_run_that_was_cut_short_begins_anew(out: Path) -> None:
    (out / "a").mkdir()
    (out / "a" / "checkpoint_last.pt").touch()
    make([run("a")], out)
    assert made(out) == ["a"] and not (out / "a" / "checkpoint_last.pt").exists()


def test_a_training_that_has_ended_is_not_started_again(out: Path) -> None:
    """What is measured on it may have begun: a checkpoint that is saved again would be another one."""
    (out.parent / "bin" / "measure").write_text("#!/bin/sh\ncat found.json\n")
    one = run("a", after={"attack": ["measure"]})
    with pytest.raises(ValueError, match="measure ended with status 1"):
        train_and_measure(one, out, Processes(out), resumes=True)
    costs = json.loads((out / "a" / "trained.json").read_text())
    (out / "found.json").write_text('{"loss": 0.5}')
    record = train_and_measure(one, out, Processes(out), resumes=True)
    assert made(out) == ["a"] and record["outcomes"] == {"attack": {"loss": 0.5}}
    assert record["starts"] == 2 and {name: record[name] for name in costs} == costs
    train_and_measure(run("a", "--lr", "2"), out, Processes(out), resumes=True)
    assert made(out) == ["a", "a"], "other settings are another training"


@pytest.mark.parametrize(("jobs", "order"), [(1, ["a begins", "a ends", "b begins", "b ends"]), (2, None)])
def test_as_many_at_a_time_as_asked_for(out: Path, jobs: int, order: list[str] | None) -> None:
    """Each ends when both have begun or, where one is to run alone, after a second."""
    tries = 50 if jobs == 1 else 3000  # a busy machine may need seconds to begin the second
    (out / "behave.sh").write_text(
        'echo "$run begins" >>order; touch "$run/here"; i=0\n'
        f"until [ -e a/here ] && [ -e b/here ] || [ $i = {tries} ]; do sleep .02; i=$((i + 1)); done\n"
        'echo "$run ends" >>order\n'
    )
    make([run("a"), run("b")], out, jobs)
    lines = (out / "order").read_text().splitlines()
    assert lines == order or (jobs == 2 and {line[2:] for line in lines[:2]} == {"begins"})


def test_a_failed_run_is_named_and_the_others_are_stopped(out: Path) -> None:
    (out / "behave.sh").write_text(
        'if [ "$run" = bad ]; then until [ -e pid ]; do sleep .02; done; echo no memory >&2; exit 3; fi\n'
        "sleep 600 & echo $! >pid.new; mv pid.new pid; wait\n"
    )
    with pytest.raises(ValueError, match=r"bad: fairseq-train ended with status 3; .*txt:\nno memory"):
        make([run("good"), run("bad"), run("later")], out, jobs=2)
    wait_for(lambda: not is_alive(int((out / "pid").read_text())), 20)
    assert not list((out / "records").glob("*.json")) and "later" not in made(out)


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.is_file() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_driver_leaves_nothing_running_and_another_waits_for_it(
    out: Path, number: signal.Signals
) -> None:
    (out / "behave.sh").write_text("sleep 600 & echo $! >pid.new; mv pid.new pid; wait\n")
    (out.parent / "drive.py").write_text(f"""
import argparse, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import driver, small_setup
driver.COMMANDS = small_setup.Path({str(out.parent / "bin")!r})
options = argparse.Namespace(out=small_setup.Path({str(out)!r}), into=None, table=False, data=None,
                             encoder=small_setup.Path({str(out / "encoder")!r}))
work = lambda options: driver.make([driver.Run("a", "data", "start.pt", [])], options.out)
sys.exit(small_setup.command(options, [], work, lambda records: []))
""")
    (out / "encoder").mkdir()
    (out / "encoder" / "model.pt").touch()
    words = [sys.executable, str(out.parent / "drive.py")]
    driver = start_command(words, preexec_fn=handle_interrupts)
    try:
        wait_for((out / "pid").is_file)
        with pytest.raises(ValueError, match="another process is writing it"):
            make([run("a")], out)
        driver.send_signal(number)
        _, said = driver.communicate(timeout=60)
    finally:
        driver.kill()
    status = 130 if number is signal.SIGINT else 143
    assert driver.returncode == status and b"run the same command again to resume" in said, said
    assert not is_alive(int((out / "pid").read_text())) and read_record(out, "a") is None
    (out / "behave.sh").unlink()
    assert len(make([run("a")], out)) == 1


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([Run("a", "data:gone", "start.pt", [])], "gone: no such file"),
        ([Run("a", "data", "gone.pt", [])], r"gone\.pt: no such file"),
        ([run("a"), run("a", "--lr", "2")], "more than one run has the name a$"),
    ],
)
def test_what_cannot_run_is_found_before_training(out: Path, runs: list[Run], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make([run("first"), *runs], out)
    assert not (out / "made").exists()


# --- the tables


def record(method: str, seed: int, loss: float | None, **more: Any) -> dict[str, Any]:
    return {
        "labels": {"method": method}, "seed": seed, "updates": 10 * seed,
        "valid": [{"loss": 9}, {"loss": loss}], "outcomes": {"attack": {"loss": 2.0}}, **more,
    }  # fmt: skip


def test_a_table_has_a_row_for_each_group() -> None:
    columns = [
        Column("updates", lambda one: one["updates"], None),
        Column("loss", last("valid", "loss", 2), 1, True),
        Column("attacked", outcome("attack", "loss"), 0), Column("", outcome("other", "loss")),
    ]  # fmt: skip
    records = [record("new", 1, 1.0), record("b", 10, 1.5), record("b", 2, 1.0), record("a", 1, None)]
    assert table([*records, {"labels": {}, "seed": 1}], {"method": ["b", "a"]}, columns) == [
        "| method | updates | loss | attacked |  |",
        "|---|---|---|---|---|",
        "| `b` | 20, 100 | 2.5 ± 0.7 (2.0, 3.0) | 2 |  |",
        "| `a` | 10 |  | 2 |  |",
        "| `new` | 10 | 2.0 (2.0) | 2 |  |",
        "",
    ]
    assert table(records, {"task": []}, columns) == []


def test_tables_go_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    for _ in range(2):
        write_between(page, "| a |\n")
    markers = "<!-- tables: begin -->\n\n| a |\n\n<!-- tables: end -->"
    assert page.read_text() == f"before\n{markers}\nafter\n"
    page.write_text("none\n")
    with pytest.raises(ValueError, match=r"gone\.md: no such page; pass one that has the lines <!-- tables"):
        write_between(tmp_path / "gone.md", "| a |\n")
    with pytest.raises(ValueError, match=r"page\.md: the lines <!-- tables: begin --> and .* are missing"):
        write_between(page, "x")
    assert page.read_text() == "none\n"


def test_records_that_cannot_be_read_are_named(out: Path) -> None:
    with pytest.raises(ValueError, match="out: contains no finished runs"):
        read_records(out)
    (out / "records").mkdir()
    (out / "records" / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json: not JSON"):
        read_records(out)


@pytest.mark.parametrize(("rows", "wanted"), [(7, 7), (300, 200)])
def test_rows_are_spread_over_the_training_set(rows: int, wanted: int) -> None:
    spread: Callable[..., list[str]] = load_script(EXAMPLES / "small_setup.py").spread_rows
    lines = [str(i) for i in range(200)]
    taken = [int(line) for line in spread(lines, rows)]
    assert len(taken) == wanted and taken[-1] == 199
    assert {right - left for left, right in zip(taken, taken[1:])} <= {200 // wanted, -(-200 // wanted)}
