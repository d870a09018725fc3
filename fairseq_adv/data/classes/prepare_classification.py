"""Writes splits of labelled texts to the folder that ``--task text_classification`` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from fairseq_adv.data.tables.labelled_rows import LabelledRows, check_classes, refuse_odd_labels
from fairseq_adv.data.tables.row_checks import CheckedRows, check_rows
from fairseq_adv.data.tables.split_files import check_share, held_out
from fairseq_adv.data.text.labelled_folder import class_dictionary, class_names, write_folder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import Prepared, finished, workspace

FORMAT_VERSION = 1


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
    """

    tokenizer: TokenToIds
    regression: bool = False
    valid_share: Optional[float] = None
    seed: int = 1
    overwrite: bool = False
    refuse_suspicious: bool = False
    progress: bool = True
    allow_odd_labels: bool = False


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
    if not (config.regression or config.allow_odd_labels):
        refuse_odd_labels(splits[0])
    splits, notes = _with_valid(splits, config)
    made_from = {
        "format": FORMAT_VERSION,
        "kind": "numbers" if config.regression else "classes",
        "tokenizer": config.tokenizer.fingerprint(),
        "rows (sha256)": {split.name: _digest(split) for split in splits},
    }
    result = Prepared(title, out, notes=notes)
    classes = None
    if not config.regression:
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
    with workspace(out, made_from) as folder:
        write_folder(folder, splits, classes, config.tokenizer, result, config.progress)
    result.notes.append(_learned(class_names(classes) if classes else None, splits[0]))
    unlabelled = [split.name for split in splits if not split.labels]
    if unlabelled:
        result.notes.append(f"without labels: {', '.join(unlabelled)}")
    return result


def _with_valid(
    splits: Sequence[LabelledRows], config: PrepareConfig
) -> tuple[list[LabelledRows], list[str]]:
    has_valid = any(split.name == "valid" for split in splits)
    share = check_share(config.valid_share, has_valid)
    if has_valid:
        return list(splits), []
    train, *others = splits
    rows = len(train.labels)
    chosen = held_out(rows, share, config.seed, None if config.regression else train.labels)
    kept = sorted(set(range(rows)) - set(chosen))
    note = (
        f"no validation split: held out {len(chosen)} of {rows} training rows (--valid-share "
        f"{share} --seed {config.seed})"
    )
    return [train.picked("train", kept), train.picked("valid", chosen), *others], [note]


def _learned(classes: Optional[list[str]], train: LabelledRows) -> str:
    if classes is None:
        values = [float(label) for label in train.labels]
        return f"numbers from {min(values):g} to {max(values):g}"
    shown = [name if " " not in name else repr(name) for name in classes[:20]]
    return f"{len(classes)} classes: {', '.join(shown)}{', …' if len(classes) > 20 else ''}"


def _digest(split: LabelledRows) -> str:
    """SHA-256 of what will be written, except the tokenizer."""
    digest = hashlib.sha256()
    for row in zip(*split.inputs, *([split.labels] if split.labels else [])):
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()
