"""The list of mutations fits the code and the tests, and the command reports what each one does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mutate import CannotTry, main, mutated, run_tests, select
from mutations import MUTATIONS, Mutation

NUMBERED = list(enumerate(MUTATIONS, start=1))
ROOMS = [
    "fairseq_patches",
    "perturbation",
    "objectives",
    "criterions",
    "accordance",
    "tasks",
    "data",
    "models",
    "evaluation",
]
ADD = Mutation(
    "fairseq_adv/sums.py", "a + b", "a - b", "tests/test_sums.py::test_add", "the second number is subtracted"
)
BROKEN = replace(ADD, new="a +", breaks="the file cannot be imported")
UNTESTED = replace(ADD, test="tests/test_sums.py::test_nothing", breaks="its test does not depend on it")
SKIPPED = replace(ADD, test="tests/test_sums.py::test_skipped", breaks="its test does not run")


def test_there_are_mutations_of_every_room() -> None:
    counts = Counter(Path(mutation.file).parts[1] for mutation in MUTATIONS)
    assert len(MUTATIONS) >= 30 and sorted(counts) == sorted(ROOMS) and min(counts.values()) >= 3
    assert len({(mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize(("number", "mutation"), NUMBERED, ids=[str(number) for number, _ in NUMBERED])
def test_a_mutation_changes_one_place_and_its_test_exists(
    repo: Path, number: int, mutation: Mutation
) -> None:
    ast.parse(mutated(repo, number, mutation))
    assert mutation.old != mutation.new
    file, _, name = mutation.test.partition("::")
    tree = ast.parse((repo / file).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name.partition("[")[0] in functions


def test_text_that_does_not_occur_exactly_once_is_refused(repo: Path) -> None:
    first = MUTATIONS[0]
    for old, count in (("no such text", "0 times"), ("return", r"\d+ times")):
        with pytest.raises(
            CannotTry, match=f"^mutation 7: '{old}' occurs {count} in {re.escape(first.file)}"
        ):
            mutated(repo, 7, replace(first, old=old))
    with pytest.raises(CannotTry, match=r"mutation 7: .*nowhere\.py does not exist"):
        mutated(repo, 7, replace(first, file="fairseq_adv/nowhere.py"))


def test_mutations_are_chosen_by_number_and_by_text() -> None:
    mutations = [ADD, BROKEN, UNTESTED]
    assert [number for number, _ in select(mutations, [])] == [1, 2, 3]
    assert [number for number, _ in select(mutations, ["3", "be imported", "3"])] == [2, 3]
    with pytest.raises(CannotTry, match="no mutation matches '4'"):
        select(mutations, ["1", "4"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout in which there is almost nothing."""
    files = {
        "fairseq_adv/__init__.py": "",
        "fairseq_adv/sums.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sums.py": "import pytest\n"
        "from fairseq_adv.sums import add\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_nothing():\n    assert add(1, 0) == 1\n\n\n"
        "def test_skipped():\n    pytest.skip()\n",
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


def test_the_command_reports_what_is_noticed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkout stays as it is."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert main(["--jobs", "2"], project, [ADD, UNTESTED, BROKEN]) == 1
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first.startswith("without a mutation, 2 tests pass")
    found = [re.sub(r" +[\d.]+ s +", " | ", line).strip() for line in sorted(lines)]
    assert found == [
        "1  noticed | fairseq_adv/sums.py: the second number is subtracted",
        "2  NOT NOTICED | fairseq_adv/sums.py: its test does not depend on it (the test passed)",
        "3  NOT NOTICED | fairseq_adv/sums.py: the file cannot be imported (there was an error outside the "
        "test)",
    ]
    assert last == "1 of 3 mutations noticed"
    assert main(["subtracted"], project, [ADD, UNTESTED]) == 0
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_what_cannot_be_tried_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], project, [replace(ADD, old="a * b")]) == 2
    assert "mutation 1: 'a * b' occurs 0 times in fairseq_adv/sums.py" in capsys.readouterr().err
    assert main([], project, [SKIPPED]) == 2
    assert "without a mutation, a test was skipped" in capsys.readouterr().err
    assert main(["--list", "sums"], project, [ADD]) == 0
    assert ADD.breaks in capsys.readouterr().out


def test_a_test_that_takes_too_long_did_not_fail(project: Path) -> None:
    assert run_tests(project, [ADD.test], timeout=0.01) == "the test took more than 0.01 s"
