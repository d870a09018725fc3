"""scripts/setup_env.sh makes a real environment, for a project that needs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_command

pytestmark = pytest.mark.slow  # asks the package index

SETUP = """from setuptools import setup
extras = {"test": [], "plots": []}
setup(name="needs_nothing", version="1", py_modules=["needs_nothing"], extras_require=extras)
"""


@pytest.fixture
def project(repo: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(repo / "scripts" / "setup_env.sh", folder / "scripts")
    (folder / "setup.py").write_text(SETUP)
    for name in ("constraints.txt", "fairseq_adv_compat.pth", "needs_nothing.py"):
        (folder / name).touch()
    return folder


def set_up(project: Path, path: str) -> subprocess.CompletedProcess[str]:
    places = {"PYTHON": sys.executable, "VENV": str(project / ".venv"), "PATH": path}
    return run_command("bash", str(project / "scripts" / "setup_env.sh"), **places)


def output(project: Path, *words: str) -> str:
    python = project / ".venv" / "bin" / "python"
    return subprocess.run([python, *words], capture_output=True, text=True, check=True).stdout


def path_without_uv() -> str:
    found = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in found if not (Path(folder) / "uv").exists())


@pytest.mark.parametrize("before", ["23.0", "24.2"])
def test_pip_is_brought_to_24_0(project: Path, before: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", project / ".venv"], check=True)
    output(project, "-m", "pip", "install", "--quiet", f"pip=={before}")
    done = set_up(project, path_without_uv())
    assert done.returncode == 0, done.stderr
    assert output(project, "-m", "pip", "--version").startswith("pip 24.0 ")
    output(project, "-c", "import needs_nothing")
    assert "is up to date" in set_up(project, path_without_uv()).stdout


@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv on PATH")
def test_with_uv(project: Path) -> None:
    done = set_up(project, os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    assert "needs-nothing==1" in done.stderr  # uv's own list of what it has installed
    assert output(project, "-m", "pip", "--version").startswith("pip 24.0 ")
    output(project, "-c", "import needs_nothing")
