"""Data of all objectives, which no test writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from criterions.restated import write_all


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each objective, of three classes where it has classes."""
    return write_all(tmp_path_factory.mktemp)
