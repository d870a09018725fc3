"""Sentences in columns, as in CoNLL's shared tasks: one word per line, its tag in the last column.

Columns are separated by tabs, or by spaces in a file without tabs. A blank line, or one that begins with
-DOCSTART-, ends a sentence. A line before a sentence may be a comment, see :func:`is_comment`. CoNLL-2003
calls its files eng.train, eng.testa (for validation) and eng.testb.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, List, Optional, Sequence, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tags.schemes import as_iob2, is_tag

logger = logging.getLogger(__name__)

ENDINGS = (".tsv", ".txt", ".conll", ".iob", ".bio", ".train", ".testa", ".testb")
DOCUMENT = "-DOCSTART-"
# The line number of each sentence's first word, and the columns of its words.
Rows = List[Tuple[int, List[List[str]]]]


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence."""

    words: Tuple[str, ...]  # at least one
    tags: Optional[Tuple[str, ...]]  # in IOB2; ``None`` in a file of words only
    path: Path = field(repr=False)
    line: int  # the line number of the first word; the other words are on the lines after it

    @property
    def where(self) -> str:
        """``FILE:LINE`` of the first word."""
        return f"{self.path}:{self.line}"


def read_columns(path: Path, tagged: bool = True) -> List[TaggedSentence]:
    """Reads the sentences of a file.

    Args:
        tagged: refuse files of words only, without a second column.
    """
    rows = read_rows(path)
    is_alone = len(rows[0][1][0]) == 1
    if is_alone and tagged:
        raise DataError(
            f"{path}:{rows[0][0]}: only one column. Each line must be a word, a tab or space, and its tag."
        )
    return sentences_of(rows, path, None if is_alone else -1)


def sentences_of(rows: Rows, path: Path, column: Optional[int]) -> List[TaggedSentence]:
    """The sentences of :func:`read_rows`.

    Args:
        column: index of the column of the tags; ``None``: there are no tags.
    """
    tags: Sequence[Optional[Tuple[str, ...]]] = [None] * len(rows)
    if column is not None:
        tags = as_iob2([(line, [cells[column] for cells in sentence]) for line, sentence in rows], path)
    return [
        TaggedSentence(tuple(cells[0] for cells in sentence), its, path, line)
        for (line, sentence), its in zip(rows, tags)
    ]


def read_rows(path: Path, tell: bool = True) -> Rows:
    """The line number of each sentence's first word, and the columns of its words.

    Args:
        tell: log how many lines are comments.
    """
    rows: Rows = []
    columns, comments, is_open = 0, 0, False
    word = first_word(text_lines(path))
    for line, text in enumerate(text_lines(path), start=1):
        text = text.lstrip("\ufeff") if line == 1 else text
        cells = cells_of(text)
        if not cells or cells[0] == DOCUMENT:
            is_open = False
            continue
        if not is_open and is_comment(text, cells, word):
            comments += 1
            continue
        columns = columns or len(cells)
        if len(cells) != columns or not all(cells):
            raise DataError(
                f"{path}:{line}: {len([one for one in cells if one])} columns, but the lines before it have "
                f"{columns}. Each line must be a word, a tab or space, and its tag in the last column."
            )
        if not is_open:
            rows.append((line, []))
        rows[-1][1].append(cells)
        is_open = True
    if not rows:
        raise DataError(f"{path}: no words found")
    if comments and tell:
        logger.info("%s: left out %d comment lines, which begin with #", path, comments)
    return rows


def first_word(lines: Iterable[str]) -> str:
    """The first line that is a word for certain: it doesn't begin with #. If all do, the first that ends in a
    tag. Empty if there is none."""
    tagged = ""
    for line in (line.lstrip("\ufeff") for line in lines):
        cells = cells_of(line)
        if cells and cells[0] != DOCUMENT:
            if cells[0][:1] != "#":
                return line
            tagged = tagged or (line if is_tag(cells[-1]) else "")
    return tagged


def is_comment(line: str, cells: List[str], word: str) -> bool:
    """Whether a line before a sentence is a comment, such as CoNLL-U's ``# sent_id = 1``, and not a word, as
    ``#Berlin`` and a part of speech are.

    Args:
        cells: of the line.
        word: the line of a word of the file.
    """
    if len(cells) < 2 or cells[0][:1] != "#":
        return False
    has_tabs, columns = "\t" in line, cells_of(word)
    if not has_tabs and ("\t" in word or len(cells) != len(columns)):
        return True
    if is_tag(cells[-1]):
        return False
    # Where words end in a tag, a line that doesn't is none, however many columns it has.
    return line.startswith("# ") or (not has_tabs and is_tag(columns[-1]))


def cells_of(line: str) -> List[str]:
    """The columns; empty for a blank line. Words may contain white space other than tabs and spaces."""
    if not line.strip():
        return []
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]
