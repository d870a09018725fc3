"""Data whose rows no preparation writes: every command that opens them ends with one line."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import VERBS, refusal
from fairseq.data.indexed_dataset import MMapIndexedDataset
from support import CommandMain, build, train_args, write_corpus

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import write_indexed

Hostile = Callable[[Any], Path]
# 140 bytes that ask for six gigabytes.
OLDER = b"TNTIDX\x00\x00" + struct.pack("<5Q", 1, 4, 4, 1 << 28, 1 << 28) + bytes(92)


def older(name: str) -> Callable[[Path], object]:
    return lambda data: (data / f"{name}.idx").write_bytes(OLDER)


def third(name: str, *row: int) -> Callable[[Path], object]:
    """Replaces the third row."""

    def change(data: Path) -> None:
        ids = [one.tolist() for one in MMapIndexedDataset(str(data / name))]
        ids[2] = list(row)
        flat = np.array([one for row in ids for one in row], dtype=np.int64)
        write_indexed(data / name, [(flat, np.array([len(one) for one in ids]))], 300)

    return change


ROWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "texts in an older format": (older("input0/valid"), "input0/valid.idx: is not in fairseq's format mmap"),
    "labels in an older format": (older("label/valid"), "label/valid.idx: is not in fairseq's format mmap"),
    "no tokens": (third("input0/valid"), "input0/valid.idx: row 3 has 0 tokens"),
    "no label": (third("label/valid", 2), "label/valid.bin: the label of row 3 is '</s>'"),
    "two labels": (third("label/valid", 4, 5, 2), "label/valid.bin: the label of row 3 is "),
    "<pad> as a label": (third("label/valid", 1, 2), "label/valid.bin: the label of row 3 is '<pad> </s>'"),
}


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        *(("no label", verb) for verb in ("predict --data", "attack", "compare --epsilon")),
        *((name, "validate") for name in ROWS),
    ],
)
def test_a_command_ends_with_one_line(
    name: str, verb: str, films: Path, hostile: Hostile, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    two_gigabytes_more: None,
) -> None:  # fmt: skip
    data = shutil.copytree(films / "data", tmp_path / "data")
    bad = hostile(lambda state, canary: state["cfg"]["task"].update(data=str(data)))
    change, told = ROWS[name]
    change(data)
    words = VERBS[verb](tmp_path, bad) + ["--split", "valid"] * verb.startswith("predict")
    assert f"{data}/{told}" in refusal(CommandMain("", capsys), tmp_path, *words)


@pytest.mark.parametrize("name", ROWS)
def test_a_training_ends_before_it_begins(name: str, films: Path, tmp_path: Path) -> None:
    data = shutil.copytree(films / "data", tmp_path / "data")
    change, told = ROWS[name]
    change(data)
    with pytest.raises(DataError) as caught:
        build(train_args(data, None, "standard"))
    assert str(caught.value).startswith(f"{data}/{told}")


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize("change", [older, third], ids=["older", "empty"])
def test_a_corpus_too(change: Callable[[str], Callable[[Path], object]], split: str, tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data")
    change(split)(data)
    with pytest.raises(DataError, match=rf"{split}\.idx: (is not in fairseq's|row 3 has 0 tokens)"):
        build(train_args(data, None, "standard", task="masked_lm"))
