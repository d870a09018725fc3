"""Converts multiple-choice data of several layouts to the jsonl files that ``--task arc_retrieval`` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from fairseq_adv.data.choices.question_layouts import read_any_questions
from fairseq_adv.data.choices.questions import Question, jsonl_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.row_checks import CheckedRows, check_rows
from fairseq_adv.data.tables.split_files import SPLITS, check_share, held_out
from fairseq_adv.data.workspace import Prepared, finished, workspace

FORMAT_VERSION = 1


def prepare_choices(
    files: Mapping[str, Path],
    out: Path,
    valid_share: Optional[float] = None,
    seed: int = 1,
    overwrite: bool = False,
    refuse_suspicious: bool = False,
) -> Prepared:
    """Writes ``out/{train,valid,test}.jsonl`` in ARC's layout, atomically.

    If choices continue a context, the context becomes their ``para``, and the stem is the start of the
    choices' sentence, or empty.

    Args:
        files: by fairseq's split names; train is required.
        out: the folder to create.
        valid_share: fraction of the training questions to hold out if there is no validation file; ``None``:
            0.1.
        seed: for choosing them.
        overwrite: replace an ``out`` that an earlier run made from something else.
        refuse_suspicious: refuse what :func:`fairseq_adv.data.tables.row_checks.check_rows` finds.

    Raises:
        DataError: a file is missing, or wrong (with its line), a question of train or valid has no answer,
            ``out`` was not made by this function, suspicious questions are to be refused, or there is a
            validation file beside ``valid_share``.
    """
    if "train" not in files:
        raise DataError("no training file. Pass one with 'train' in its name, or train=FILE.")
    share = check_share(valid_share, "valid" in files)
    splits = {split: read_any_questions(path, split) for split, path in files.items()}
    result = Prepared("choices", out)
    for split in ("train", "valid"):
        for question in splits.get(split, ()):
            if question.answer is None:
                raise DataError(f"{question.where}: no answer, but the split {split} needs one. Add it.")
    if "valid" not in splits:
        train = splits["train"]
        chosen = set(held_out(len(train), share, seed))
        splits["train"] = [question for row, question in enumerate(train) if row not in chosen]
        splits["valid"] = [question for row, question in enumerate(train) if row in chosen]
        result.notes.append(
            f"no validation file: held out {len(chosen)} of {len(train)} training questions "
            f"(--valid-share {share} --seed {seed})"
        )
    checked = [_checked(split, splits[split]) for split in SPLITS if split in splits]
    result.notes += check_rows(checked, has_classes=False, refuse=refuse_suspicious)
    texts = {f"{split}.jsonl": jsonl_of(splits[split]) for split in SPLITS if split in splits}
    result.rows = {split: len(splits[split]) for split in SPLITS if split in splits}
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    made_from = {"format": FORMAT_VERSION, "questions (sha256)": digests}
    if finished(out, made_from, overwrite):
        result.reused = True
        return result
    with workspace(out, made_from) as folder:
        for name, text in texts.items():
            (folder / name).write_bytes(text)
    return result


def _checked(split: str, questions: Sequence[Question]) -> CheckedRows:
    """The questions with their choices in any order; the label is the text of the right one."""
    texts = (
        (*filter(None, (one.choices[0].context, one.stem)), *sorted(choice.text for choice in one.choices))
        for one in questions
    )
    labels = ["" if one.answer is None else one.choices[one.answer].text for one in questions]
    return CheckedRows(split, texts, labels, [one.where for one in questions])
