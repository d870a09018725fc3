"""``fairseq-adv doctor``: reports what is installed, what is wrong with it, and how to fix it.

It reads metadata and looks for files. Only the facts about CUDA need torch, and a separate process imports
it, so doctor works even where importing fairseq or torch fails.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.metadata
import importlib.util
import platform
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fairseq_adv.data.processes import python_code
from fairseq_adv_compat.machine import bf16_products

from .script import VerbParser
from .user_dir import find_user_dir

_ASK_TORCH = """
import warnings
warnings.simplefilter("ignore")
import torch
cuda = torch.version.cuda
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print((f"built for CUDA {cuda}, " if cuda else "built for CPU only, ") + (", ".join(names) or "no GPU seen"))
"""
# Python -> the oldest torch that works on it, as in setup.py
OLDEST_TORCH = {(3, 9): (1, 13), (3, 10): (1, 13), (3, 11): (2, 0), (3, 12): (2, 4), (3, 13): (2, 6)}
_ASK_FINDERS = """
import sys
for finder in sys.meta_path:
    print(getattr(finder, "text", getattr(finder, "__module__", "")))
"""
PTH = "fairseq_adv_compat.pth"
_DISABLED = "# disabled by fairseq-adv doctor --disable-pth\n"
_WITHOUT_PTH = (
    "fairseq-adv works, but fairseq's own commands fail on Python >= 3.11, and load checkpoints unchecked on "
    "torch < 2.6"
)
_TORCH_TIMEOUT = 120  # seconds; the import takes 1 to 5, on a cold network disk far more


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``problem`` and ``fix`` are empty if all is well."""

    name: str
    value: str
    problem: str = ""
    fix: str = ""
    broken: bool = True  # with a problem: False if it is only worth knowing


def doctor_options(parser: VerbParser) -> None:
    parser.describe("Checks the installed versions and prints how to fix what is wrong.")
    parser.add_argument(
        "--disable-pth",
        action="store_true",
        help=f"stop Python from loading {PTH} at startup; only if you run everything through fairseq-adv",
    )


def doctor(args: argparse.Namespace) -> int:
    """Returns 1 if anything is broken, else 0."""
    if args.disable_pth:
        return disable_pth()
    findings = examine()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.name:<{width}}  {finding.value}")
        if finding.problem:
            print(f"{'':<{width}}  {'WRONG' if finding.broken else 'note'}: {finding.problem}")
            print(f"{'':<{width}}  fix: {finding.fix}")
    broken = [finding.name for finding in findings if finding.problem and finding.broken]
    print(f"\nbroken: {', '.join(broken)}" if broken else "\nnothing is broken")
    return 1 if broken else 0


def examine() -> list[Finding]:
    """All checks, ordered so that each depends only on earlier ones."""
    return [
        _python(),
        _pip(),
        _numpy(),
        _torch(),
        _cuda(),
        _processor(),
        _pinned("fairseq", "0.12.2", "pip install fairseq==0.12.2 (with pip < 24.1)"),
        _fairseq_extensions(),
        _pinned("hydra-core", "1.0", "pip install hydra-core==1.0.7"),
        _pinned("omegaconf", "2.0", "pip install omegaconf==2.0.6 (with pip < 24.1)"),
        _compat(),
        _apex(),
        _user_dir(),
    ]


