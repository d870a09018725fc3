"""Changed copies of training texts, made by what attacks on words use: ``attack --words``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Optional

from fairseq_adv.data.class_rows import same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import LabelledRows, joined
from fairseq_adv.data.text.changed_words import Harmless, changed, read_phrases
from fairseq_adv.data.text.word_text import WordText

_STEPS = 10  # a copy has 1, 2, … or 10 tenths of the changes


@dataclass(frozen=True)
class Augment:
    """Which copies are made.

    Attributes:
        kinds: of spaced, homoglyphs and appended; a row gets a copy of each.
        share: of the rows that get copies.
        only_class: of these rows; ``None``: of all.
        append_words: a file of words or phrases to append; ``None``: everyday words.
        append_other_classes: append words of training texts of other classes instead.
    """

    kinds: Sequence[str]
    share: float = 1.0
    only_class: Optional[str] = None
    append_words: Optional[Path] = None
    append_other_classes: bool = False


def augmented(train: LabelledRows, how: Augment, seed: int) -> tuple[LabelledRows, list[str]]:
    """The training rows and after them the copies, and a message for each kind.

    Of a pair, the second text is changed, as attacks do.

    Args:
        seed: of the choice of rows and words.

    Raises:
        DataError: there is no such class, or no text of another one.
    """
    rows = list(range(len(train.labels)))
    if how.only_class is not None:
        classes = sorted(set(train.labels))
        known = same_class(how.only_class, classes)
        if known is None:
            raise DataError(
                f"--augment-class {how.only_class}: not in training. Pass one of {', '.join(classes):.200}"
            )
        rows = [row for row in rows if train.labels[row] == known]
    harmless = Harmless() if how.append_words is None else read_phrases(how.append_words)
    if how.append_other_classes:
        texts: dict[str, list[str]] = {}
        for label, text in zip(train.labels, train.inputs[-1]):
            texts.setdefault(label, []).append(text)
        harmless = Harmless(texts=texts)
    parts, told = [train], []
    for kind in dict.fromkeys(how.kinds):
        chosen = random.Random(f"{seed}:{kind}").sample(rows, ceil(how.share * len(rows)))
        copies = _copies(train, kind, sorted(chosen), harmless, seed)
        parts.append(copies)
        same = len(chosen) - len(copies.labels)
        left = f"; {same} had nothing to change" if same else ""
        told.append(f"augmented: {len(copies.labels)} copies, {kind}, of {len(rows)} training rows{left}")
    return joined(train.name, parts), told


def _copies(
    train: LabelledRows, kind: str, rows: Sequence[int], harmless: Harmless, seed: int
) -> LabelledRows:
    """Copies of these rows, but not of rows in which nothing can change."""
    side, kept, texts = len(train.inputs) - 1, list[int](), list[str]()
    for row in rows:
        numbers = random.Random(f"{seed}:{kind}:{row}")
        share = numbers.randint(1, _STEPS) / _STEPS
        text = WordText.of([train.inputs[side][row]])
        if not text.words:
            continue
        copy = changed(kind, text, share, numbers, harmless, train.labels[row]).texts()
        if copy != text.originals:
            kept.append(row)
            texts += copy
    picked = train.picked(train.name, kept)
    return LabelledRows(train.name, (*picked.inputs[:-1], texts), picked.labels, picked.where)
