"""Every option with a number, of every verb and script, refuses what can't be meant."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support import all_verbs

import fairseq_adv.cli
from fairseq_adv.cli.script import finite

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / name for name in ("benchmarks", "examples", "examples/evidence")]
# 0 is a number that is meant here.
FROM_ZERO = {
    "--seed", "--seeds", "--task-index", "--dropout", "--start", "--stds", "--ratios", "--alphas", "--starts",
    "--candidates", "--similarity", "--similarity-window", "--max-edits", "--query-budget",
    "--queries-per-word", "--max-flip-rate",
}  # fmt: skip
ANY = {"--threshold"}  # odds are the difference of two scores


def scripts() -> list[str]:
    """The scripts that read a command line with argparse, whatever they call their parser."""
    found = [
        path for folder in ("benchmarks", "examples", "scripts") for path in (ROOT / folder).rglob("*.py")
    ]
    asks = re.compile(r"\.parse_(intermixed_)?args\(")
    return sorted(str(path.relative_to(ROOT)) for path in found if asks.search(path.read_text("utf-8")))


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = ROOT / name
    monkeypatch.setattr(sys, "path", [str(path.parent), *map(str, FOLDERS), *sys.path])
    spec = importlib.util.spec_from_file_location(f"numbers_of_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module.__name__, module)  # for its dataclasses
    spec.loader.exec_module(module)
    return module


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from options_of(verb)
        else:
            yield action


def takes(action: argparse.Action, text: str) -> bool:
    """Whether an option's type takes a text, and makes a number or numbers of it."""
    kind = action.type
    if kind is float:  # what VerbParser registers in its place
        kind = finite
    try:
        value = kind(text) if callable(kind) else text
    except (argparse.ArgumentTypeError, TypeError, ValueError):
        return False
    values = value if isinstance(value, list) else [value]
    return all(isinstance(value, (int, float)) for value in values)


def faults(parser: argparse.ArgumentParser) -> tuple[int, list[str]]:
    """How many options take numbers, and the numbers that they should not take."""
    numbers = [action for action in options_of(parser) if takes(action, "3") or takes(action, "0.5")]
    found = []
    for action in numbers:
        name = action.option_strings[-1] if action.option_strings else action.dest
        wrong = ["inf", "nan", "1e400", "-inf", ""]
        wrong += [] if name in ANY else ["-1"] if name in FROM_ZERO else ["-1", "0"]
        found += [f"{name} {text}" for text in wrong if takes(action, text)]
        is_number = isinstance(action.default, (int, float)) and not isinstance(action.default, bool)
        if is_number and not takes(action, str(action.default)):
            found.append(f"{name}'s default")
    untyped = [a.dest for a in options_of(parser) if a.type is None and type(a.default) in (int, float)]
    return len(numbers), found + [f"{name} has no type" for name in untyped]


def test_of_every_verb() -> None:
    names = [*all_verbs(), "attack --attack pwws", "attack --words spaced"]
    found = {name: faults(fairseq_adv.cli.verb_parser(name.split()))[1] for name in names}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_of_every_script(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: faults(loaded(name, monkeypatch).parser())[1] for name in scripts()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_what_is_looked_at() -> None:
    """The walk reaches the verbs, their sub-verbs and the scripts."""
    parser = argparse.ArgumentParser()
    below = parser.add_subparsers().add_parser("verb")
    below.add_argument("--rows", type=int, default=3)
    below.add_argument("--rate", type=float)
    below.add_argument("--words")
    number, found = faults(parser)
    assert number == 2
    assert found == ["--rows -1", "--rows 0", "--rate -1", "--rate 0"]
    assert {"examples/run.py", "examples/evidence/fill.py", "benchmarks/retrieval.py"} <= set(scripts())
