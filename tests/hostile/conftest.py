"""A trained model, and what an attacker makes of its checkpoint."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trained_films import train_films

from fairseq_adv_compat import checkpoints

Change = Callable[[dict[str, Any], Path], None]


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/, and save/checkpoint_best.pt of text_classification with its tokenizer beside it."""
    return train_films(tmp_path_factory.mktemp("films"), "text_classification")


@pytest.fixture
def hostile(films: Path, tmp_path: Path) -> Callable[[Change], Path]:
    """Makes a copy of the model's folder whose checkpoint was changed; returns the checkpoint.

    The change gets the content of the checkpoint and the path of a canary, a file that code in it would make.
    """

    def made(change: Change) -> Path:
        folder = shutil.copytree(films / "save", tmp_path / "save", dirs_exist_ok=True)
        with (films / "save" / "checkpoint_best.pt").open("rb") as file:
            state = checkpoints.load(file, "cpu")
        change(state, tmp_path / "canary")
        torch.save(state, folder / "checkpoint_best.pt")
        return folder / "checkpoint_best.pt"

    return made


@pytest.fixture
def two_gigabytes_more() -> Any:
    """An attack on memory fails the test instead of the machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
