"""``fairseq-adv doctor``: reports what is installed, what is wrong with it, and how to fix it.

It reads metadata and looks for files, so it works where importing fairseq or torch fails.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from fairseq_adv.data.processes import python_code
from fairseq_adv_compat.machine import bf16_products

from .user_dir import find_user_dir

_PTH = "fairseq_adv_compat.pth"
_OLDER = "fairseq_adv<0.4 works with older ones"
_PINNED = {"fairseq": ("0.12.2.", "0.12.2"), "hydra-core": ("1.0.", "1.0.7"), "omegaconf": ("2.0.", "2.0.6")}
_REPACKED = "with pip 24.1 and later, from the repacked wheels (docs/start.md, Install)"
_BUILD = "with a C++ compiler: pip install --force-reinstall --no-deps --no-cache-dir fairseq==0.12.2"
_ASK_TORCH = (
    "import torch as t; gpus = map(t.cuda.get_device_name, range(t.cuda.device_count()))\n"
    "print(t.version.cuda or 'built for CPU only', ', '.join(gpus) or 'no GPU seen', sep=', ')"
)
_ASK_FINDERS = "import sys\nfor one in sys.meta_path: print(getattr(one, 'text', one.__module__))"


class Finding(NamedTuple):
    """A line of the report; ``problem`` and ``fix`` are empty if all is well."""

    name: str
    value: str
    problem: str = ""
    fix: str = ""
    broken: bool = True  # False if a problem is only worth knowing


def doctor(args: argparse.Namespace) -> int:
    """Checks the installed versions and prints how to fix what is wrong."""
    findings = examine()
    width = max(len(finding.name) for finding in findings)
    for name, value, problem, fix, broken in findings:
        print(f"{name:<{width}}  {value or 'none'}")
        if problem:
            print(f"{'':<{width}}  {'WRONG' if broken else 'note'}: {problem}\n{'':<{width}}  fix: {fix}")
    wrong = [finding.name for finding in findings if finding.problem and finding.broken]
    print(f"\nbroken: {', '.join(wrong)}" if wrong else "\nnothing is broken")
    return 1 if wrong else 0


def examine() -> list[Finding]:
    """All checks."""
    names = ("pip", "numpy", "torch", "fairseq", "hydra-core", "omegaconf")
    findings = [_python(), *map(_distribution, names), _cuda(), _processor(), _extensions(), _pth(), _apex()]
    return [*findings, Finding("fairseq_adv", f"{installed('fairseq_adv')}  {find_user_dir()}")]


def installed(name: str) -> str:
    """The installed version of a distribution; "" if it is not installed."""
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _python() -> Finding:
    value, version = f"{platform.python_version()}  {sys.executable}", sys.version_info[:2]
    if (3, 10) <= version <= (3, 14):
        return Finding("Python", value)
    return Finding("Python", value, f"fairseq_adv needs 3.10 to 3.14; {_OLDER}", "use one of these versions")


def _distribution(name: str) -> Finding:
    version = installed(name)
    needed, best = _PINNED.get(name, ("", ""))
    if not f"{version}.".startswith(needed):
        return Finding(
            name, version, f"{needed.rstrip('.')} is needed", f"pip install {name}=={best}; {_REPACKED}"
        )
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in f"{version}.0".split(".")[:2]]
    if name == "torch" and numbers < [2, 6]:
        return Finding(name, version, f"fairseq_adv needs 2.6; {_OLDER}", "pip install -U torch")
    if name == "numpy" and not version:
        return Finding(name, version, "it is not installed", "pip install numpy")
    return Finding(name, version)


def _cuda() -> Finding:
    words, slow = python_code(_ASK_TORCH), "`import torch` took more than two minutes"
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return Finding("CUDA", "unknown", slow, "look for a slow disk, or a GPU driver that hangs")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Finding("CUDA", "unknown", f"`import torch` fails: {last}", "reinstall torch")
    return Finding("CUDA", done.stdout.strip().splitlines()[-1])


def _processor() -> Finding:
    flag = bf16_products()
    used = "bf16 autocast (--precision fp32 turns it off)" if flag else "fp32"
    return Finding("processor", f"{flag or 'no bf16 instructions'}: fairseq-adv train uses {used} on the CPU")


def _extensions() -> Finding:
    """fairseq reads its data sets with these two; fairseq_adv_compat has the same in Python."""
    ends = importlib.machinery.EXTENSION_SUFFIXES
    built = {path.name for place in _places("fairseq") for path in (place / "data").iterdir()}
    wanted = ("data_utils_fast", "token_block_utils_fast")
    missing = [name for name in wanted if not any(name + end in built for end in ends)]
    if not missing:
        return Finding("fairseq's C++", "built")
    problem = (
        f"Python in place of {' and '.join(missing)}: the same results, up to 2.5 s more for a million rows"
    )
    return Finding("fairseq's C++", "not built", problem, _BUILD, broken=False)


def _pth() -> Finding:
    """A new interpreter is asked, since this command puts the finder in place by itself."""
    text = subprocess.run(python_code(_ASK_FINDERS), capture_output=True, text=True, check=False).stdout
    if "fairseq_adv_compat" in text.split("\n"):
        return Finding("compat .pth", "active")
    failure = next((one for one in text.split("\n") if one.startswith(_PTH)), f"Python did not run {_PTH}")
    problem = f"{failure}: fairseq's own commands fail on Python >= 3.11"
    is_there = any(Path(place, _PTH).is_file() for place in sys.path)  # or somebody has deleted it
    return Finding("compat .pth", "not active", problem, "reinstall fairseq_adv", broken=is_there)


def _apex() -> Finding:
    """Two projects have this name: NVIDIA's (fused kernels, from GitHub) and PyPI's (a web toolkit)."""
    places, version = _places("apex"), installed("apex")
    if not places or any((place / "multi_tensor_apply").is_dir() for place in places):
        return Finding("apex", f"{version} (NVIDIA's)" if places else "none (optional)")
    problem = "this is not NVIDIA's apex but an unrelated project of that name, and fairseq imports it"
    return Finding("apex", f"{version} (PyPI's)", problem, "pip uninstall apex")


def _places(package: str) -> list[Path]:
    """The folders of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
