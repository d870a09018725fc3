"""Files equal to those of fairseq's own writers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.tokenizer import tokenize_line
from glue_samples import write

from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.data.text.labelled_folder import label_dictionary

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("vocabulary", [300, 65499, 65500, 250000])
def test_indexed_files_equal_fairseqs(vocabulary: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, vocabulary, size=n) for n in (3, 0, 1, 200, 1, 7)]
    builder = indexed_dataset.make_builder(str(tmp_path / "a.bin"), impl="mmap", vocab_size=vocabulary)
    for row in rows:
        builder.add_item(torch.from_numpy(row).int())
    builder.finalize(str(tmp_path / "a.idx"))
    chunks = [
        (np.concatenate(part), np.array([len(row) for row in part], dtype=np.int64))
        for part in (rows[:2], rows[2:])
    ]
    write_indexed(tmp_path / "b", chunks, vocabulary)
    for ending in ("bin", "idx"):
        assert (tmp_path / f"b.{ending}").read_bytes() == (tmp_path / f"a.{ending}").read_bytes()
    found = indexed_dataset.MMapIndexedDataset(str(tmp_path / "b"))
    assert [row.tolist() for row in found] == [row.tolist() for row in rows]


@pytest.mark.parametrize(
    "labels", [["b"] * 3 + ["a"] * 3 + ["c"] * 4, ["1", "0", "1"], [str(i % 13) for i in range(40)], ["x"]]
)
def test_label_dictionary_equals_fairseqs(labels: list[str], tmp_path: Path) -> None:
    file = write(tmp_path / "train.label", labels)
    expected = Dictionary()
    Dictionary.add_file_to_dictionary(str(file), expected, tokenize_line, 1)
    expected.finalize(threshold=0, nwords=-1, padding_factor=8)
    found = label_dictionary(labels)
    expected.save(str(tmp_path / "expected.txt"))
    found.save(str(tmp_path / "found.txt"))
    assert found.symbols == expected.symbols and len(found) % 8 == 0
    assert (tmp_path / "found.txt").read_bytes() == (tmp_path / "expected.txt").read_bytes()
