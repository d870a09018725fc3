"""The wheel and the editable wheel bring the start-up hook, pip takes it away again; the set-up script."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from support import run_command

ROOT = Path(__file__).resolve().parent.parent
PTH = "fairseq_adv_compat.pth"
TORCHS = [
    "torch", "torchgen", "functorch", "typing_extensions.py", "sympy", "mpmath", "networkx", "jinja2",
    "markupsafe", "fsspec", "filelock", "nvidia", "cuda", "triton",
]  # fmt: skip
PACKAGES = ("fairseq_adv", "fairseq_adv_compat")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is built from: building writes beside the sources."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", PTH):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    old = folder / "build" / "lib" / "fairseq_adv" / "optim" / "__init__.py"  # of 0.4.0, installed from here
    old.parent.mkdir(parents=True)
    old.touch()
    return folder


def build(kind: str, source: Path, out: Path) -> Path:
    """The wheel that pip has setuptools build for ``pip install .`` ("wheel") or ``-e .`` ("editable")."""
    pytest.importorskip("setuptools", minversion="64", reason="builds wheels with the setuptools at hand")
    code = f"import setuptools.build_meta as backend; backend.build_{kind}({str(out)!r})"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def plain(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def editable(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("editable", source, tmp_path_factory.mktemp("editable"))


def test_every_module_is_there_and_every_file_is_recorded_with_its_hash(plain: Path, source: Path) -> None:
    with zipfile.ZipFile(plain) as archive:
        names = archive.namelist()
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert sorted(row[0] for row in rows) == sorted(names) and len(set(names)) == len(names)
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={expected}", len(data)), name
        assert archive.read(PTH) == (ROOT / PTH).read_bytes()
    modules = {str(path.relative_to(source)) for name in PACKAGES for path in source.glob(f"{name}/**/*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "scripts", "examples"))]


def test_pip_installs_it_the_hook_runs_and_uninstalls_clean(plain: Path, tmp_path: Path) -> None:
    python = str(tmp_path / "env" / "bin" / "python")
    assert run_command(sys.executable, "-m", "venv", str(tmp_path / "env")).returncode == 0
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run_command(python, "-c", ask).stdout.strip())
    before = sorted(path.name for path in site.iterdir())
    installed = run_command(python, "-m", "pip", "install", "--no-deps", "--no-index", str(plain))
    assert installed.returncode == 0, installed.stderr

    ask = "import sys; print('fairseq_adv_compat' in [getattr(f, '__module__', '') for f in sys.meta_path])"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", ask], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == ("True", "")
    assert (site / PTH).is_file()
    script = tmp_path / "env" / "bin" / "fairseq-adv"
    folder = Path(run_command(str(script), "user-dir").stdout.strip())
    assert folder.name == "fairseq_adv" and (folder / "__init__.py").is_file()

    # Beside torch alone fairseq_adv.loop works, and the command says what it needs.
    (tmp_path / "torch").mkdir()
    for name in TORCHS:
        if (Path(torch.__file__).parents[1] / name).exists():
            (tmp_path / "torch" / name).symlink_to(Path(torch.__file__).parents[1] / name)
    env["PYTHONPATH"] = str(tmp_path / "torch")
    for words, status, told in (
        ([str(ROOT / "scripts" / "loop_smoke.py")], 0, ""),
        ([str(script), "train", "--help"], 2, "is not installed. docs/start.md (Install)"),
    ):
        done = subprocess.run([python, *words], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        assert told in done.stderr and "Traceback" not in done.stderr

    removed = run_command(python, "-m", "pip", "uninstall", "-y", "fairseq_adv")
    assert removed.returncode == 0, removed.stderr
    assert sorted(path.name for path in site.iterdir()) == before
    assert not script.exists()


def test_an_editable_install_costs_no_import_hook_at_start_up(editable: Path, source: Path) -> None:
    """Its .pth file is a plain path: setuptools' own finder would import pathlib and more at every start."""
    with zipfile.ZipFile(editable) as archive:
        (path,) = [name for name in archive.namelist() if name.startswith("__editable__")]
        assert Path(archive.read(path).decode().strip()).samefile(source)


# --- the sdist ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("asks git which files the project has")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def sdist(tracked: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built where the repository's address is known, as in GitHub Actions."""
    pytest.importorskip("setuptools", minversion="64", reason="builds with the setuptools at hand")
    folder, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("sdist")
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    code = f"import setuptools.build_meta as backend; backend.build_sdist({str(out)!r})"
    env = {**os.environ, "FAIRSEQ_ADV_URL": "https://github.com/someone/something"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.tar.gz")
    return built


def test_the_sdist_has_every_file_of_the_project(sdist: Path, tracked: set[str]) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    assert tracked - names == {".gitignore"}
    made = {name for name in names - tracked if not name.startswith("fairseq_adv.egg-info/")}
    assert made == {"PKG-INFO", "setup.cfg"}


# --- scripts/setup_env.sh -----------------------------------------------------------------------


def set_up(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command("bash", str(ROOT / "scripts" / "setup_env.sh"), *words, **environment)


OLD = "#!/bin/sh\necho 3.9.18\n"


@pytest.mark.parametrize(
    ("changed", "program", "told"),
    [
        ({"PYTHON": "python3.99"}, "", ["PYTHON="]),
        ({"PYTHON": "old"}, OLD, ["3.9.18", "3.10 to 3.14", "fairseq_adv 0.3"]),
    ],
    ids=["no such Python", "one that fairseq cannot run on"],
)
def test_set_up_says_what_is_missing(
    tmp_path: Path, changed: dict[str, str], program: str, told: list[str]
) -> None:
    given = {name: str(tmp_path / value) for name, value in changed.items()}  # an absolute path stays
    if program:
        path = Path(list(given.values())[-1])
        path.write_text(program)
        path.chmod(0o755)
    done = set_up(VENV=str(tmp_path / "env"), **given)
    assert done.returncode == 2 and done.stderr.startswith("error: ")
    assert all(text in done.stderr for text in told)
    assert not (tmp_path / "env").exists()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment to keep; without an index, so that a set-up that would go on fails."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    return {"VENV": str(tmp_path), "PYTHON": "", "PIP_NO_INDEX": "1"}


def stamp(environment: dict[str, str], extras: str, changed: bytes = b"") -> None:
    """Marks the environment as made by the set-up script from the present files."""
    files = [ROOT / name for name in ("setup.py", "constraints.txt", PTH)]
    made_from = (
        b"".join(path.read_bytes() for path in files) + f"{platform.python_version()} {ROOT}\n".encode()
    )
    digest = hashlib.sha256(made_from + changed).hexdigest()
    (Path(environment["VENV"]) / "fairseq_adv.stamp").write_text(f"{digest} {extras}\n")


def test_set_up_does_nothing_while_nothing_changed(environment: dict[str, str]) -> None:
    """Nor with test tools at hand that aren't asked for; it adds those that are missing."""
    stamp(environment, "[test]")
    assert set_up("--no-test", **environment).returncode == 0
    done = set_up(**environment)
    assert done.returncode == 0 and f"up to date (Python {platform.python_version()})" in done.stdout
    for extras, changed in (("[test]", b"x"), ("[hf,plots]", b"")):
        stamp(environment, extras, changed)
        done = set_up(**environment)
        assert done.returncode == 1 and "was not downloaded: pip: " in done.stderr
