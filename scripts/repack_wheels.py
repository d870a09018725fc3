#!/usr/bin/env python3
"""Makes wheels that any pip or uv installs, from what pip's package index serves.

omegaconf-2.0.6-1-py3-none-any.whl: `PyYAML (>=5.1.*)`, which pip 24.1 and later refuse, is `PyYAML (>=5.1)`.
fairseq-0.12.2-1-py3-none-any.whl: without the compiled modules, and without torchaudio as a requirement;
left out with --compiler.

Then `pip install --find-links DIR ...`: the build number 1 makes pip prefer them. A file is used only if its
SHA-256 is the known one, and nothing in it is run. Needs a Python that has pip, which environments made by uv
don't have, and nothing else.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

# The last pip that downloads omegaconf 2.0.6. It runs from its wheel, and the pip at hand only fetches it.
PIP = "pip-24.0-py3-none-any.whl", "ba0d021a166865d2265246961bec0152ff124de910c5cc39f1156ce3fa7c69dc"
OMEGACONF = (
    "omegaconf-2.0.6-py3-none-any.whl",
    "9e349fd76819b95b47aa628edea1ff83fed5b25108608abdd6c7fdca188e302a",
)
FAIRSEQ = "fairseq-0.12.2.tar.gz", "34f1b18426bf3844714534162f065ab733e049597476daa35fffb4d06a92b524"
# pip asks a source package's build system for its metadata, even if it only downloads. Without isolation that
# is the module "setuptools" found first: this one, which doesn't look at the package.
BUILD_SYSTEM = """\
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = Path(folder) / "fairseq-0.12.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: fairseq\\nVersion: 0.12.2\\n")
    return info.name
"""


def download(name: str, sha256: str, folder: Path) -> Path:
    """Downloads a file of the index with pip's settings; ends with one line if it is not the known one."""
    project, version = name.removesuffix(".tar.gz").split("-")[:2]
    (folder / "setuptools").mkdir(exist_ok=True)
    (folder / "setuptools" / "__init__.py").touch()
    (folder / "setuptools" / "build_meta.py").write_text(BUILD_SYSTEM)
    for module in ("wheel", "Cython"):  # fairseq's pyproject.toml names them
        (folder / f"{module}.py").touch()
    (folder / "requirements.txt").write_text(f"{project}=={version} --hash=sha256:{sha256}\n")
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--require-hashes", "--no-build-isolation", "--use-pep517", "-d", str(folder)]
    words += ["--no-binary" if name.endswith(".gz") else "--only-binary", ":all:"]
    path = os.pathsep.join(map(str, (folder / PIP[0], folder)))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    words += ["-r", str(folder / "requirements.txt")]
    done = subprocess.run(words, stdout=2, stderr=subprocess.PIPE, text=True, env=env, check=False)
    file = folder / name
    if done.returncode or not file.is_file():
        lines = done.stderr.splitlines() or ["no message"]  # the last one, if this Python has no pip
        reason = [line for line in lines if "ERROR: " in line] or lines
        text = f"error: {name} was not downloaded: pip: {reason[-1].rpartition('ERROR: ')[2]}"
        has_none = "No module named pip" in text  # as in an environment of uv
        sys.exit(text + ". Run this with a Python that has pip, such as python3" * has_none)
    if hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        sys.exit(f"error: {name}: changed or damaged: its SHA-256 is not {sha256}")
    return file


def omegaconf_files(wheel: Path) -> dict[str, bytes]:
    """The files of omegaconf's wheel, with its one line repaired."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    metadata = "omegaconf-2.0.6.dist-info/METADATA"
    wrong = b"Requires-Dist: PyYAML (>=5.1.*)"
    assert files[metadata].count(wrong) == 1
    files[metadata] = files[metadata].replace(wrong, b"Requires-Dist: PyYAML (>=5.1)")
    files["omegaconf-2.0.6.dist-info/WHEEL"] += b"Build: 1\n"
    return files


def fairseq_files(source: Path) -> dict[str, bytes]:
    """What ``READTHEDOCS=1 pip wheel`` makes of fairseq's source package, without running it.

    fairseq requires torchaudio, but text needs nothing of it. One built for another torch can't be loaded,
    and then transformers, which imports what is installed, can't either.
    """
    with tarfile.open(source) as archive:
        everything = {
            entry.name.partition("/")[2]: archive.extractfile(entry).read()  # type: ignore[union-attr]
            for entry in archive
            if entry.isfile()
        }
    files = {name: data for name, data in everything.items() if name.startswith(("fairseq/", "fairseq_cli/"))}
    head = everything["PKG-INFO"].decode().partition("\n\n")[0].splitlines()
    lines = [line for line in head if line.startswith(("Name:", "Version:", "Summary:", "Home-page:"))]
    # Requirements: those without a marker, which come first, and those of the last marker, Python >= 3.7.
    tables = everything["fairseq.egg-info/requires.txt"].decode()
    tables = tables.replace('[:python_version >= "3.7"]\n', "\0")
    needed = [*tables.partition("\n\n")[0].split("\n"), *tables.partition("\0")[2].split("\n")]
    lines += [f"Requires-Dist: {one}" for one in needed if one and not one.startswith("torchaudio")]
    lines = ["Metadata-Version: 2.1", *lines, "License: MIT", "License-File: LICENSE"]
    info = "fairseq-0.12.2.dist-info"
    files[f"{info}/METADATA"] = "\n".join([*lines, ""]).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: fairseq_adv\nRoot-Is-Purelib: true\nTag: py3-none-any\nBuild: 1\n"
    )
    files[f"{info}/entry_points.txt"] = everything["fairseq.egg-info/entry_points.txt"]
    files[f"{info}/top_level.txt"] = b"fairseq\nfairseq_cli\n"
    files[f"{info}/LICENSE"] = everything["LICENSE"]
    return files


def write_wheel(wheel: Path, files: dict[str, bytes]) -> None:
    """Writes a wheel with its RECORD, whole or not at all; the same bytes each time."""
    record = "-".join(wheel.name.split("-")[:2]) + ".dist-info/RECORD"
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        quoted = f'"{name}"' if "," in name else name
        rows.append(f"{quoted},sha256={digest},{len(data)}\n")
    rows.append(f"{record},,\n")
    beside = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, record: "".join(rows).encode()}.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, data)
    os.replace(beside, wheel)
    print(wheel)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("dir", metavar="DIR", type=Path, help="where to write the wheels")
    options.add_argument("--compiler", action="store_true", help="omegaconf only: pip compiles fairseq")
    return options


def main() -> None:
    args = parser().parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        download(*PIP, Path(scratch))
        files = omegaconf_files(download(*OMEGACONF, Path(scratch)))
        write_wheel(args.dir / "omegaconf-2.0.6-1-py3-none-any.whl", files)
        if not args.compiler:
            files = fairseq_files(download(*FAIRSEQ, Path(scratch)))
            write_wheel(args.dir / "fairseq-0.12.2-1-py3-none-any.whl", files)


if __name__ == "__main__":
    main()
