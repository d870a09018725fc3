"""scripts/setup_env.sh makes a real environment, for a project that needs little."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_command

slow = pytest.mark.slow  # asks the package index

SETUP = """from setuptools import setup
setup(
    name="needs_little", version="1", py_modules=["needs_little"], extras_require={"test": [], "plots": []},
    install_requires=["omegaconf==2.0.6"],  # pip 24.1 and later refuse its metadata
)
"""


@pytest.fixture
def project(repo: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    for name in ("setup_env.sh", "repack_wheels.py"):
        shutil.copy(repo / "scripts" / name, folder / "scripts")
    (folder / "setup.py").write_text(SETUP)
    for name in ("constraints.txt", "fairseq_adv_compat.pth", "needs_little.py"):
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


def test_no_other_folder_is_emptied(project: Path) -> None:
    """As that of an active conda environment without Python, or with another one, or a venv of somebody."""
    mine = project / ".venv" / "conda-meta" / "history"
    mine.parent.mkdir(parents=True)
    mine.touch()
    (project / ".venv" / "fairseq_adv.stamp").write_text("of an installation there\n")
    python = project / ".venv" / "bin" / "python"
    for there in ("", "conda", "venv"):
        if there == "venv":
            (project / ".venv" / "pyvenv.cfg").touch()
            (python.parent / "activate").touch()
        elif there:
            python.parent.mkdir()
            python.write_text("#!/bin/sh\necho 3.9.9\n")
            python.chmod(0o755)
        done = set_up(project, os.environ["PATH"])
        assert (
            done.returncode == 2 and "Nothing was changed. Delete it if it is this project's" in done.stderr
        )
        assert mine.exists()


def test_a_conda_environment_of_this_python_is_used(project: Path) -> None:
    """It has neither a pyvenv.cfg nor bin/activate."""
    python = project / ".venv" / "bin" / "python"
    (project / ".venv" / "conda-meta").mkdir(parents=True)
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (project / "scripts" / "repack_wheels.py").write_text("raise SystemExit(3)\n")  # so far and no further
    done = run_command(
        "bash", str(project / "scripts" / "setup_env.sh"), PYTHON="", VENV=str(project / ".venv")
    )
    assert done.returncode == 3 and "== creating" not in done.stdout, done.stderr


def test_an_environment_that_was_left_half_made_is_made_again(project: Path) -> None:
    """As without Debian's python3-venv: ``bin/activate`` is written after pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / ".venv"], check=True)
    (project / ".venv" / "bin" / "activate").unlink()
    (project / "scripts" / "repack_wheels.py").write_text("raise SystemExit(3)\n")  # so far and no further
    places = {"PYTHON": "", "VENV": str(project / ".venv")}
    words = "bash", str(project / "scripts" / "setup_env.sh")
    done = run_command(*words, **places)
    assert done.returncode == 3 and "== creating" in done.stdout, done.stderr
    assert "pip" in output(project, "-m", "pip", "--version")
    assert (
        "== creating" not in run_command("bash", str(project / "scripts" / "setup_env.sh"), **places).stdout
    )


@slow
@pytest.mark.parametrize("before", ["==23.0", "==24.2", ""])
def test_any_pip_installs_and_stays(project: Path, before: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", project / ".venv"], check=True)
    output(project, "-m", "pip", "install", "--quiet", "--upgrade", f"pip{before}")
    pip = output(project, "-m", "pip", "--version")
    done = set_up(project, path_without_uv())
    assert done.returncode == 0, done.stderr
    assert output(project, "-m", "pip", "--version") == pip
    output(project, "-c", "import needs_little, omegaconf")
    assert "is up to date" in set_up(project, path_without_uv()).stdout


@slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv on PATH")
def test_with_uv(project: Path) -> None:
    done = set_up(project, os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    assert "needs-little==1" in done.stderr  # uv's own list of what it has installed
    output(project, "-c", "import needs_little, omegaconf")


@slow
def test_a_file_of_another_hash_is_not_used(repo: Path, tmp_path: Path) -> None:
    script = tmp_path / "repack_wheels.py"
    text = (repo / "scripts" / "repack_wheels.py").read_text(encoding="utf-8")
    script.write_text(text.replace("9e349fd7", "00000000"), encoding="utf-8")
    done = run_command(sys.executable, str(script), str(tmp_path / "wheels"))
    assert done.returncode == 1 and done.stderr.startswith("error: omegaconf-2.0.6-py3-none-any.whl was not")
    assert list((tmp_path / "wheels").iterdir()) == []
