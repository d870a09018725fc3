"""Sentences of movie reviews, product reviews and tweets with people's ratings, from a package on PyPI.

The source package of vaderSentiment 3.3.2 (MIT) holds the data of Hutto and Gilbert, "VADER: A Parsimonious
Rule-based Model for Sentiment Analysis of Social Media Text" (ICWSM 2014): each sentence with the mean of
about 20 people's ratings from -4 to 4. Nothing of the package is built or run.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import html
import io
import tarfile
import zlib
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded
from fairseq_adv.data.package_index import IndexFile, fetch_folder

ARCHIVE = IndexFile(
    "vadersentiment",
    "3.3.2",
    "vaderSentiment-3.3.2.tar.gz",
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)
SHA256 = {
    "LICENSE.txt": "74cfe41cdbf7f6925aeb4c18c148ec8db042540edb6739fd81069aa4e3c8b118",
    "products.csv": "804ab097cdbd2d442b33857fdbe96ab4b1b77da5d57262e45f29ecb473b44439",
    "test.csv": "c18a4b541d42f8ca368a699629ea5d8b8d37dfb81aa5b6ced7b65f6f1a3ba782",
    "train.csv": "ef7ecf38da8f67513eb2a9997c0fa85878ea316792aeda851a4a4b4f2f1d321c",
    "tweets.csv": "efdc5d5abb818bea85151ec7af4fefab37429a46607629cdaa53e180aebff81a",
    "valid.csv": "16cdd5c800d6df61bf273d1c7b093c82eecbb246d3824f429a7eeed88cec0e07",
}
"""SHA-256 of each file that :func:`fetch_reviews` writes."""
MIN_RATING = 0.5
"""Sentences whose mean rating is nearer to 0 are left out."""
_PACKAGE = "vaderSentiment-3.3.2"
_INNER = f"{_PACKAGE}/additional_resources/hutto_ICWSM_2014.tar.gz"
_SOURCES = {"movies": "movieReviewSnippets", "products": "amazonReviewSnippets", "tweets": "tweets"}
# The real archives unpack to 3 and 6 MB.
_MAX_UNPACKED_BYTES = 20_000_000
Row = Tuple[str, str]


def fetch_reviews(out: Path, source: Optional[Path] = None) -> bool:
    """Writes labelled sentences as csv files with the columns ``text`` and ``label``.

    The labels are ``negative`` (mean rating of -0.5 or less) and ``positive`` (0.5 or more). The movie
    sentences are split by the SHA-256 of their text into ``train.csv``, ``valid.csv`` and ``test.csv``;
    ``products.csv`` and ``tweets.csv`` are test files. Rows stand in the order of that hash.
    ``LICENSE.txt`` is the package's licence.

    Args:
        out: output folder; written atomically, and kept if it already has the right files.
        source: vaderSentiment-3.3.2.tar.gz; None: download it from pip's package index.

    Returns:
        True if the folder was written, False if it existed already.

    Raises:
        DataError: ``out`` contains something else, the download failed, or it is not the expected file.
        FullDisk: there is no space left.
    """
    return fetch_folder(out, ARCHIVE, source, unpack_reviews, SHA256)


def unpack_reviews(archive: Path, folder: Path) -> None:
    """Writes the files of :func:`fetch_reviews` to an existing folder."""
    package = _members(archive.read_bytes(), archive, (_INNER, f"{_PACKAGE}/LICENSE.txt"))
    names = {kind: f"hutto_ICWSM_2014/{name}_GroundTruth.txt" for kind, name in _SOURCES.items()}
    inner = _members(package[_INNER], archive / _INNER, tuple(names.values()))
    rows = {kind: _labelled(inner[name], archive / name) for kind, name in names.items()}
    movies = rows.pop("movies")
    for name in ("train", "valid", "test"):
        rows[name] = [row for row in movies if split_of(row[0]) == name]
    for name, some in rows.items():
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([("text", "label"), *some])
        (folder / f"{name}.csv").write_bytes(text.getvalue().encode())
    (folder / "LICENSE.txt").write_bytes(package[f"{_PACKAGE}/LICENSE.txt"])


def split_of(text: str) -> str:
    """A movie sentence's split: by the SHA-256 of its text modulo 20, 0 and 1 are valid, 2 to 10 test, and 11
    to 19 train."""
    part = int(_digest(text), 16) % 20
    return "valid" if part < 2 else "test" if part < 11 else "train"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _labelled(content: bytes, path: Path) -> List[Row]:
    """The (text, label) rows of a file of "id<TAB>mean rating<TAB>text", in the order of the texts' hash.

    HTML's character references are resolved (some are escaped twice), and white space becomes single spaces.
    Texts that are equal but for case are one row, or none if their labels differ.
    """
    rows: Dict[str, Row] = {}
    contradictory = set()
    for number, line in enumerate(decoded(content, path).splitlines(), start=1):
        try:
            _, rating, text = line.split("\t")
            mean = float(rating)
        except ValueError:
            raise DataError(f"{path}:{number}: not an id, a rating and a text. Download it again.") from None
        if abs(mean) < MIN_RATING:
            continue
        text = " ".join(html.unescape(html.unescape(text)).split())
        row = rows.setdefault(text.lower(), (text, "positive" if mean > 0 else "negative"))
        if (row[1] == "positive") != (mean > 0):
            contradictory.add(text.lower())
    return sorted((rows[key] for key in rows.keys() - contradictory), key=lambda row: _digest(row[0]))


def _members(content: bytes, path: Path, names: Tuple[str, ...]) -> Dict[str, bytes]:
    """The contents of some files in a .tar.gz. No name in it becomes a path, and the size is bounded."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(_MAX_UNPACKED_BYTES + 1)
        if len(unpacked) > _MAX_UNPACKED_BYTES:
            raise DataError(f"{path}: unpacks to more than {_MAX_UNPACKED_BYTES} bytes; not used")
        found = {}
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            for name in names:
                member = archive.getmember(name)
                data = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                if data is None:
                    raise DataError(f"{path}: {name} in it is not a plain file; not used")
                found[name] = data.read()
        return found
    except (tarfile.TarError, zlib.error, EOFError, KeyError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error.args[0] if error.args else error)
        raise DataError(f"{path}: not a complete archive: {reason}. Download it again.") from error
