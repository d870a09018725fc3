"""Sentences in columns, as CoNLL's shared tasks distribute them: a word a line, its tag last.

Columns stand between tabs, or between blanks where a file has no tab. A blank line, or one that begins with
-DOCSTART-, ends a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tables.split_names import find_split_file
from fairseq_adv.data.tags.schemes import as_iob2

ENDINGS = (".tsv", ".txt", ".conll", ".iob", ".bio")
DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence.

    Attributes:
        words: at least one.
        tags: in IOB2; ``None`` in a file of words alone.
        path: the file.
        line: the number of the first word's line; each word has the next one.
    """

    words: Tuple[str, ...]
    tags: Optional[Tuple[str, ...]]
    path: Path = field(repr=False)
    line: int

    @property
    def where(self) -> str:
        """``FILE:LINE`` of the first word."""
        return f"{self.path}:{self.line}"


def find_columns(folder: Path, split: str) -> Path:
    """The file of a split; see :func:`fairseq_adv.data.tables.split_names.find_split_file`."""
    return find_split_file(folder, split, ENDINGS)


def read_columns(path: Path, tagged: bool = True) -> List[TaggedSentence]:
    """The sentences of a file.

    Args:
        path: the file.
        tagged: words alone, without a second column, are refused.

    Raises:
        DataError: naming the line: columns are missing, a tag is none, or two schemes are mixed.
    """
    rows = read_rows(path)
    is_alone = len(rows[0][1][0]) == 1
    if is_alone and tagged:
        raise DataError(
            f"{path}:{rows[0][0]}: one column. A line is a word, then a tab or a blank, and last its tag."
        )
    words = [tuple(cells[0] for cells in sentence) for _, sentence in rows]
    if is_alone:
        return [TaggedSentence(of, None, path, line) for of, (line, _) in zip(words, rows)]
    tags = as_iob2([(line, [cells[-1] for cells in sentence]) for line, sentence in rows], path)
    return [TaggedSentence(of, its, path, line) for of, its, (line, _) in zip(words, tags, rows)]


def read_rows(path: Path) -> List[Tuple[int, List[List[str]]]]:
    """The columns of each sentence's words, and the number of the first word's line.

    Raises:
        DataError: there are no words, or a line has more or fewer columns than the first; names it.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    rows: List[Tuple[int, List[List[str]]]] = []
    columns, is_open = 0, False
    for line, text in enumerate(text_lines(path), start=1):
        cells = cells_of(text.lstrip("\ufeff") if line == 1 else text)
        if not cells or cells[0] == DOCUMENT:
            is_open = False
            continue
        columns = columns or len(cells)
        if len(cells) != columns or not all(cells):
            raise DataError(
                f"{path}:{line}: {len([one for one in cells if one])} columns, but the lines before have "
                f"{columns}. A line is a word, then a tab or a blank, and last its tag."
            )
        if not is_open:
            rows.append((line, []))
        rows[-1][1].append(cells)
        is_open = True
    if not rows:
        raise DataError(f"{path}: has no words")
    return rows


def cells_of(line: str) -> List[str]:
    """The columns; none of a blank line. A word may hold other white space than tabs and blanks."""
    if not line.strip():
        return []
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]
