"""Every reader takes a damaged file or refuses it as a user's mistake: never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import damaged, fuzz
from readers import READERS
from support import slow

from fairseq_adv.data.errors import DataError


def is_told(error: ValueError, folder: Path) -> bool:
    """In a few lines that name the file."""
    assert type(error) in (DataError, ValueError), repr(error)
    assert str(folder) in str(error) or "--shards" in str(error), error
    assert len(str(error)) < 1000, error
    return True


@pytest.mark.parametrize("examples", [50, slow(600)])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file(name: str, examples: int, tmp_path: Path) -> None:
    reader = READERS[name]
    tmp_path = tmp_path / "folder"
    tmp_path.mkdir()
    reader.make(tmp_path)
    reader.read(tmp_path)  # a good one is taken
    file = tmp_path / reader.file
    good = file.read_bytes()

    def check(content: bytes) -> bool:
        file.write_bytes(content)
        try:
            reader.read(tmp_path)
        except ValueError as error:
            return is_told(error, tmp_path)
        return False

    assert fuzz(check, damaged(good), examples), "no change was noticed"
