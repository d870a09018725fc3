"""A corpus in shards is looked over before the training: missing, cut-off and foreign shards are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from fairseq.data import indexed_dataset
from support import build

from fairseq_adv.data.corpus.shard import check_shards, check_split
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import write_indexed


def split_of(data: Path) -> list[Path]:
    return [Path(part) for part in str(data).split(":")]


def refusal(data: str) -> str:
    with pytest.raises(DataError) as error:
        check_shards(data, "train")
    return str(error.value)


@pytest.mark.parametrize("dtype", [np.uint16, np.int64])
def test_a_file_of_another_length_is_named(tmp_path: Path, dtype: type) -> None:
    """Written by fairseq; a token more or less in either file shows."""
    prefix = tmp_path / "train"
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for length in (5, 1, 7, 3):
        builder.add_item(torch.arange(4, 4 + length))
    builder.finalize(f"{prefix}.idx")
    check_split(prefix)
    whole = (tmp_path / "train.bin").read_bytes()
    for wrong in (whole[:-1], whole + b"\0", b"", whole[: len(whole) // 2]):
        (tmp_path / "train.bin").write_bytes(wrong)
        with pytest.raises(
            DataError, match=rf"train\.bin: has {len(wrong)} bytes, but train\.idx gives {len(whole)}"
        ):
            check_split(prefix)
    (tmp_path / "train.bin").write_bytes(whole)
    index = (tmp_path / "train.idx").read_bytes()
    for wrong in (index[:-1], index + b"\0", index[:20], b"", b"hello" * 20):
        (tmp_path / "train.idx").write_bytes(wrong)
        with pytest.raises(DataError, match=r"train\.idx: truncated, or not a fairseq index"):
            check_split(prefix)


@pytest.mark.parametrize("shard", [1, 2])
def test_the_rows_of_a_shard_are_checked_when_it_is_opened(tmp_path: Path, shard: int) -> None:
    """Before that only the header of each, which takes milliseconds."""
    data = write_shards(tmp_path, 2)
    run = build(pretraining_args(data, tmp_path / "save", "standard"))
    folder = split_of(data)[shard - 1]
    for path in folder.glob("train.*"):
        path.unlink()  # the run may have it open
    write_indexed(folder / "train", [(np.array([4, 2, 2]), np.array([2, 0, 1]))], 100)
    check_shards(str(data), "train")
    run.task.load_dataset("train", epoch=3 - shard)
    with pytest.raises(DataError, match=r"train\.idx: row 2 has 0 tokens"):
        run.task.load_dataset("train", epoch=shard + 2)  # the third epoch reads the first shard again


def test_whole_shards_pass_and_others_are_named(tmp_path: Path) -> None:
    data = write_shards(tmp_path, 2)
    check_shards(str(data), "train")
    check_shards("s3://bucket/shard0|s3://bucket/shard1", "train")
    first, second = split_of(data)
    assert f"{tmp_path}/shard2: no such folder (shard 3 of 3" in refusal(f"{data}:{tmp_path}/shard2")
    for path in (first / "train.bin", second / "train.idx"):
        path.rename(tmp_path / "kept")
        assert f"{path}: no such file" in refusal(str(data)) and "fairseq-adv corpus" in refusal(str(data))
        (tmp_path / "kept").rename(path)
    for path in second.glob("train.*"):
        path.unlink()
    write_indexed(second / "train", [], 100)
    assert "is empty" in refusal(str(data))


def test_other_dictionaries_are_named_by_their_first_difference(tmp_path: Path) -> None:
    """Counts may differ: word ids don't depend on them. Later shards may have no dict.txt."""
    data = write_shards(tmp_path, 2)
    first, second = (folder / "dict.txt" for folder in split_of(data))
    lines = first.read_text().splitlines()
    second.write_text("".join(f"{line.split()[0]} 77\n" for line in lines))
    check_shards(str(data), "train")
    for changed, message in (
        ([*lines[:3], lines[4], lines[3], *lines[5:]], f"{second}:4: 'w4', but 'w3' in {first}"),
        (lines[:-1], "no such line, but 'w39'"),
        ([*lines, "new 1"], "'new', but no such line"),
    ):
        second.write_text("".join(f"{line}\n" for line in changed))
        assert message in refusal(str(data))
    second.unlink()
    check_shards(str(data), "train")
    first.unlink()
    assert f"{first}: no such file; fairseq reads the dictionary from the first folder" in refusal(str(data))
