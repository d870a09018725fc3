"""Writes labelled texts, also those of natural language inference, for ``--task text_classification``.

Copies of training texts are changed by what attacks on words use: ``attack --words``.
"""

from __future__ import annotations

import hashlib
import json
import random
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Optional

from fairseq_adv.data.class_rows import same_class
from fairseq_adv.data.classes.nli_files import NliFile, find_files, read_nli
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import LabelledRows, check_classes, joined, refuse_odd_labels
from fairseq_adv.data.tables.row_checks import CheckedRows, check_rows
from fairseq_adv.data.tables.several_labels import check_label_sets, labels_in
from fairseq_adv.data.tables.split_files import check_share, held_out
from fairseq_adv.data.text.labelled_folder import SEVERAL, class_dictionary, class_names, write_folder
from fairseq_adv.data.text.word_text import Harmless, WordText, changed, part, read_phrases
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import Prepared, finished, workspace

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


def augmented(train: LabelledRows, augment: Augment, seed: int) -> tuple[LabelledRows, list[str]]:
    """The training rows and after them the copies, and a message for each kind.

    Of a pair, the second text is changed, as attacks do.

    Args:
        seed: of the choice of rows and words.

    Raises:
        DataError: there is no such class, or no text of another one.
    """
    rows = list(range(len(train.labels)))
    if augment.only_class is not None:
        classes = sorted(set(train.labels))
        known = same_class(augment.only_class, classes)
        if known is None:
            raise DataError(
                f"--augment-class {augment.only_class}: not in training. Pass one of "
                f"{', '.join(classes):.200}"
            )
        rows = [row for row in rows if train.labels[row] == known]
    harmless = Harmless() if augment.append_words is None else read_phrases(augment.append_words)
    if augment.append_other_classes:
        texts: dict[str, list[str]] = {}
        for label, text in zip(train.labels, train.inputs[-1]):
            texts.setdefault(label, []).append(text)
        harmless = Harmless(texts=texts)
    parts, messages = [train], []
    for change in dict.fromkeys(augment.kinds):
        chosen = random.Random(f"{seed}:{change}").sample(rows, part(augment.share, len(rows)))
        copies = _copies(train, change, sorted(chosen), harmless, seed)
        parts.append(copies)
        same = len(chosen) - len(copies.labels)
        left = f"; {same} had nothing to change" if same else ""
        messages.append(
            f"augmented: {len(copies.labels)} copies, {change}, of {len(rows)} training rows{left}"
        )
    return joined(train.name, parts), messages


def _copies(
    train: LabelledRows, change: str, rows: Sequence[int], harmless: Harmless, seed: int
) -> LabelledRows:
    """Copies of these rows, but not of rows in which nothing can change."""
    side, kept, texts = len(train.inputs) - 1, list[int](), list[str]()
    for row in rows:
        numbers = random.Random(f"{seed}:{change}:{row}")
        share = numbers.randint(1, _STEPS) / _STEPS
        text = WordText.of([train.inputs[side][row]])
        if not text.words:
            continue
        copy = changed(change, text, share, numbers, harmless, train.labels[row]).texts()
        if copy != text.originals:
            kept.append(row)
            texts += copy
    picked = train.picked(train.name, kept)
    return LabelledRows(train.name, (*picked.inputs[:-1], texts), picked.labels, picked.where)


FORMAT_VERSION = 1
_UNEQUAL = 5  # the largest class has so many times the rows of the smallest


@dataclass(frozen=True)
class PrepareConfig:
    """How a folder is made.

    Attributes:
        tokenizer: gives the dictionary ids.
        regression: the labels are numbers.
        valid_share: fraction of the training rows to hold out if there is no split "valid"; ``None``: 0.1.
        seed: for choosing them.
        overwrite: replace an output that was made from something else.
        refuse_suspicious: refuse what :func:`fairseq_adv.data.tables.row_checks.check_rows` finds.
        progress: show a progress bar.
        allow_odd_labels: take what :func:`fairseq_adv.data.tables.labelled_rows.refuse_odd_labels` refuses.
        several: the labels are texts of :func:`fairseq_adv.data.tables.several_labels.joined_labels`, for
            ``--task multi_label``.
        label_names: of ``several`` labels, in the order of the model's outputs; empty: those in training.
        augment: copies to add to the training rows; their words are chosen by ``seed`` too.
    """

    tokenizer: TokenToIds
    regression: bool = False
    valid_share: Optional[float] = None
    seed: int = 1
    overwrite: bool = False
    refuse_suspicious: bool = False
    progress: bool = True
    allow_odd_labels: bool = False
    several: bool = False
    label_names: Sequence[str] = ()
    augment: Optional[Augment] = None


