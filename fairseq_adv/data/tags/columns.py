"""Sentences in columns, as in CoNLL's shared tasks: one word per line, its tag in the last column.

Columns are separated by tabs, or by spaces in a file without tabs. A blank line, or one that begins with
-DOCSTART-, ends a sentence. A line before a sentence may be a comment, see :func:`is_comment`. CoNLL-2003
calls its files eng.train, eng.testa (for validation) and eng.testb.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines

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


def read_rows(path: Path, warn: bool = True) -> Rows:
    """The line number of each sentence's first word, and the columns of its words.

    Args:
        warn: log how many lines are comments.
    """
    rows: Rows = []
    columns, comments, is_open = 0, 0, False
    lines = text_lines(path)
    word = first_word(lines)
    for line, text in enumerate(lines, start=1):
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
    if comments and warn:
        logger.info("%s: left out %d comment lines, which begin with #", path, comments)
    return rows


def first_word(lines: Iterable[str]) -> str:
    """The first line that is a word for certain: it doesn't begin with #. If all do, the first that ends in a
    tag. Empty if there is none."""
    tagged = ""
    for line in lines:
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


# ---- tags that mark entities
#
# IOB2 begins each entity with B-. IOB1 (CoNLL-2003) begins it with I-, and with B- only directly after
# another entity of the same type. BIOES also marks an entity's last word (E-), and single-word entities (S-).


OUTSIDE = "O"
Lines = Sequence[Tuple[int, Sequence[str]]]
"""The sentences of a file: the line number of the first word, and the tags of all words."""
_IOB2_OF = {"B": "B", "I": "I", "E": "I", "S": "B"}


def as_iob2(sentences: Lines, path: Path) -> List[Tuple[str, ...]]:
    """Converts the tags of each sentence to IOB2.

    The scheme is determined for the whole file.
    """
    check_tags(sentences, path)
    if any(tag[0] in "ES" for _, tag, _ in _tags(sentences)):
        _check_bioes(sentences, path)
    elif _is_iob1(sentences, path):
        return [from_iob1(tags) for _, tags in sentences]
    return [tuple(map(iob2_of, tags)) for _, tags in sentences]


def iob2_of(tag: str) -> str:
    """Converts an IOB2 or BIOES tag to IOB2."""
    return tag if tag == OUTSIDE else _IOB2_OF[tag[0]] + tag[1:]


def is_tag(text: str) -> bool:
    """Whether this is a tag in one of the schemes."""
    prefix, _, entity_type = text.partition("-")
    return text == OUTSIDE or (prefix in _IOB2_OF and entity_type != "")


def check_tags(sentences: Lines, path: Path) -> None:
    """Raises DataError, naming the line, for a tag that is invalid in every scheme."""
    for line, tag, _ in _tags(sentences):
        if not is_tag(tag):
            raise DataError(
                f"{path}:{line}: {tag!r} is not a tag. Write O, or B-, I-, E- or S- followed by the entity's "
                "type, in the last column."
            )


def types_of(sentences: Sequence[Sequence[str]]) -> List[str]:
    """The types of the entities, sorted; the tags are in any scheme."""
    return sorted({tag[2:] for tags in sentences for tag in tags if tag != OUTSIDE})


def tag_names(types: Sequence[str]) -> List[str]:
    """The tags of these types in IOB2, in the order of their numbers: O, then B- and I- of each type."""
    return [OUTSIDE, *(f"{prefix}-{one}" for one in types for prefix in "BI")]


def _tags(sentences: Lines) -> Iterator[Tuple[int, str, str]]:
    """Line, tag, and the previous word's tag, which is O for the first word of a sentence."""
    for first, tags in sentences:
        before = OUTSIDE
        for number, tag in enumerate(tags):
            yield first + number, tag, before
            before = tag


def is_mostly_iob1(sentences: Lines) -> bool:
    """Whether most entities begin with I-, not counting those directly after one of the same type."""
    begins = [tag[0] for _, tag, before in _tags(sentences) if tag != OUTSIDE and tag[2:] != before[2:]]
    return 2 * begins.count("I") > len(begins)


def _is_iob1(sentences: Lines, path: Path) -> bool:
    """Whether entities begin with I-; in IOB1, B- only occurs directly after an entity of the same type."""
    first: Dict[bool, Tuple[int, str]] = {}  # where one begins with I-, and where with another letter
    for line, tag, before in _tags(sentences):
        if tag != OUTSIDE and tag[2:] != before[2:]:
            first.setdefault(tag[0] == "I", (line, tag))
    if len(first) == 2:
        (other, its), (line, tag) = first.values()
        raise DataError(
            f"{path}:{line}: an entity begins with {tag}, but on line {other} one begins with {its}: IOB1 "
            "and IOB2 are mixed. Begin every entity with B-."
        )
    return True in first


def from_iob1(tags: Sequence[str]) -> Tuple[str, ...]:
    before = [OUTSIDE, *tags]
    return tuple(
        "B" + tag[1:] if tag[0] == "I" and last[2:] != tag[2:] else tag for last, tag in zip(before, tags)
    )


def _check_bioes(sentences: Lines, path: Path) -> None:
    for first, tags in sentences:
        is_open = ""  # the type of an entity that must continue
        for line, tag in enumerate([*tags, OUTSIDE], first):
            goes_on = tag[0] in "IE"
            if tag[2:] != is_open if goes_on else is_open:
                what = (
                    f"{tag} does not continue an entity of its type"
                    if goes_on
                    else f"no E-{is_open} before it"
                )
                raise DataError(
                    f"{path}:{line}: {what}, which BIOES requires, and the file has E- or S- tags. Write all "
                    "tags in one scheme."
                )
            is_open = tag[2:] if tag[0] in "BI" else ""
