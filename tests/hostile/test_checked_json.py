"""json that this project wrote, changed by another: one line that names file and fix, or "not there"."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEFORE = list(sys.path)
sys.path[:0] = [str(ROOT / name) for name in ("benchmarks", "examples", "examples/evidence")]
import grid  # noqa: E402
import mode_runs  # noqa: E402
import records  # noqa: E402
from mode_cells import Cell  # noqa: E402

from fairseq_adv.data.corpus.shard import Counts, counts_of  # noqa: E402

sys.path[:] = BEFORE
DEEP = "[" * 100_000 + "]" * 100_000
NO_OBJECT = {
    "deep": DEEP.encode(), "a deep value": b'{"a": %s}' % DEEP.encode(), "a list": b"[1]", "a number": b"3",
    "empty": b"", "cut short": b'{"a": 1', "Latin-1": b'{"a": "se\xe9"}', "half": b'{"a": "\\ud800"}',
    "NaN": b'{"a": NaN}', "without an end": b'{"a": 1e400}', "minus": b'{"a": -Infinity}', "other": b"{}",
}  # fmt: skip
NO_NUMBER: list[Any] = ["3", None, True, -1, [3], {}]


def counts(folder: Path, content: bytes) -> Any:
    (folder / "train.json").write_bytes(content)
    return counts_of(folder, "train")


def evidence(folder: Path, content: bytes) -> Any:
    (folder / "CoLA.jsonl").write_bytes((content or b" ") + b"\n")
    return list(records.read_records(folder).values())


def cell(folder: Path, content: bytes) -> Any:
    one = Cell("pgd", "fp32", "single")
    (folder / "cells").mkdir(exist_ok=True)
    (folder / "cells" / f"{one.name}.json").write_bytes(content)
    result = mode_runs.Runs(folder, mode_runs.Machine(False, 0, "CPU", "2"), 1).result(one)
    assert result is not None and result.pop("emulated") is False  # told by the folder
    return result


EPOCH = {"loss": 0.5, "mcc": 0.25}
CELL = grid.Cell("minilm", "CoLA", 1000, "freelb", 1e-4, 11)
READERS: dict[str, tuple[Callable[[Path, bytes], Any], str, dict[str, Any]]] = {
    "counts": (counts, "train.json", {"rows": 3, "tokens": 9, "unknown": 0, "replaced": 0}),
    "evidence": (evidence, "CoLA.jsonl:1", {
        "name": CELL.name, "encoder": "minilm", "task": "CoLA", "rows": 1000, "method": "freelb", "lr": 1e-4,
        "seed": 11, "options": CELL.options(), "design": grid.GRID["design"], "precision": "bf16",
        "commit": "a", "torch": "2", "machine": "a", "updates": 6, "starts": 1, "cpu_seconds": 2,
        "after_cpu_seconds": 1, "peak_mib": 900.5, "scores": {"test": EPOCH}, "attacked": "01",
        "word_attacks": {"textfooler": {"right": "01", "queries": 3.5}},
    }),
    "cell": (cell, "pgd-fp32-single.json", {
        "state": "failed", "why": "it hung", "cuda": False, "device": "CPU", "torch": "2", "distance": 0.1,
    }),
}  # fmt: skip
NUMBERS = {
    "counts": ["rows", "tokens", "unknown", "replaced"],
    "evidence": [
        "rows", "lr", "seed", "updates", "starts", "cpu_seconds", "after_cpu_seconds", "peak_mib",
    ],
    "cell": ["distance"],
}  # fmt: skip


def refused(reader: str, folder: Path, content: bytes) -> str:
    read, where, _ = READERS[reader]
    with pytest.raises(ValueError, match=where) as error:
        read(folder, content)
    text = str(error.value)
    assert text.startswith(str(folder)) and "\n" not in text and len(text) < 400 + len(str(folder))
    text.encode("utf-8")
    return text


@pytest.mark.parametrize("reader", READERS)
def test_what_was_written_is_read(reader: str, tmp_path: Path) -> None:
    read, _, good = READERS[reader]
    found = read(tmp_path, json.dumps(good).encode())
    assert found in (Counts(**good), [good], good) if reader == "counts" else found in ([good], good)


@pytest.mark.parametrize("reader", READERS)
def test_what_is_none_of_them(reader: str, tmp_path: Path) -> None:
    for content in NO_OBJECT.values():
        refused(reader, tmp_path, content)


@pytest.mark.parametrize("reader", READERS)
def test_each_field(reader: str, tmp_path: Path) -> None:
    """But for the design: a record of another one is told apart by it, before anything else is read."""
    good = READERS[reader][2]
    for key in (key for key in good if key != "design"):
        without = {name: value for name, value in good.items() if name != key}
        if key != "distance":
            assert f"the key {key!r} is missing" in refused(reader, tmp_path, json.dumps(without).encode())
        wrong: list[Any] = NO_NUMBER if key in NUMBERS[reader] else [3, None, [[3]], {"a": {"b": "c"}}]
        for value in wrong:
            found = refused(reader, tmp_path, json.dumps({**good, key: value}).encode())
            assert f": {key} must be " in found
        for value in ("NaN", "1e400", "-Infinity", '"\\ud800"'):
            content = json.dumps({**good, key: "HERE"}).replace('"HERE"', value)
            refused(reader, tmp_path, content.encode())