def prepare_classification(
    splits: Sequence[LabelledRows], out: Path, config: PrepareConfig, title: str = "classification"
) -> Prepared:
    """Tokenises and binarises splits into ``out/{input0,input1,label,tokenizer}``.

    ``label/dict.txt`` has the classes ordered by value if all are numbers, else by name. ``out`` is written
    atomically. An interrupted run leaves no ``out``, and an ``out`` made from the same rows is kept.

    Args:
        splits: "train" first, then any others.
        out: the folder to create.
        config: the settings.
        title: what is prepared, for the progress bar and the report.

    Raises:
        DataError: a label does not occur in training (with its place), there are too few classes or rows, or
            ``out`` was not made by this function; the labels look like those of a wrong column, suspicious
            rows are to be refused, or there is a split "valid" beside ``valid_share``.
    """
    if not (config.regression or config.allow_odd_labels or config.several):
        refuse_odd_labels(splits[0])
    splits, notes = _with_valid(splits, config)
    written, copies = list(splits), list[str]()
    if config.augment is not None:
        written[0], copies = augmented(splits[0], config.augment, config.seed)
    made_from = {
        "format": FORMAT_VERSION,
        "kind": "numbers" if config.regression else SEVERAL if config.several else "classes",
        "tokenizer": config.tokenizer.fingerprint(),
        "rows (sha256)": {split.name: _digest(split) for split in written},
    }
    result = Prepared(title, out, notes=notes)
    classes = None
    if config.several:
        result.notes += check_label_sets(splits, config.label_names, config.allow_odd_labels)
        each = [labels_in(text) for text in splits[0].labels]
        classes = class_dictionary(list(chain(*each)), config.label_names)
        made_from["labels"] = class_names(classes)
    elif not config.regression:
        check_classes(splits[0], splits[1:])
        classes = class_dictionary(splits[0].labels)
    rows = [
        CheckedRows(split.name, zip(*split.inputs), split.labels, split.where)
        for split in splits
        if "-" not in split.name  # a round of ANLI, whose rows are also in "valid" or "test"
    ]
    result.notes += check_rows(rows, not config.regression, config.refuse_suspicious)
    if finished(out, made_from, config.overwrite):
        result.reused = True
        return result
    result.notes += copies
    with workspace(out, made_from) as folder:
        write_folder(folder, written, classes, config.tokenizer, result, config.progress, config.several)
    if classes is not None and not config.several:
        result.notes += _unequal(written[0].labels)
    result.notes.append(_learned(class_names(classes) if classes else None, splits[0], config.several))
    unlabelled = [split.name for split in splits if not split.labels]
    if unlabelled:
        result.notes.append(f"without labels: {', '.join(unlabelled)}")
    return result


def prepare_nli(folder: Path, out: Path, config: PrepareConfig, rounds: Sequence[str] = ()) -> Prepared:
    """Writes premises as ``input0`` and hypotheses as ``input1``.

    All rounds of ANLI are trained on together: "train", "valid" and "test" have all rounds, and "valid-R1" …
    and "test-R1" … one each.

    Args:
        folder: the data set's folder; ANLI's has R1, R2, R3, or files with such names.
        out: the folder to create.
        config: as in :func:`prepare_classification`.
        rounds: the rounds of ANLI to use; empty: all.

    Raises:
        DataError: naming file and line, or what is missing.
    """
    files = find_files(folder)
    if rounds:
        files = [file for file in files if file.round in rounds]
        lacking = set(rounds) - {file.round for file in files if file.split == "train"}
        if lacking:
            raise DataError(f"{folder}: no training file for the round {min(lacking)}. Leave --round out.")
    read: dict[str, list[tuple[NliFile, LabelledRows]]] = {}
    notes: dict[str, None] = {}  # an ordered set
    for file in files:
        rows, layout = read_nli(file)
        notes[f"layout: {layout.title}"] = None
        if rows.dropped:
            notes[f"{file.path}: left out {rows.dropped} rows without a gold label"] = None
        read.setdefault(file.split, []).append((file, rows))
    splits = [joined(split, [rows for _, rows in read[split]]) for split in sorted(read, key=_order)]
    for split in sorted(read, key=_order):
        if split != "train" and len(read[split]) > 1:
            splits += [joined(f"{split}-{file.round}", [rows]) for file, rows in read[split]]
    # The columns are those of the layout.
    result = prepare_classification(splits, out, replace(config, allow_odd_labels=True), "nli")
    result.notes[:0] = notes
    return result


def _order(split: str) -> tuple[bool, bool, str]:
    return split != "train", not split.startswith("valid"), split


def _with_valid(
    splits: Sequence[LabelledRows], config: PrepareConfig
) -> tuple[list[LabelledRows], list[str]]:
    has_valid = any(split.name == "valid" for split in splits)
    share = check_share(config.valid_share, has_valid)
    if has_valid:
        return list(splits), []
    train, *others = splits
    rows = len(train.labels)
    names = [labels_in(label) if config.several else [label] for label in train.labels]
    chosen = held_out(rows, share, config.seed, None if config.regression else names)
    kept = sorted(set(range(rows)) - set(chosen))
    note = (
        f"no validation split: held out {len(chosen)} of {rows} training rows (--valid-share "
        f"{share} --seed {config.seed})"
    )
    return [train.picked("train", kept), train.picked("valid", chosen), *others], [note]


def _learned(classes: Optional[list[str]], train: LabelledRows, several: bool) -> str:
    if classes is None:
        values = [float(label) for label in train.labels]
        return f"numbers from {min(values):g} to {max(values):g}"
    shown = [name if " " not in name else repr(name) for name in classes[:20]]
    what = "labels, of which a text may have several or none" if several else "classes"
    return f"{len(classes)} {what}: {', '.join(shown)}{', …' if len(classes) > 20 else ''}"


def _unequal(labels: Sequence[str]) -> list[str]:
    """What to do about classes of very unequal sizes: accuracy hardly sees the small ones."""
    ((most, largest), *_, (least, smallest)) = Counter(labels).most_common()
    if largest < _UNEQUAL * smallest:
        return []
    metric = f"f1 --positive-label {shlex.quote(least)}" if largest + smallest == len(labels) else "mcc"
    return [
        f"very unequal classes: {largest} training rows of {most!r}, {smallest} of {least!r}. Consider train "
        f"--class-weights balanced, and --best-checkpoint-metric {metric} instead of accuracy"
    ]


def _digest(split: LabelledRows) -> str:
    """SHA-256 of what will be written, except the tokenizer."""
    digest = hashlib.sha256()
    for row in zip(*split.inputs, *([split.labels] if split.labels else [])):
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()
