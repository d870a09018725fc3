"""Checks that the tests notice mistakes: makes each mutation of mutations.py, runs the test that has to fail.

    python tests/mutate.py [--jobs N] [--list] [NUMBER_OR_SUBSTRING ...]

All named tests run first, and have to pass. Everything happens in copies in a temporary folder. A mutation is
noticed if its test fails; an error outside the test and a test that takes too long do not count. The exit
status is 0 if all mutations are noticed, 1 if not, 2 if they could not be tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Sequence
from xml.etree import ElementTree

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parent.parent
COPIED = [
    "fairseq_adv", "fairseq_adv_compat", "tests", "examples", "scripts", "benchmarks",
    "pyproject.toml", "setup.py",
]  # fmt: skip
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*_cache", "*.pt")
TIMEOUT = 120.0  # seconds for one mutation
PASSED, FAILED = "the test passed", "the test failed"


class CannotTry(Exception):
    """The mutations or the checkout have to be changed first."""


def main(argv: Sequence[str], root: Path = ROOT, mutations: Sequence[Mutation] = MUTATIONS) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Checks that the tests notice mistakes in the code.")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutations tried at a time")
    parser.add_argument("--list", action="store_true", help="only list the mutations")
    parser.add_argument(
        "wanted", nargs="*", metavar="NUMBER_OR_SUBSTRING", help="which; default: all of them"
    )
    args = parser.parse_args(argv)
    try:
        chosen = select(mutations, args.wanted)
        if args.list:
            for number, mutation in chosen:
                print(f"{number:3}  {mutation.file}: {mutation.breaks}\n     {mutation.test}")
            return 0
        for number, mutation in chosen:
            mutated(root, number, mutation)
        return try_all(root, chosen, max(args.jobs, 1))
    except CannotTry as error:
        print(f"mutate.py: {error}", file=sys.stderr)
        return 2


def select(mutations: Sequence[Mutation], wanted: Sequence[str]) -> list[tuple[int, Mutation]]:
    """The mutations with their numbers, from 1.

    Raises:
        CannotTry: a number or substring matches none.
    """
    numbered = list(enumerate(mutations, start=1))
    if not wanted:
        return numbered
    chosen: dict[int, Mutation] = {}
    for word in wanted:
        found = {n: m for n, m in numbered if _matches(word, n, m)}
        if not found:
            raise CannotTry(f"no mutation matches {word!r}; --list shows them")
        chosen.update(found)
    return sorted(chosen.items(), key=lambda item: item[0])


def _matches(word: str, number: int, mutation: Mutation) -> bool:
    if word.isdigit():
        return int(word) == number
    return any(word in text for text in (mutation.file, mutation.test, mutation.breaks))


def mutated(root: Path, number: int, mutation: Mutation) -> str:
    """The text of the mutated file.

    Raises:
        CannotTry: there is no such file, or ``old`` does not occur exactly once in it.
    """
    path = root / mutation.file
    if not path.is_file():
        raise CannotTry(f"mutation {number}: {path} does not exist")
    text = path.read_text(encoding="utf-8")
    count = text.count(mutation.old)
    if count != 1:
        raise CannotTry(
            f"mutation {number}: {mutation.old!r} occurs {count} times in {mutation.file}, expected once; "
            "update tests/mutations.py"
        )
    return text.replace(mutation.old, mutation.new)


def try_all(root: Path, chosen: Sequence[tuple[int, Mutation]], jobs: int) -> int:
    """Prints a line for each mutation; returns the exit status.

    Raises:
        CannotTry: a test does not pass without a mutation, or would not test the copy.
    """
    with tempfile.TemporaryDirectory(prefix="mutate-") as temporary:
        base = Path(temporary) / "base"
        copy_checkout(root, base)
        check_imports(base, {Path(mutation.file).parts[0] for _, mutation in chosen})
        tests = list(dict.fromkeys(mutation.test for _, mutation in chosen))
        begun = time.monotonic()
        outcome = run_tests(base, tests, timeout=TIMEOUT * len(tests))
        if outcome != PASSED:
            log = (base / "pytest.log").read_text(encoding="utf-8", errors="replace")
            raise CannotTry(f"without a mutation, {outcome}\n{log[-4000:]}")
        print(f"without a mutation, {len(tests)} tests pass: {time.monotonic() - begun:.1f} s", flush=True)

        def attempt(item: tuple[int, Mutation]) -> bool:
            number, mutation = item
            begun = time.monotonic()
            folder = base.with_name(str(number))
            shutil.copytree(base, folder)  # with the compiled files, which are still those of its sources
            (folder / mutation.file).write_text(mutated(folder, number, mutation), encoding="utf-8")
            outcome = run_tests(folder, [mutation.test])
            shutil.rmtree(folder, ignore_errors=True)
            result = "noticed" if outcome == FAILED else "NOT NOTICED"
            reason = "" if outcome == FAILED else f" ({outcome})"
            seconds = time.monotonic() - begun
            text = f"{number:3}  {result:11}  {seconds:5.1f} s  {mutation.file}: {mutation.breaks}{reason}"
            print(text, flush=True)
            return outcome == FAILED

        with ThreadPoolExecutor(jobs) as pool:
            noticed = sum(pool.map(attempt, chosen))
    print(f"{noticed} of {len(chosen)} mutations noticed")
    return 0 if noticed == len(chosen) else 1


def copy_checkout(root: Path, target: Path) -> None:
    """What the tests need of the checkout."""
    target.mkdir()
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=NOT_COPIED)
        elif (root / name).is_file():
            shutil.copy2(root / name, target / name)


def check_imports(folder: Path, packages: set[str]) -> None:
    """An installed package must not come before the copy.

    Raises:
        CannotTry: it does.
    """
    code = "import importlib.util as u, sys; print(*(u.find_spec(n).origin for n in sys.argv[1:]), sep='\\n')"
    words = [sys.executable, "-c", code, *sorted(packages)]
    done = subprocess.run(
        words, cwd=folder, env=_environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    for line in done.stdout.splitlines():
        if folder.resolve() not in Path(line).resolve().parents:
            raise CannotTry(f"tests in {folder} would import {line}; is PYTHONSAFEPATH set?")


def run_tests(folder: Path, tests: Sequence[str], timeout: float = TIMEOUT) -> str:
    """:data:`PASSED`, :data:`FAILED` (in the call of a test), or what else happened.

    Stops at the first failure. pytest's output is in ``folder/pytest.log``.
    """
    report = folder / "pytest.xml"
    words = [
        sys.executable, "-m", "pytest", "-x", "-q", "-o", "addopts=", "--rootdir", ".",
        "-p", "no:cacheprovider", "--junitxml", str(report), *tests,
    ]  # fmt: skip
    report.unlink(missing_ok=True)
    with open(folder / "pytest.log", "wb") as log:  # no pipe: what a test leaves running would hold it open
        try:
            done = subprocess.run(
                words, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the test took more than {timeout:g} s"
    cases = list(ElementTree.parse(report).iter("testcase")) if report.is_file() else []
    if any(case.find("failure") is not None for case in cases):
        return FAILED
    if done.returncode == 0 and cases and not any(case.find("skipped") is not None for case in cases):
        return PASSED
    return "a test was skipped" if done.returncode == 0 else "there was an error outside the test"


def _environment() -> dict[str, str]:
    """Without plug-ins of pytest: none is needed, and some take a second to import."""
    ours = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    return {**ours, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
