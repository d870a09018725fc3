"""Tags that mark entities: reads IOB1, IOB2 and BIOES, and converts them to IOB2.

IOB2 begins each entity with B-. IOB1 (CoNLL-2003) begins it with I-, and with B- only directly after another
entity of the same type. BIOES also marks an entity's last word (E-), and single-word entities (S-).
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from fairseq_adv.data.errors import DataError

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
    iob1: Optional[Tuple[int, str]] = None
    iob2: Optional[Tuple[int, str]] = None
    for line, tag, before in _tags(sentences):
        if tag == OUTSIDE or tag[2:] == before[2:]:
            continue
        if tag[0] == "I":
            iob1 = iob1 or (line, tag)
        else:
            iob2 = iob2 or (line, tag)
    if iob1 and iob2:
        (line, tag), (other, its) = max(iob1, iob2), min(iob1, iob2)
        raise DataError(
            f"{path}:{line}: an entity begins with {tag}, but on line {other} one begins with {its}: IOB1 "
            "and IOB2 are mixed. Begin every entity with B-."
        )
    return iob1 is not None


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
