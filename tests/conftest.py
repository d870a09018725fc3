"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/support.py
# fairseq installs torchaudio, which fails to load beside a CPU build of a newer torch. Nothing here needs it,
# but transformers imports it where it finds it: let it find none.
sys.modules["torchaudio"] = None  # type: ignore[assignment]

from fairseq_adv_compat import machine, newer_versions  # noqa: E402

# pytest's import hook takes the modules of hydra, which is a plug-in of pytest, before the .pth's hook can.
newer_versions.prepare_python(pytest)
newer_versions.find_plugins(import_module("hydra.core.plugins"))

# fairseq-adv train makes the same runs on every machine: those without bf16 instructions. The tests of
# --precision name others.
machine.CPUINFO = Path(os.devnull)

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_finish() -> None:
    """What is imported by now stays: a search for cycles need not look at it again, a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of two classes, to be read only."""
    from support import write_task

    return write_task(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real benchmark files that lie beside the checkout and are no part of it."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"needs the real benchmark files in {path}, which are no part of the project")
    return path


@pytest.fixture(scope="session")
def reviews_folder() -> Path:
    """The sentences of ``fairseq-adv fetch reviews``, kept in .cache; fetched if they are not there yet."""
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.fetch import fetch_reviews

    folder = ROOT / ".cache" / "reviews"
    try:
        fetch_reviews(folder)
    except (DataError, OSError) as error:
        pytest.skip(f"needs the labelled sentences, which could not be fetched: {error}")
    return folder
