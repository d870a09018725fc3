"""Binarised folders whose files are missing, cut short, or not of one folder, or that have odd rows."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fairseq.data import indexed_dataset
from support import build, fork_command, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import LENGTHS_AT, write_indexed
from fairseq_adv.data.text.labelled_folder import check_split


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("whole") / "data")


def cut(name: str, by: int) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        (data / name).write_bytes((data / name).read_bytes()[:-by])

    return change


def gone(name: str) -> Callable[[Path], None]:
    return lambda data: (data / name).unlink()


def other_rows(data: Path) -> None:
    for ending in (".idx", ".bin"):
        shutil.copy(data / "label" / f"train{ending}", data / "label" / f"valid{ending}")


def fewer_words(data: Path) -> None:
    path = data / "input0" / "dict.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-5]))


def longer_row(data: Path) -> None:
    path = data / "input0" / "train.idx"
    lengths = bytearray(path.read_bytes())
    lengths[LENGTHS_AT + 4 * 3] += 1  # of the fourth row
    path.write_bytes(lengths)


def rows(name: str, *odd: list[int], at: int = 5) -> Callable[[Path], None]:
    """Replaces rows by others, consistently: their lengths and starts are right."""

    def change(data: Path) -> None:
        ids = [row.tolist() for row in indexed_dataset.MMapIndexedDataset(str(data / name))]
        ids[at - 1 : at - 1 + len(odd)] = odd
        flat = np.array([one for row in ids for one in row], dtype=np.int64)
        write_indexed(data / name, [(flat, np.array([len(row) for row in ids]))], 100)

    return change


def negative_row(data: Path) -> None:
    """The next row is as much longer, and begins where it should."""
    path = data / "input0" / "train.idx"
    index = bytearray(path.read_bytes())
    count = len(indexed_dataset.MMapIndexedDataset(str(data / "input0" / "train")))
    lengths = np.frombuffer(index, np.int32, count, LENGTHS_AT)
    starts = np.frombuffer(index, np.int64, count, LENGTHS_AT + 4 * count)
    lengths[4] -= 20
    lengths[5] += 20
    starts[5] -= 40
    path.write_bytes(index)


def head(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda data: (data / name).write_bytes(content)  # type: ignore[func-returns-value]


def another_version(data: Path) -> None:
    path = data / "input0" / "train.idx"
    content = path.read_bytes()
    path.write_bytes(content[:9] + struct.pack("<Q", 2) + content[17:])


OLDER = b"TNTIDX\x00\x00" + struct.pack("<5Q", 1, 4, 4, 1 << 28, 1 << 28) + bytes(92)  # 140 bytes
LABEL = r"label/train\.bin: the label of row 5 is '{}', not a class of dict\.txt and </s>"
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no labels": (gone("label/train.bin"), r"label/train\.bin: no such file"),
    "shorter texts": (
        cut("input0/train.bin", 2),
        r"input0/train\.bin: has \d+ bytes, but train\.idx gives \d+",
    ),
    "shorter index": (cut("input0/train.idx", 8), r"input0/train\.idx: truncated, or not a fairseq index"),
    "a longer row": (longer_row, r"input0/train\.idx: a row does not begin where the one before it ends"),
    "other rows": (other_rows, r"label/valid\.idx: has 16 rows, but .*input0/valid\.idx has 8"),
    "no tokens": (rows("input0/train", []), r"input0/train\.idx: row 5 has 0 tokens"),
    "a negative length": (negative_row, r"input0/train\.idx: row 5 has -\d+ tokens"),
    "no rows": (
        lambda data: write_indexed(data / "input0" / "train", [], 100),
        r"input0/train\.idx: has no rows",
    ),
    "an older format": (
        head("input0/train.idx", OLDER),
        r"input0/train\.idx: is not in fairseq's format mmap",
    ),
    "a packed format": (
        head("label/train.idx", b"HUFFIDX\x00\x00" + bytes(90)),
        r"label/train\.idx: is not in fairseq's format mmap",
    ),
    "another version": (another_version, r"input0/train\.idx: truncated, or not a fairseq index"),
    "no label": (rows("label/train", [2]), LABEL.format("</s>")),
    "two labels": (rows("label/train", [4, 5, 2]), LABEL.format("1 0 </s>")),
    "<pad> as a label": (rows("label/train", [1, 2]), LABEL.format("<pad> </s>")),
    "a padding symbol as a label": (rows("label/train", [6, 2]), LABEL.format("madeupword0000 </s>")),
    "a label that is none": (rows("label/train", [77, 2]), LABEL.format("77 </s>")),
    "a label that lacks, and one too many": (rows("label/train", [2], [4, 4, 2]), LABEL.format("</s>")),
    "a negative token": (rows("input0/train", [4, -3, 2]), r"input0/train\.bin: contains the token 65533"),
    "fewer words": (
        fewer_words,
        r"input0/\w+\.bin: contains the token \d+, but .*input0/dict\.txt has only \d+",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_named(name: str, whole: Path, tmp_path: Path) -> None:
    change, message = CHANGES[name]
    data = shutil.copytree(whole, tmp_path / "data")
    check(data)
    change(data)
    with pytest.raises(DataError, match=message):
        check(data)


def check(data: Path) -> None:
    for split in ("train", "valid"):
        check_split(data, split, is_regression=False, combine=True)


def test_a_million_rows_take_no_time(whole: Path, tmp_path: Path) -> None:
    data, count = shutil.copytree(whole, tmp_path / "data"), 1_000_000
    for name, row in (("input0", [*range(4, 23), 2]), ("label", [4, 2])):
        lengths = np.full(count, len(row))
        write_indexed(data / name / "train", [(np.tile(row, count), lengths)], 100)
    begun = time.process_time()
    check_split(data, "train", is_regression=False)
    assert time.process_time() - begun < 1
    rows("label/train", [4, 4], at=count)(data)
    with pytest.raises(DataError, match="the label of row 1000000 is"):
        check_split(data, "train", is_regression=False)


def test_what_fairseq_adds_to_a_split_is_checked_with_it(whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    for path in [*data.glob("*/valid.*")]:
        shutil.copy(path, path.with_name(f"train1{path.suffix}"))
    check(data)
    rows("label/train1", [4, 4])(data)
    check_split(data, "train", is_regression=False)
    with pytest.raises(DataError, match=r"label/train1\.bin: the label of row 5"):
        check(data)


def test_before_the_first_update(whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    (data / "label" / "valid.idx").unlink()
    done = fork_command("fairseq-train", *train_args(data, None, "freelb"))
    assert done.returncode == 1 and "num_updates" not in done.stdout + done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {data}/label/valid.idx: no such file: the split 'valid' has no labels.")


def test_a_regression(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", classes=1)
    check_split(data, "valid", is_regression=True)
    labels = data / "label" / "valid.label"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(DataError, match=r"valid\.label: has 7 rows, but .*valid\.idx has 8"):
        check_split(data, "valid", is_regression=True)


@pytest.mark.parametrize("number", ["1e39", "-1e308", "nan", "inf", "", "x"])
def test_a_number_that_is_not_one_of_float32(tmp_path: Path, number: str) -> None:
    """Prepared by someone else: found when training begins."""
    data = write_task(tmp_path / "data", classes=1)
    labels = data / "label" / "train.label"
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join([*lines[:4], number, *lines[5:]]) + "\n")
    with pytest.raises(DataError, match=r"train\.label:5: .* is not a finite number of float32"):
        build(train_args(data, None, "standard", classes=1))
