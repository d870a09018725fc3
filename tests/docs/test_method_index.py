"""The code that the method index names is there: files, classes with their members, and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from documents import ROOT

PACKAGE = ROOT / "fairseq_adv"
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
# In the repositories of the papers' authors.
THEIRS = {"token_vat.py", "local_robust_trainer.py", "modeling_bert.py", "modeling_roberta.py"}


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Of its body, and what its methods assign to ``self``; their local names are none."""
    for part in ast.walk(node):
        if part in node.body and isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            yield part.name
        elif isinstance(part, (ast.Assign, ast.AnnAssign)):
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                if isinstance(target, ast.Attribute):
                    yield target.attr
                elif isinstance(target, ast.Name) and part in node.body:
                    yield target.id


def _classes() -> dict[str, tuple[set[str], list[str]]]:
    """Of each class of the package: its own members, and its bases."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name] = set(_members(node)), [ast.unparse(base) for base in node.bases]
    return found


CLASSES = _classes()


def _has(name: str, member: str) -> bool:
    members, bases = CLASSES.get(name, (set(), []))
    return member in members or any(_has(base.split(".")[-1], member) for base in bases)


def faults(text: str) -> list[str]:
    code = re.findall(r"`([^`\n]+)`", text)
    paths = [str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")]
    found = [
        file
        for file in code
        if re.fullmatch(r"[\w/]+\.py", file)
        and file not in THEIRS
        and not any(f"/{path}".endswith(f"/{file}") for path in paths)
        and not (ROOT / file).is_file()
    ]
    for words in code:
        named = re.fullmatch(r"([A-Z]\w+)\.(\w+)", words)
        if named and named[1] in CLASSES and not _has(named[1], named[2]):
            found.append(words)
    return found


def test_what_the_index_names_is_there() -> None:
    assert not faults(PAGE)
    assert len(re.findall(r"`[A-Z]\w+\.\w+`", PAGE)) > 40


@pytest.mark.parametrize(
    "text",
    ["`criterions/gone.py`", "`FreeLBCriterion.gone`"],
)
def test_what_is_gone_is_told(text: str) -> None:
    assert faults(f"See {text}, `criterions/freelb.py`, `FreeLBCriterion.clean_pass`.") == [text.strip("`")]
