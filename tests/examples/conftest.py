"""Fixtures of the tests of examples/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra


@pytest.fixture(autouse=True)
def hydra_session() -> Iterator[None]:
    """hydra's one global state, empty before and after."""
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The encoder's folder for a recipe, made once; its data lie in ``data``."""
    from recipes import AS_THEY_ARE, CLASSES, PRETRAINING, tiny_encoder

    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        kind = "roberta_base" if name in PRETRAINING else "commonsense_qa"
        if name in CLASSES:
            kind = name if name in AS_THEY_ARE else "glue"
        if kind not in made:
            made[kind] = tiny_encoder(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return folder
