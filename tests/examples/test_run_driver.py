"""The driver of the evidence run, with a stand-in for fairseq-train; tables between a page's markers."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

import pytest
from evidence_samples import wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "evidence")]
from driver import Processes, Run, train_and_measure  # noqa: E402
from tables import write_between  # noqa: E402

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


def run(name: str, *options: str, after: Optional[dict[str, list[str]]] = None) -> Run:
    return Run(name, "data", "start.pt", ["--lr", "1", *options], 1, after or {})


def made(out: Path) -> list[str]:
    return (out / "made").read_text().split()


def made_of(run: Run, out: Path) -> dict[str, Any]:
    return train_and_measure(run, out, Processes(out))


def test_a_record_holds_what_it_cost_and_what_came_out(out: Path) -> None:
    record = made_of(run("a", after={"attack": ["measure", "0.5"], "other": ["measure", "NaN"]}), out)
    assert record["outcomes"] == {"attack": {"loss": 0.5}, "other": {"loss": None}}
    assert record["updates"] == 10 and record["starts"] == 1
    assert record["peak_mib"] > 0 and record["wall_seconds"] >= 0 and record["cpu_seconds"] >= 0
    assert str(out) not in json.dumps(record), "a record can be kept elsewhere"


def test_a_folder_of_other_settings_begins_anew(out: Path) -> None:
    (out / "a").mkdir()
    (out / "a" / "checkpoint_last.pt").touch()
    made_of(run("a"), out)
    assert made(out) == ["a"] and not (out / "a" / "checkpoint_last.pt").exists()


def test_a_training_that_has_ended_is_not_started_again(out: Path) -> None:
    """What is measured on it may have begun: a checkpoint that is saved again would be another one."""
    (out.parent / "bin" / "measure").write_text("#!/bin/sh\ncat found.json\n")
    one = run("a", after={"attack": ["measure"]})
    with pytest.raises(ValueError, match="measure ended with status 1"):
        made_of(one, out)
    costs = json.loads((out / "a" / "trained.json").read_text())
    (out / "found.json").write_text('{"loss": 0.5}')
    record = made_of(one, out)
    assert made(out) == ["a"] and record["outcomes"] == {"attack": {"loss": 0.5}}
    assert record["starts"] == 2 and {name: record[name] for name in costs} == costs
    made_of(run("a", "--lr", "2"), out)
    assert made(out) == ["a", "a"], "other settings are another training"


def test_a_failed_run_is_named(out: Path) -> None:
    (out / "behave.sh").write_text("echo no memory >&2; exit 3\n")
    with pytest.raises(ValueError, match=r"bad: fairseq-train ended with status 3; .*txt:\nno memory"):
        made_of(run("bad"), out)


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.is_file() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_stopping_leaves_nothing_running(out: Path) -> None:
    (out / "behave.sh").write_text("sleep 600 & echo $! >pid.new; mv pid.new pid; wait\n")
    processes = Processes(out)
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(train_and_measure, run("a"), out, processes)
        try:
            wait_for((out / "pid").is_file)
        finally:
            processes.stop()
        with pytest.raises(ValueError, match="a: fairseq-train ended with status -15"):
            begun.result()
    wait_for(lambda: not is_alive(int((out / "pid").read_text())), 20)
    with pytest.raises(ValueError, match="b: stopped"):
        train_and_measure(run("b"), out, processes)


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
