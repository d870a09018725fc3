"""The files that the method index names, code and tests, are there."""

from __future__ import annotations

import re

import pytest
from documents import ROOT

PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
# In the repositories of the papers' authors.
THEIRS = {"token_vat.py", "local_robust_trainer.py", "modeling_bert.py", "modeling_roberta.py"}
OURS = [path for folder in ("fairseq_adv", "tests") for path in (ROOT / folder).rglob("*.py")]


def named(text: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", text)


def faults(text: str) -> list[str]:
    paths = [f"/{path.relative_to(ROOT)}" for path in OURS]
    return [
        file
        for file in named(text)
        if file not in THEIRS and not any(path.endswith(f"/{file}") for path in paths)
    ]


def test_what_the_index_names_is_there() -> None:
    assert not faults(PAGE)
    assert len({*named(PAGE)} - THEIRS) > 20


@pytest.mark.parametrize("file", ["criterions/gone.py", "test_gone.py"])
def test_what_is_gone_is_told(file: str) -> None:
    assert faults(f"See `{file}`, `training/trainer.py`, `test_freeat.py`.") == [file]
