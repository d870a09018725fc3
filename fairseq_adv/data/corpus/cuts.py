"""Decides which bytes of a corpus belong to which shard.

The files are concatenated and cut into ranges of about equal size, at document boundaries. The cuts depend
only on the files and the number of shards, so every worker on every node finds the same ones.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence

from fairseq_adv.data.corpus.reader import Piece, zstandard_module
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import HEAD, check_head

BLANK_LINE, LINE = "blank-line", "line"
_END = rb"(?:\r\n|\n|\r(?!\n))"
# White space within a line in UTF-8, as in str.strip.
_SPACE = (
    rb"(?:[\t\x0b\x0c\x1c-\x20]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|"
    rb"\xe3\x80\x80)"
)
_BOUNDS = {BLANK_LINE: re.compile(_END + rb"(?:" + _SPACE + rb"*" + _END + rb")+"), LINE: re.compile(_END)}
_WINDOW = 1 << 20
_FARTHEST = 256 << 20  # bytes within which a document is expected to end
_OVERLAP = 1 << 12  # a blank line longer than this may be missed as a boundary, but always in the same way
_SAMPLE = 1 << 16


def matching(paths: Iterable[Path]) -> List[Path]:
    """The files that quoted patterns match; a command line may be too short to list them."""
    matches: List[Path] = []
    for path in paths:
        names = [] if path.exists() else sorted(glob.glob(str(path), recursive=True), key=os.fsencode)
        matches += [Path(name) for name in names] or [path]
    return matches


def inputs(paths: Sequence[Path]) -> List[Piece]:
    """The files as whole pieces; empty ones are left out."""
    pieces_by_path: Dict[Path, Piece] = {}
    for path in paths:
        if not path.is_file():
            problem = "not a regular file. Write it to one first" if path.exists() else "no such file"
            problem = "is a folder. Pass its files" if path.is_dir() else problem
            raise DataError(f"{path}: {problem}.")
        if path.resolve() in pieces_by_path:
            raise DataError(f"{path}: is given twice. Pass each file once.")
        with open(path, "rb") as file:
            head = file.read(HEAD)
        pieces_by_path[path.resolve()] = piece = Piece(path, 0, path.stat().st_size)
        if path.suffix == ".zst":
            zstandard_module(path)
        elif not piece.compressed:
            check_head(path, head)
    pieces = [piece for piece in pieces_by_path.values() if piece.end]
    if not pieces:
        raise DataError(f"{', '.join(map(str, paths))}: empty, so there is nothing to write")
    return pieces


def fingerprint(pieces: Sequence[Piece]) -> List[Any]:
    """Name, size, and the SHA-256 of both ends of each file: a cheap way to tell corpora apart."""
    digests = []
    for piece in pieces:
        with open(piece.path, "rb") as file:
            digest = hashlib.sha256(file.read(_SAMPLE))
            file.seek(max(0, piece.end - _SAMPLE))
            digest.update(file.read(_SAMPLE))
        digests.append([piece.path.name, piece.end, digest.hexdigest()])
    return digests


def plan(pieces: Sequence[Piece], shards: int, documents: str) -> List[List[Piece]]:
    """The ranges of each shard, about equal in bytes on disk; no shard is empty.

    Args:
        pieces: whole files, none of them empty.
        documents: :data:`BLANK_LINE`: a document ends at a blank line; :data:`LINE`: at every line. Shards
            are also cut between files.
    """
    starts = [0, *accumulate(piece.end for piece in pieces)]
    cuts = _cuts(pieces, starts, shards, documents, leave_files=False)
    if len(cuts) <= shards:
        # The first shards got too many documents. Cut again so that every later file can start a shard.
        cuts = max(cuts, _cuts(pieces, starts, shards, documents, leave_files=True), key=len)
    if len(cuts) <= shards:
        raise DataError(
            f"--shards {shards}: the corpus can't be cut into that many. Cuts are only possible where a "
            f"document ends ({documents}) and between files, never within a compressed file. Pass fewer "
            f"shards, or --documents {LINE} if each line is a document."
        )
    return [_range(pieces, starts, begin, end) for begin, end in zip(cuts, cuts[1:])]


def _cuts(
    pieces: Sequence[Piece], starts: Sequence[int], shards: int, documents: str, leave_files: bool
) -> List[int]:
    """Ascending offsets into the concatenated files, from 0 to the end; fewer than wanted if there are too
    few boundaries.

    leave_files: leave the start of a file for each of the later cuts.
    """
    total = starts[-1]
    cuts = [0]
    for number in range(1, shards):
        target = max(total * number // shards, cuts[-1] + 1)
        cut = _bound(pieces, starts, target, documents, cuts[-1])
        later = shards - number  # this cut and those that follow
        if leave_files and len(starts) - 2 >= later and cuts[-1] < starts[-1 - later] < cut:
            cut = starts[-1 - later]
        if cut >= total:
            break
        cuts.append(cut)
    return [*cuts, total]


def _bound(pieces: Sequence[Piece], starts: Sequence[int], target: int, documents: str, above: int) -> int:
    """The first boundary at or after ``target``; for a compressed file, the nearer of its ends that
    are greater than ``above``.
    """
    number = bisect_right(starts, target) - 1
    if number >= len(pieces) or starts[number] == target:
        return target
    start, end = starts[number], starts[number + 1]
    if pieces[number].compressed:
        return start if start > above and target - start < end - target else end
    bound = _next_bound(pieces[number].path, target - start, documents)
    return end if bound is None else start + bound


def _next_bound(path: Path, place: int, documents: str) -> Optional[int]:
    """The first byte at or after ``place`` where a document begins; None if the file ends first."""
    pattern, window, begin = _BOUNDS[documents], _WINDOW, place
    with open(path, "rb") as file:
        while True:
            file.seek(place)
            data = file.read(window)
            last = len(data) < window
            match = pattern.search(data)
            # Near the end of the block, the next line may be a blank one that is only partly in the block.
            if match and (last or match.end() + _OVERLAP <= len(data)):
                rest = data[match.end() :]
                return place + match.end() if rest.decode("utf-8", "replace").strip() else None
            if last:
                return None
            if place - begin > _FARTHEST:
                raise DataError(
                    f"{path}: no document ends ({documents}) in the {_FARTHEST >> 20} MiB after byte "
                    f"{begin}. If each line is a document, pass --documents {LINE}; if not, --shards 1."
                )
            if match:
                window = 2 * window if match.start() == 0 else window
                place += match.start()
            else:
                place += len(data) - _OVERLAP


def _range(pieces: Sequence[Piece], starts: Sequence[int], begin: int, end: int) -> List[Piece]:
    parts = []
    for piece, start in zip(pieces, starts):
        low, high = max(begin - start, 0), min(end - start, piece.end)
        if low < high:
            parts.append(Piece(piece.path, low, high))
    return parts