def installed(name: str) -> str:
    """The installed version of the distribution ``name``; an empty string if it is not installed."""
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version: ``"2.13.0+cpu"`` -> ``(2, 13)``; missing numbers are 0."""
    parts = [*version.split("+")[0].split("."), "0"][:2]
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in parts)
    return major, minor


def _python() -> Finding:
    value = f"{platform.python_version()}  {sys.executable}"
    if not (3, 9) <= sys.version_info[:2] <= (3, 13):
        return Finding("Python", value, "fairseq_adv supports 3.9 to 3.13", "use one of these versions")
    return Finding("Python", value)


def _pip() -> Finding:
    version = installed("pip")
    if numbers(version) >= (24, 1):
        return Finding(
            "pip", version, "pip 24.1 and later refuse to install omegaconf 2.0.x, which fairseq needs",
            "pip install 'pip<24.1' before you install or upgrade", broken=False,
        )  # fmt: skip
    return Finding("pip", version or "none")


def _numpy() -> Finding:
    version, torch = installed("numpy"), installed("torch")
    if not version:
        return Finding("numpy", "none", "numpy is not installed", "pip install numpy")
    if numbers(version) >= (2, 0) and torch and numbers(torch) < (2, 3):
        problem = f"torch {torch} was built for numpy 1 and fails with numpy 2"
        return Finding("numpy", version, problem, "pip install 'numpy<2'")
    return Finding("numpy", version)


def _torch() -> Finding:
    version = installed("torch")
    if not version:
        return Finding("torch", "none", "torch is not installed", "pip install torch")
    major, minor = OLDEST_TORCH.get(sys.version_info[:2], (1, 13))
    if numbers(version) < (major, minor):
        problem = f"fairseq_adv needs {major}.{minor} or newer on this Python"
        return Finding("torch", version, problem, "pip install -U torch")
    return Finding("torch", version)


def _cuda() -> Finding:
    if not installed("torch"):
        return Finding("CUDA", "unknown without torch")
    try:
        done = subprocess.run(
            python_code(_ASK_TORCH), capture_output=True, text=True, timeout=_TORCH_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        problem = f"`import torch` took more than {_TORCH_TIMEOUT} s"
        fix = "check for a slow disk, or a GPU driver that hangs (nvidia-smi)"
        return Finding("CUDA", "unknown", problem, fix)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Finding("CUDA", "unknown", f"`import torch` fails: {last}", "reinstall torch")
    return Finding("CUDA", (done.stdout.strip().splitlines() or ["unknown"])[-1])


def _processor() -> Finding:
    flag = bf16_products()
    if not flag:
        return Finding("processor", "no bf16 instructions: fairseq-adv train uses fp32 on the CPU")
    told = f"{flag}: fairseq-adv train uses bf16 autocast on the CPU; --precision fp32 turns it off"
    return Finding("processor", told)


def _pinned(name: str, wanted: str, fix: str) -> Finding:
    version = installed(name)
    if version == wanted or version.startswith(wanted + "."):
        return Finding(name, version)
    return Finding(name, version or "none", f"fairseq_adv works with {wanted}", fix)


def _fairseq_extensions() -> Finding:
    """fairseq has no fallback: it can't read its data sets without these two."""
    spec = importlib.util.find_spec("fairseq")
    if spec is None or not spec.submodule_search_locations:
        return Finding("fairseq's C++", "unknown without fairseq")
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    missing = [
        name
        for name in ("data_utils_fast", "token_block_utils_fast")
        if not any((folder / (name + end)).exists() for end in importlib.machinery.EXTENSION_SUFFIXES)
    ]
    if missing:
        return Finding(
            "fairseq's C++", "not built", f"missing in {folder}: {' and '.join(missing)}",
            "with a C++ compiler and Python.h installed: "
            "pip install --force-reinstall --no-deps --no-cache-dir fairseq==0.12.2",
        )  # fmt: skip
    return Finding("fairseq's C++", "built")


def _pth() -> Path | None:
    """The ``.pth`` file that Python reads when it starts, not that of a clone; ``None`` if there is none."""
    paths = [Path(folder) / PTH for folder in (*site.getsitepackages(), site.getusersitepackages())]
    return next((path for path in paths if path.is_file()), None)


def _compat() -> Finding:
    path = _pth()
    if path is None:
        return Finding(
            "compat .pth", "none", f"no {PTH} in this environment: {_WITHOUT_PTH}",
            "pip install fairseq_adv (PYTHONPATH alone, python -S or python -I don't load it)",
        )  # fmt: skip
    if path.read_text(encoding="utf-8") == _DISABLED:
        fix = "to have it back, reinstall fairseq_adv"
        return Finding("compat .pth", "disabled", _WITHOUT_PTH, fix, broken=False)
    # A new interpreter, since this command puts the finder in place by itself.
    done = subprocess.run(python_code(_ASK_FINDERS), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if "fairseq_adv_compat" in lines:
        return Finding("compat .pth", "active")
    failure = next((line for line in lines if line.startswith(PTH)), f"{path} was not run")
    return Finding("compat .pth", "not active", f"{failure}: {_WITHOUT_PTH}", "reinstall fairseq_adv")


def disable_pth() -> int:
    """Replaces the ``.pth`` file by a comment; returns the exit status.

    Raises:
        OSError: the file can't be written.
    """
    path = _pth()
    if path is None:
        print(f"error: no {PTH} in this environment", file=sys.stderr)
        return 1
    beside = path.with_suffix(".tmp")
    beside.write_text(_DISABLED, encoding="utf-8")
    beside.replace(path)
    print(f"disabled {path}: {_WITHOUT_PTH}. To have it back, reinstall fairseq_adv.")
    return 0


def _apex() -> Finding:
    """Two projects have this name: NVIDIA's (fused kernels, from GitHub) and PyPI's (a web toolkit)."""
    spec = importlib.util.find_spec("apex")
    if spec is None:
        return Finding("apex", "none (NVIDIA's makes some GPU runs faster; optional)")
    places = [Path(place) for place in spec.submodule_search_locations or []]
    version = installed("apex") or "of unknown version"
    if any((place / "multi_tensor_apply").is_dir() for place in places):
        return Finding("apex", f"{version} (NVIDIA's)")
    problem = "this is not NVIDIA's apex but an unrelated project of that name, and fairseq imports it"
    return Finding("apex", f"{version} (PyPI's)", problem, "pip uninstall apex")


def _user_dir() -> Finding:
    version = installed("fairseq_adv") or "not installed, on PYTHONPATH"
    return Finding("fairseq_adv", f"{version}  {find_user_dir()}")
