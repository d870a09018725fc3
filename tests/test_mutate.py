"""The list of mutations fits the code and the tests, and the command reports what each one does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mutate import main, mutated, run_tests
from mutations import MUTATIONS, Mutation

ADD = Mutation(
    "fairseq_adv/sums.py", "a + b", "a - b", "tests/test_sums.py::test_add", "the second number is subtracted"
)
BROKEN = replace(ADD, new="a +", breaks="the file cannot be imported")
UNTESTED = replace(ADD, test="tests/test_sums.py::test_nothing", breaks="its test does not depend on it")
SKIPPED = replace(ADD, test="tests/test_sums.py::test_skipped", breaks="its test does not run")
SUMS = "import pytest\nfrom fairseq_adv.sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
SUMS += "def test_nothing():\n    assert add(1, 0) == 1\ndef test_skipped():\n    pytest.skip()\n"


def test_each_mutation_changes_one_place_of_some_room_and_its_test_exists(repo: Path) -> None:
    counts = Counter(Path(mutation.file).parts[1] for mutation in MUTATIONS)
    assert {
        "criterions",
        "data",
        "evaluation",
        "fairseq_patches",
        "objectives",
        "perturbation",
    } <= counts.keys()
    assert len(MUTATIONS) >= 60 and len({(m.file, m.old, m.new) for m in MUTATIONS}) == len(MUTATIONS)
    for mutation in MUTATIONS:
        ast.parse(mutated(repo, mutation))
        assert mutation.old != mutation.new
        file, _, name = mutation.test.partition("::")
        tree = ast.parse((repo / file).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions, mutation


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout in which there is almost nothing."""
    for name, text in {
        "fairseq_adv/__init__.py": "",
        "fairseq_adv/sums.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sums.py": SUMS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_command_reports_what_is_noticed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkout stays as it is."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert main([], project, [ADD, UNTESTED, BROKEN]) == 1
    text = capsys.readouterr().out
    assert "  1  noticed: fairseq_adv/sums.py: the second number is subtracted\n" in text
    assert "  2  NOT NOTICED (passed): fairseq_adv/sums.py: its test does not depend on it\n" in text
    assert re.search(
        r"  3  NOT NOTICED \((?s:.*)SyntaxError(?s:.*)\): .* the file cannot be imported\n", text
    )
    assert text.endswith("1 of 3 mutations noticed\n")
    assert main(["subtracted"], project, [ADD, UNTESTED]) == 0
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_what_cannot_be_tried_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], project, [replace(ADD, old="a * b")]) == 2
    assert "'a * b' occurs 0 times in fairseq_adv/sums.py, expected once" in capsys.readouterr().err
    assert main([], project, [SKIPPED]) == 2
    assert "1 skipped" in capsys.readouterr().err
    assert run_tests(project, [ADD.test], timeout=0.01) == "more than 0.01 s"
