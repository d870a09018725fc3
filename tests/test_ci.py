"""The files that hosted CI and pre-commit read: their syntax, and that they name what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml
from support import command, run_from_scratch

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_have_the_syntax_of_github(tmp_path: Path) -> None:
    """A broken one would be noticed."""
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    words = [command("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    done = run_from_scratch(*words, *map(str, WORKFLOWS), str(broken))
    assert done.returncode == 1 and "runs-on" in done.stdout
    assert not any(path.name in done.stdout for path in WORKFLOWS), done.stdout


def test_pre_commit_reads_its_file() -> None:
    config = ROOT / ".pre-commit-config.yaml"
    done = run_from_scratch(command("pre-commit"), "validate-config", str(config))
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
    assert cells == set(measured) and len(cells) == 10


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
