"""Downloads one known file with pip and makes a folder from it. Nothing in the file is run.

Imports neither torch nor fairseq.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_folder, sha256_of
from fairseq_adv.data.processes import python_module

# pip asks a source package's build system for its metadata, even if it only downloads. With --use-pep517 and
# without isolation that system is the module "setuptools" found first: this one, which doesn't look at the
# package.
_BUILD_SYSTEM = """\
from pathlib import Path

class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(folder, settings=None):
        info = Path(folder) / "{project}-{version}.dist-info"
        info.mkdir()
        text = "Metadata-Version: 2.1\\nName: {project}\\nVersion: {version}\\n"
        (info / "METADATA").write_text(text)
        return info.name
"""


@dataclass(frozen=True)
class IndexFile:
    """A file on a package index, known to the byte: a wheel, or a source package without pyproject.toml."""

    project: str
    version: str
    name: str  # the file's name
    sha256: str  # its SHA-256, in lower-case hex


def fetch_folder(
    out: Path,
    file: IndexFile,
    source: Optional[Path],
    unpack: Callable[[Path, Path], None],
    expected: Dict[str, str],
    unwanted: Sequence[str] = (),
) -> bool:
    """Writes a folder made from a downloaded file, completely or not at all.

    Args:
        out: output folder; kept if it already has the right files.
        source: a copy of that file, which is used instead of a download.
        unpack: called with the checked file and an empty folder that it fills.
        expected: SHA-256 of each file that ``unpack`` writes.
        unwanted: names of files that would be read if they were in the folder too.

    Returns:
        True if the folder was written, False if it existed already.
    """
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if fault := _fault(out, expected, unwanted):
            raise DataError(
                f"{out}: exists but is not the complete folder made from {file.name}: {fault}. Remove it, "
                "or pass another folder."
            )
        return False
    with tempfile.TemporaryDirectory() as scratch:
        archive = source or _download(file, Path(scratch))
        fix = f"Pass {file.name} as it is on PyPI, or leave out --from."
        if not archive.is_file():
            raise DataError(f"{archive}: no such file. {fix}")
        if sha256_of(archive) != file.sha256:
            raise DataError(f"{archive}: changed or damaged: its SHA-256 is not {file.sha256}. {fix}")
        with atomic_folder(out) as folder:
            unpack(archive, folder)
            if fault := _fault(folder, expected, unwanted):
                raise DataError(f"{archive}: not what was expected: {fault}. Nothing was written. {fix}")
    return True


def _fault(folder: Path, expected: Dict[str, str], unwanted: Sequence[str]) -> str:
    """What is wrong with the first file that differs from the expected ones; empty if nothing is."""
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (actual := sha256_of(path)) != digest:
            return f"{name} has SHA-256 {actual}, not {digest}"
    more = [name for name in unwanted if name not in expected and (folder / name).exists()]
    return f"{more[0]} is not one of its files" if more else ""


def _download(file: IndexFile, folder: Path) -> Path:
    """Downloads the file with pip, with its settings; pip compares the hash before it reads the file."""
    requirements, stub = folder / "requirements.txt", folder / "setuptools"
    requirements.write_text(f"{file.project}=={file.version} --hash=sha256:{file.sha256}\n")
    stub.mkdir()
    (stub / "__init__.py").touch()
    (stub / "build_meta.py").write_text(_BUILD_SYSTEM.format(**vars(file)))
    kind = "--only-binary" if file.name.endswith(".whl") else "--no-binary"
    words = ["--no-deps", "--no-input", "--ignore-requires-python", "--disable-pip-version-check"]
    words += ["--require-hashes", "--use-pep517", "--no-build-isolation", kind, ":all:", "-d", str(folder)]
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        python_module("pip", "download", *words, "-r", str(requirements)),
        stdout=2, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        reason = [line for line in lines if line.startswith("ERROR: ")] or lines
        raise DataError(
            f"{file.name} was not downloaded: pip: {reason[-1].removeprefix('ERROR: ').rstrip('.')}. Check "
            "the network and `pip config list`, or get the file in another way and pass it with --from."
        )
    return folder / file.name
