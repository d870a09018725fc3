"""Fixtures of the tests of examples/."""

from __future__ import annotations

from typing import Iterator

import pytest
from hydra.core.global_hydra import GlobalHydra


@pytest.fixture
def hydra_session() -> Iterator[None]:
    """hydra's one global state, empty before and after."""
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()
