"""The files that hosted CI and pre-commit read: their syntax, and that they name what is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import command, run_command

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_have_the_syntax_of_github(tmp_path: Path) -> None:
    """A broken one would be noticed."""
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    words = [command("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    done = run_command(*words, *map(str, WORKFLOWS), str(broken))
    assert done.returncode == 1 and "runs-on" in done.stdout
    assert not any(path.name in done.stdout for path in WORKFLOWS), done.stdout


def test_pre_commit_reads_its_file() -> None:
    config = ROOT / ".pre-commit-config.yaml"
    done = run_command(command("pre-commit"), "validate-config", str(config))
    assert done.returncode == 0, done.stdout
    repositories = {
        repo["repo"].rsplit("/", 1)[-1]: repo for repo in yaml.safe_load(config.read_text())["repos"]
    }
    assert set(repositories) == {"ruff-pre-commit", "codespell"}
    pinned = dict(re.findall(r"^(ruff|codespell)==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.M))
    assert repositories["ruff-pre-commit"]["rev"] == f"v{pinned['ruff']}"
    assert repositories["codespell"]["rev"] == f"v{pinned['codespell']}"


def steps(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_matrix_is_that_of_the_table() -> None:
    """The oldest and the newest torch of each Python, as scripts/compat_matrix.sh measures them."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    cells = {
        (cell["python"], cell["torch"], cell["numpy"])
        for cell in jobs["matrix"]["strategy"]["matrix"]["include"]
    }
    script = (ROOT / "scripts" / "compat_matrix.sh").read_text()
    measured = re.findall(r"^[\d.]+-(?:oldest|newest) +(\S+) +(\S+) +(\S+)", script, re.M)
    assert cells == set(measured) and len(cells) == 9


def test_jobs_run_what_is_there() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    lines = [line for job in jobs.values() for line in steps(job)]
    lines += [cell["command"] for cell in jobs["nightly"]["strategy"]["matrix"]["include"]]
    words = [word for line in lines for word in shlex.split(line)]
    files = [word for word in words if re.match(r"(\.ci|scripts|tests)/", word)]
    assert {".ci/run", "scripts/test.sh", "tests/mutate.py"} <= set(files)
    assert all((ROOT / file).is_file() for file in files)


def test_the_lanes_of_the_script() -> None:
    """Each lane's marker is one that pytest knows."""
    script = (ROOT / "scripts" / "test.sh").read_text()
    chosen = re.findall(r"lane=\(-m (?:'([^']+)'|(\w+))", script)
    lanes = {word for lane in chosen for word in " ".join(lane).split()} - {"not", "and"}
    markers = re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(), re.M)
    assert lanes == {"fast", "slow", "slurm"}
    assert set(markers) == {*lanes, "gpu", "timing"}


# --- .ci/run

STANDS_IN = """#!/usr/bin/env bash
words="$0 $*"
case "$words" in
    *python*ElementTree*) exec python3 "$@" ;;
    *"$FAILS"*) exit 3 ;;
    *--junitxml=*) echo "<testsuites><testsuite skipped='$SKIPPED'/></testsuites>" >"${words##*=}" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository with .ci/run, in which stand-ins of what it calls pass, or fail with status 3."""
    folder = tmp_path / "checkout"
    calls = [f"env/bin/{name}" for name in ("python", "ruff", "codespell", "mypy")]
    for name in (".ci/run", "scripts/setup_env.sh", "scripts/test.sh", *calls):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name != ".ci/run":
            (folder / name).write_text(STANDS_IN)
            (folder / name).chmod(0o755)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    for words in (["init", "--quiet"], ["add", ".ci"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def ci_run(checkout: Path, *words: str, fails: str = "nothing", **changed: str) -> tuple[int, str]:
    """Its exit status, and what it says."""
    places = {"VENV": str(checkout / "env"), "FAILS": fails, "SKIPPED": "41", "SKIPS": "", **changed}
    done = run_command(str(checkout / ".ci" / "run"), *words, **places)
    return done.returncode, done.stdout.split("\n== tests\n")[-1] + done.stderr


def test_ci_ends_with_the_number_of_skipped_tests(checkout: Path) -> None:
    """And with an error where there are more than expected; how many a choice of tests has is not known."""
    assert ci_run(checkout) == (0, "== 41 tests were skipped\n")
    status, told = ci_run(checkout, SKIPPED="42")
    assert (
        status == 1
        and told.startswith("== 42 tests were skipped\nerror: more than 41 tests were skipped")
        and "SKIPS=42" in told
    )
    assert ci_run(checkout, SKIPPED="42", SKIPS="42")[0] == ci_run(checkout, "--slow", SKIPPED="42")[0] == 0
    (checkout.parent / "shared" / "data").mkdir(parents=True)
    status, told = ci_run(checkout)
    assert status == 1 and "error: more than 7 tests were skipped" in told
    assert ci_run(checkout, SKIPPED="7") == (0, "== 7 tests were skipped\n")


@pytest.mark.parametrize(
    "fails",
    ["scripts/setup_env.sh", "ruff check", "ruff format --check", "codespell", "mypy", "scripts/test.sh"],
)
def test_ci_fails_with_each_of_its_steps(checkout: Path, fails: str) -> None:
    assert ci_run(checkout, fails=fails)[0] != 0


@pytest.mark.parametrize(
    ("git", "told"),
    [
        ("exit 127", ""),
        ("echo 'fatal: detected dubious ownership' >&2; exit 128", "fatal: detected dubious ownership"),
        ('[[ " $* " != *" -z "* ]] || exit 128', None),  # it refuses later
    ],
)
def test_ci_fails_where_git_does(checkout: Path, git: str, told: str | None) -> None:
    """Else spelling and scripts would be checked in no file at all."""
    (checkout / "env" / "bin" / "git").write_text(f"#!/usr/bin/env bash\n{git}\n")
    (checkout / "env" / "bin" / "git").chmod(0o755)
    path = os.pathsep.join([str(checkout / "env" / "bin"), os.environ["PATH"]])
    status, said = ci_run(checkout, PATH=path)
    assert status != 0
    if told is not None:
        assert said == f"error: .ci/run checks the files that git lists; here it lists none: {told}\n"
