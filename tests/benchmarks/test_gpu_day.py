"""benchmarks/gpu_day.sh, as far as it goes without a GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import run_command, slow, write_encoder

ORDER = [
    "tests", "peers-base-bf16", "peers-base-amp", "graphs", "peers-base-compile", "masked-lm-base-8",
    "masked-lm-large-8", "masked-lm-base-32", "masked-lm-large-32", "modes-pytorch_ddp",
    "modes-checkpoint-activations", "modes-layerdrop", "modes-update-freq", "profile", "modes-single",
    "peers-base-fp16", "peers-large-bf16", "peers-large-fp16", "peers-base-bf16-128", "modes-all",
]  # fmt: skip
# In place of every program that gpu_day.sh runs: it says what it was told, and fails or dawdles if asked to.
STUB = """#!/bin/bash
case "$*" in
    *find_spec*) exit 1 ;;
    *${FAILS-nothing}*) echo broken >&2; exit 3 ;;
    *${SLOW-nothing}*) sleep 60 ;;
esac
echo "ran: $*"
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "pass the folder for the results"),
        slow(["{out}", "--device", "tpu"], "--device tpu: pass cuda or cpu"),
        (["{out}", "--minutes", "ten"], "--minutes ten: pass a whole number"),
        # octal to the shell's $(( ))
        slow(["{out}", "--minutes", "08"], "--minutes 08: pass a whole number"),
        slow(["{out}", "--minutes", "99999999999999999999"], "--minutes 99999999999999999999: pass a w"),
        slow(["{out}", "--minutes"], "--minutes needs a value"),
        slow(["{out}", "--jobs", "0"], "--jobs 0: pass a whole number"),
        (["{out}", "--carried", "{out}"], "/wheels: no such folder; gpu_day.sh prepare makes it"),
        slow(["{out}", "--huge"], "unknown option '--huge'"),
        slow(["{out}", "--tiny"], "torch sees no CUDA GPU; --device cpu --tiny"),
        (["prepare"], "prepare needs the folder"),
    ],
)
def test_a_mistake_is_named(repo: Path, tmp_path: Path, words: list[str], message: str) -> None:
    out = str(tmp_path / "out")
    words = [word.replace("{out}", out) for word in words]
    done = run_command("bash", str(repo / "benchmarks" / "gpu_day.sh"), *words, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr.startswith("error: ")) == (2, True)
    assert message in done.stderr
    assert not Path(out).exists()


class Day:
    """Calls of a gpu_day.sh whose parts are stubs."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self.out = folder / "out"
        (folder / "bin").mkdir()
        (folder / "benchmarks").mkdir()
        self.script = shutil.copy(repo / "benchmarks" / "gpu_day.sh", folder / "benchmarks")
        (folder / "bin" / "python").write_text(STUB)
        (folder / "bin" / "python").chmod(0o755)
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", self.script, str(self.out), *words], capture_output=True, text=True, timeout=100,
            env={**os.environ, "PATH": self.path, **environment},
        )  # fmt: skip

    def kept(self, name: str) -> str:
        """A file of the one that comes back."""
        assert [path.name for path in self.out.iterdir()] == ["gpu-day.tar.gz"]
        with tarfile.open(self.out / "gpu-day.tar.gz") as tar:
            file = tar.extractfile(f"./{name}")
            assert file is not None
            return file.read().decode()


@pytest.fixture
def day(repo: Path, tmp_path: Path) -> Day:
    return Day(repo, tmp_path)


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The parts that a call has started."""
    return re.findall(r"^== (\S+)", done.stdout, re.MULTILINE)


def test_parts_run_in_their_order_and_none_runs_twice(day: Day) -> None:
    done = day()
    assert (done.returncode, ran(done)) == (0, ORDER), done.stderr
    summary = day.kept("summary.md")
    assert re.findall(r"^## (\S+) \(exit status 0\)", summary, re.MULTILINE) == ORDER
    assert "--precision bf16 --sentences 128" in summary and "--sides freelb standard" in summary
    assert "--precision fp32 --sentences 32 --updates 4 --rounds 7 --sides freelb-amp standard-amp" in summary
    again = day()
    assert (again.returncode, ran(again)) == (0, [])
    assert day.kept("summary.md") == summary


def test_a_part_that_may_not_end_in_time_is_left_for_the_next_call(day: Day) -> None:
    """The tests need two minutes at most; these need three or more."""
    long = [name for name in ORDER if name in ("graphs", "modes-single") or "large" in name]
    done = day("--minutes", "9", SECONDS=str(6 * 60 + 30))
    assert done.returncode == 1
    assert ran(done) == [name for name in ORDER if name not in long]
    assert f"not done: {' '.join(long)}; run the same command" in done.stdout
    assert ran(day()) == long


