"""Checks that the tests notice mistakes: makes each mutation of mutations.py, runs the test that has to fail.

    python tests/mutate.py [--list] [NUMBER_OR_SUBSTRING ...]

All named tests run first, and have to pass. Everything happens in a copy in a temporary folder. A mutation is
noticed if its test fails; an error outside the test, or a test that takes too long, does not count. The exit
status is 0 if all mutations are noticed, 1 if not, 2 if they could not be tried.

mutmut and cosmic-ray change every line by rules and run all tests on each change, which would take weeks
here; and neither takes a list of mistakes that someone could make, each with the test that sees it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Sequence

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parent.parent
COPIED = [
    "fairseq_adv", "fairseq_adv_compat", "tests", "examples", "scripts", "benchmarks", "pyproject.toml",
    "setup.py",
]  # fmt: skip
TIMEOUT = 300.0  # seconds for one mutation


class CannotTry(Exception):
    """The mutations or the checkout have to be changed first."""


def main(argv: Sequence[str], root: Path = ROOT, mutations: Sequence[Mutation] = MUTATIONS) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Checks that the tests notice mistakes in the code.")
    parser.add_argument("--list", action="store_true", help="only list the mutations")
    parser.add_argument("wanted", nargs="*", metavar="NUMBER_OR_SUBSTRING", help="which; default: all")
    args = parser.parse_args(argv)
    numbered = enumerate(mutations, start=1)
    chosen = {n: m for n, m in numbered if not args.wanted or any(_is(word, n, m) for word in args.wanted)}
    if args.list:
        for number, mutation in chosen.items():
            print(f"{number:3}  {mutation.file}: {mutation.breaks}\n     {mutation.test}")
        return 0
    try:
        return try_all(root, chosen)
    except CannotTry as error:
        print(f"mutate.py: {error}", file=sys.stderr)
        return 2


def _is(word: str, number: int, mutation: Mutation) -> bool:
    texts = (mutation.file, mutation.test, mutation.breaks)
    return number == int(word) if word.isdigit() else any(word in text for text in texts)


def mutated(root: Path, mutation: Mutation) -> str:
    """The text of the mutated file.

    Raises:
        CannotTry: ``old`` does not occur exactly once in it.
    """
    text = (root / mutation.file).read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise CannotTry(
            f"{mutation.old!r} occurs {text.count(mutation.old)} times in {mutation.file}, expected once; "
            "update tests/mutations.py"
        )
    return text.replace(mutation.old, mutation.new)


def try_all(root: Path, chosen: dict[int, Mutation]) -> int:
    """Prints a line for each mutation; returns the exit status."""
    texts = {number: mutated(root, mutation) for number, mutation in chosen.items()}
    with tempfile.TemporaryDirectory(prefix="mutate-") as temporary:
        copy, unnoticed = Path(temporary), 0
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / name).is_file():
                shutil.copy2(root / name, copy / name)
        outcome = run_tests(
            copy, [mutation.test for mutation in chosen.values()], TIMEOUT * max(len(chosen), 1)
        )
        if outcome != "passed":
            raise CannotTry(f"without a mutation: {outcome}")
        for number, mutation in chosen.items():
            original = (copy / mutation.file).read_text(encoding="utf-8")
            (copy / mutation.file).write_text(texts[number], encoding="utf-8")
            outcome = run_tests(copy, [mutation.test])
            (copy / mutation.file).write_text(original, encoding="utf-8")
            result = "noticed" if outcome == "failed" else f"NOT NOTICED ({outcome})"
            unnoticed += outcome != "failed"
            print(f"{number:3}  {result}: {mutation.file}: {mutation.breaks}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} mutations noticed")
    return 1 if unnoticed else 0


def run_tests(folder: Path, tests: Sequence[str], timeout: float = TIMEOUT) -> str:
    """``passed``, ``failed`` (in the call of a test), or what else happened. Stops at the first failure."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-o",
        "addopts=",
        "--rootdir",
        ".",
        *dict.fromkeys(tests),
    ]
    # Without plug-ins of pytest: none is needed. The copy comes before an installed package: -m has the
    # working folder first on its path.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
    for name in ("PYTEST_ADDOPTS", "PYTHONSAFEPATH", "PYTHONPATH"):
        env.pop(name, None)
    with tempfile.TemporaryFile("w+") as log:  # no pipe: what a test leaves running would hold it open
        try:
            subprocess.run(words, cwd=folder, env=env, stdout=log, stderr=log, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return f"more than {timeout:g} s"
        log.seek(0)
        text = log.read().strip()
    last = text.splitlines()[-1] if text else ""
    if " error" in last or "skipped" in last or ("passed" not in last and "failed" not in last):
        return text[-4000:]
    return "failed" if "failed" in last else "passed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
