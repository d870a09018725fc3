"""A corpus: text files, plain or compressed, one sentence per line.

The files are read twice: once to check, count and fingerprint them, so that a bad line is reported before
anything is built, and once to index them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.corpus.cuts import inputs, matching
from fairseq_adv.data.corpus.reader import Piece, Reading, rows_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of

LONGEST_LINE = 1_000_000
"""Characters. A longer line means that the file does not have one sentence per line."""


@dataclass(frozen=True)
class SentenceFile:
    """One checked file."""

    piece: Piece  # all of it
    sha256: str
    sentences: int  # lines that are not blank


@dataclass(frozen=True)
class SentenceFiles:
    """Checked files, in the given order; made by :func:`survey`."""

    files: tuple[SentenceFile, ...]  # with at least one sentence in total
    encoding_errors: str  # ``strict`` or ``replace`` (what isn't UTF-8 becomes U+FFFD)

    @property
    def size(self) -> int:
        """Total number of sentences."""
        return sum(file.sentences for file in self.files)

    def made_from(self) -> dict[str, Any]:
        """What an index of this corpus depends on. Only file names: the files may move."""
        files = [[file.piece.path.name, file.sentences, file.sha256] for file in self.files]
        return {"corpus (name, sentences, sha256)": files, "encoding errors": self.encoding_errors}

    def sentences(self) -> Iterator[str]:
        """The sentences: stripped, in Unicode's form NFC, never empty."""
        for file in self.files:
            count = 0
            for sentence in filter(None, _lines(file.piece, self.encoding_errors)):
                yield sentence
                count += 1
            if count != file.sentences:
                raise DataError(
                    f"{file.piece.path}: changed while it was being read. Run the same command again."
                )


def survey(patterns: Sequence[str], encoding_errors: str = "strict") -> SentenceFiles:
    """Checks, counts and fingerprints the files; shows the progress.

    Args:
        patterns: files, or patterns with ``*`` that the shell did not expand.
    """
    files = []
    for piece in inputs(matching(map(Path, patterns))):
        lines = _lines(piece, encoding_errors)
        count = sum(map(bool, tqdm(lines, f"check {piece.path.name}", unit="line", unit_scale=True)))
        files.append(SentenceFile(piece, sha256_of(piece.path), count))
    corpus = SentenceFiles(tuple(files), encoding_errors)
    if not corpus.size:
        raise DataError(f"{', '.join(patterns)}: no sentences. Pass text files, one sentence per line.")
    return corpus


def _lines(piece: Piece, errors: str) -> Iterator[str]:
    """The sentence of each line, "" if it is blank."""
    number = 0
    for block in rows_of(piece, Reading(replace_invalid=errors == "replace")):
        for line in block:
            number += 1
            text = line.removeprefix("\ufeff") if number == 1 else line
            sentence = unicodedata.normalize("NFC", text).strip()
            if len(sentence) > LONGEST_LINE:
                message = f"more than {LONGEST_LINE} characters. Split it: one sentence per line."
                raise DataError(f"{piece.path}:{number}: {message}")
            yield sentence