def test_what_failed_is_named_and_tried_again_only_when_asked(day: Day) -> None:
    done = day("--tiny", FAILS="gpu_profile.py")
    assert done.returncode == 1 and "failed: profile-tiny;" in done.stdout and "broken" in done.stdout
    assert (
        "## profile-tiny (exit status 3)" in day.kept("summary.md")
        and day.kept("profile-tiny.log") == "broken\n"
    )
    done = day("--tiny")
    assert (done.returncode, ran(done)) == (1, [])
    assert ran(day("--tiny", "--again")) == ["profile-tiny"]
    assert ran(day()) == ORDER, "a rehearsal is no day"


def test_a_part_that_takes_twice_its_time_does_not_take_the_day(day: Day) -> None:
    """Here minutes are seconds."""
    script = Path(day.script)
    script.write_text(script.read_text().replace("* 60", "* 1"))
    done = day("--minutes", "900", SLOW="pytest")
    assert (done.returncode, ran(done)) == (1, ORDER) and "failed: tests;" in done.stdout
    assert ran(day("--minutes", "900")) == []


# --- as on a machine without network


def needed(*roots: str) -> list[str]:
    """Installed distributions and all that they require."""
    found: list[str] = []
    queue = list(roots)
    while queue:
        name = canonicalize_name(queue.pop())
        if name in found:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.append(name)
        for requirement in map(Requirement, requires):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                queue.append(requirement.name)
    return found


def files_of(name: str) -> list[tuple[Path, str]]:
    """A distribution's files in site-packages, and their names there."""
    files = [Path(str(file)) for file in distribution(name).files or []]
    inside = [file for file in files if ".." not in file.parts and file.suffix != ".pyc"]
    return [(Path(str(distribution(name).locate_file(str(file)))), str(file)) for file in inside]


def bare_machine(folder: Path) -> Path:
    """An environment, made from another one's Python, that has torch, numpy and what they need; no pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in needed("torch", "numpy"):
        for file, inside in files_of(name):
            top = Path(inside).parts[0]
            if not (site / top).exists():
                (site / top).symlink_to(file.parents[len(Path(inside).parts) - 1] / top)
    return folder / "bin"


def carried(repo: Path, folder: Path) -> Path:
    """What ``prepare`` makes, from this environment's packages instead of an index, and four short texts."""
    script = (repo / "benchmarks" / "gpu_day.sh").read_text()
    for part in ("FIRST", "BESIDE"):
        listed = re.search(rf"^{part}=\(([^)]+)\)", script, re.MULTILINE)
        assert listed is not None
        (folder / "wheels" / part.lower()).mkdir(parents=True)
        for name in listed[1].split():
            with zipfile.ZipFile(folder / "wheels" / part.lower() / f"{name}.whl", "w") as wheel:
                for file, inside in files_of(name):
                    wheel.write(file, inside)
    words = [*"abcdefghijklmnopqrstuvwxyz", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    encoder = folder / "texts" / "encoder"
    write_encoder(encoder, words)
    (folder / "texts" / "reviews.txt").write_text(
        "positive good film\nnegative bad\npositive a joy\nnegative no\n"
    )
    return folder


@pytest.mark.slow  # its parts have tests of their own
def test_every_part_runs_as_on_a_machine_that_has_only_torch(repo: Path, tmp_path: Path) -> None:
    """Python in a virtual environment, no pip, no network; the second call has the first one's file only."""
    tree, out = tmp_path / "tree", tmp_path / "out"
    shutil.copytree(repo, tree, ignore=lambda folder, names: {n for n in names if n[0] == "." or n == "out"})
    machine, brought = bare_machine(tmp_path / "machine"), carried(repo, tmp_path / "carried")
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    env = {"HOME": str(tmp_path), "PATH": f"{machine}:/usr/bin:/bin", "OMP_NUM_THREADS": "1", **nowhere}
    words = [
        "bash",
        str(tree / "benchmarks" / "gpu_day.sh"),
        str(out),
        "--carried",
        str(brought),
        "--tiny",
        "--minutes",
        "14",
    ]
    done = subprocess.run([*words, "--device", "cpu"], capture_output=True, text=True, env=env, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| `standard` / `fairseq` |" in done.stdout and "reviews.txt, 4 rows" in done.stdout
    assert "| `freelb-amp` |" in done.stdout and "thin, 2 x 16 tokens, bf16" in done.stdout
    assert "| `aten::mm` |" in done.stdout and "| fp32 | 1 process | reference | reference |" in done.stdout
    shutil.move(out / "gpu-day.tar.gz", brought)
    done = subprocess.run([*words, "--device", "cpu"], capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode == 0 and done.stdout.startswith("all done"), done.stdout + done.stderr
    assert [path.name for path in out.iterdir()] == ["gpu-day.tar.gz"]
