"""Every reader takes a damaged file or refuses it as a user's mistake: never with a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fuzzing import damaged, fuzz, json_documents, other_values
from readers import JSON_READERS, READERS, Reader
from support import slow

from fairseq_adv.data.errors import DataError


def is_told(error: ValueError, folder: Path) -> bool:
    """In a few lines that name the file."""
    assert type(error) is DataError, repr(error)
    assert str(folder) in str(error) or "--shards" in str(error), error
    assert len(str(error)) < 1000, error
    return True


def checked(reader: Reader, folder: Path) -> tuple[Callable[[bytes], bool], bytes]:
    """A function that tells whether the reader refuses other bytes in its file; and the good ones."""
    folder.mkdir()
    reader.make(folder)
    reader.read(folder)  # a good one is taken
    file = folder / reader.file

    def check(content: bytes) -> bool:
        file.write_bytes(content)
        try:
            reader.read(folder)
        except ValueError as error:
            return is_told(error, folder)
        return False

    return check, file.read_bytes()


def cases(names: Iterable[str], often: Sequence[str]) -> list[Any]:
    """Name and number of examples: those in ``often``, each read by other code, in the default lane."""
    return [*((name, 50) for name in often), *(slow(name, 600) for name in names)]


OFTEN = (
    "csv", "jsonl", "classes", "MRPC", "wnli", "snli", "arc", "race", "regents", "wsc", "tags",
    "predicted tags", "squad", "corpus", "corpus.zst", "sentences", "dict.txt", "tokenizer.json",
    "vocab.bpe", "spiece.model", "index", "manifest", "metrics", "submission", "neighbours",
    "wordnet data.noun", "safetensors",
)  # fmt: skip
OFTEN_JSON = (
    "arc",
    "squad",
    "neighbours",
    "counts",
    "manifest",
    "config.json",
    "tokenizer.json",
    "hf config.json",
)


@pytest.mark.parametrize(("name", "examples"), cases(READERS, OFTEN))
def test_a_damaged_file(name: str, examples: int, tmp_path: Path) -> None:
    check, good = checked(READERS[name], tmp_path / "folder")
    assert fuzz(check, damaged(good), examples), "no change was noticed"


@pytest.mark.parametrize(("name", "examples"), cases(JSON_READERS, OFTEN_JSON))
def test_values_of_other_kinds(name: str, examples: int, tmp_path: Path) -> None:
    check, good = checked(READERS[name], tmp_path / "folder")
    assert fuzz(check, other_values(json_documents(good)), examples), "no change was noticed"
