"""Binarised folders whose files are missing, cut short, or not of one folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import build, command, run_command, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import LENGTHS_AT
from fairseq_adv.data.text.labelled_folder import check_folder


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


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no labels": (gone("label/train.bin"), r"label/train\.bin: no such file"),
    "no texts": (gone("input0/valid.bin"), r"input0/valid\.bin: no such file"),
    "shorter texts": (
        cut("input0/train.bin", 2),
        r"input0/train\.bin: has \d+ bytes, but train\.idx gives \d+",
    ),
    "shorter index": (cut("input0/train.idx", 8), r"input0/train\.idx: truncated, or not a fairseq index"),
    "a longer row": (longer_row, r"input0/train\.idx: a row does not begin where the one before it ends"),
    "half a head": (cut("label/valid.idx", 10_000), r"label/valid\.idx"),
    "other rows": (other_rows, r"label/valid\.idx: has 16 rows, but .*input0/valid\.idx has 8"),
    "fewer words": (
        fewer_words,
        r"input0/\w+\.bin: contains the token \d+, but .*input0/dict\.txt has only \d+",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_named(name: str, whole: Path, tmp_path: Path) -> None:
    change, message = CHANGES[name]
    data = shutil.copytree(whole, tmp_path / "data")
    check_folder(data, is_regression=False)
    change(data)
    with pytest.raises(DataError, match=message):
        check_folder(data, is_regression=False)


def test_before_training(whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    (data / "input0" / "valid.bin").unlink()
    with pytest.raises(DataError, match=r"input0/valid\.bin: no such file"):
        build(train_args(data, None, "freelb"))


def test_before_the_first_update(whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    (data / "label" / "valid.idx").unlink()
    done = run_command(command("fairseq-train"), *train_args(data, None, "freelb"))
    assert done.returncode == 1 and "num_updates" not in done.stdout + done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {data}/label/valid.idx: no such file: the split 'valid' has no labels.")


def test_a_test_split_needs_no_labels_and_a_folder_that_is_gone_is_not_checked(
    whole: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    for ending in (".idx", ".bin"):
        shutil.copy(data / "input0" / f"valid{ending}", data / "input0" / f"test{ending}")
    check_folder(data, is_regression=False)
    check_folder(tmp_path / "gone", is_regression=False)


def test_a_regression(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", classes=1)
    check_folder(data, is_regression=True)
    labels = data / "label" / "valid.label"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(DataError, match=r"valid\.label: has 7 rows, but .*valid\.idx has 8"):
        check_folder(data, is_regression=True)


@pytest.mark.parametrize("number", ["1e39", "-1e308", "nan", "inf", "", "x"])
def test_a_number_that_is_not_one_of_float32(tmp_path: Path, number: str) -> None:
    """Prepared by someone else: found when training begins."""
    data = write_task(tmp_path / "data", classes=1)
    labels = data / "label" / "train.label"
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join([*lines[:4], number, *lines[5:]]) + "\n")
    with pytest.raises(DataError, match=r"train\.label:5: .* is not a finite number of float32"):
        build(train_args(data, None, "standard", classes=1))
