"""Multiple-choice data of several layouts to the jsonl files that ``--task arc_retrieval`` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fairseq_adv.data.choices.question_layouts import read_any_questions
from fairseq_adv.data.choices.questions import Question, row_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.held_out import held_out
from fairseq_adv.data.tables.split_names import split_named
from fairseq_adv.data.workspace import finished, workspace

FORMAT_VERSION = 1
SPLITS = ("train", "valid", "test")


@dataclass
class PreparedChoices:
    """What :func:`prepare_choices` did.

    Attributes:
        out: the folder.
        reused: nothing was done, because ``out`` was complete and made from the same.
        rows: the number of questions of each split.
        notes: what the user should know.
    """

    out: Path
    reused: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def files_of_splits(words: Sequence[str]) -> dict[str, Path]:
    """Which file is which split: as ``SPLIT=FILE`` says, else by the word in the file's name.

    Raises:
        DataError: a file's name says no split, or two are of the same; or there is none for training.
    """
    files: dict[str, Path] = {}
    for word in words:
        given, equals, rest = word.partition("=")
        named = bool(equals) and given in SPLITS
        path = Path(rest if named else word)
        split = given if named else split_named(path)
        if split not in SPLITS:
            raise DataError(f"{path}: its name says no split. Put it before the name, as in train={path}.")
        if split in files:
            raise DataError(f"{path}: the split {split!r} is {files[split]} already. Give one file for each.")
        files[split] = path
    if "train" not in files:
        raise DataError("there is no training file. Give one with 'train' in its name, or train=FILE.")
    return {split: files[split] for split in SPLITS if split in files}


def prepare_choices(
    files: Mapping[str, Path],
    out: Path,
    valid_share: float = 0.1,
    seed: int = 1,
    overwrite: bool = False,
) -> PreparedChoices:
    """Writes ``out/{train,valid,test}.jsonl`` in ARC's layout; whole or not at all.

    Where a choice ends a text, that text is its ``para``, and the stem is the beginning of the choice's
    sentence, or empty.

    Args:
        files: by fairseq's names of the splits, train among them.
        out: the folder to make.
        valid_share: the share of the training questions that is held out where there is no file for valid.
        seed: of that choice.
        overwrite: replace an ``out`` that an earlier run made from something else.

    Raises:
        DataError: a file is missing or wrong (with its line), a question of train or valid has no answer, or
            ``out`` is something else.
    """
    splits = {split: read_any_questions(path, split) for split, path in files.items()}
    result = PreparedChoices(out)
    for split in ("train", "valid"):
        for question in splits.get(split, ()):
            if question.answer is None:
                raise DataError(f"{question.where}: no answer, but the split {split} needs one. Add it.")
    if "valid" not in splits:
        train = splits["train"]
        chosen = set(held_out(len(train), valid_share, seed))
        splits["train"] = [question for row, question in enumerate(train) if row not in chosen]
        splits["valid"] = [question for row, question in enumerate(train) if row in chosen]
        result.notes.append(
            f"no validation file: {len(chosen)} of {len(train)} training questions held out for it "
            f"(--valid-share {valid_share} --seed {seed})"
        )
    texts = {f"{split}.jsonl": _lines(splits[split]) for split in SPLITS if split in splits}
    result.rows = {split: len(splits[split]) for split in SPLITS if split in splits}
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    made_from = {"format": FORMAT_VERSION, "questions (sha256)": digests}
    if finished(out, made_from, overwrite):
        result.reused = True
        return result
    with workspace(out, made_from) as space:
        for name, text in texts.items():
            if not space.has([name]):
                space.write([name], partial(_write, name=name, text=text))
    return result


def _lines(questions: Sequence[Question]) -> bytes:
    rows = [json.dumps(row_of(question), ensure_ascii=False) + "\n" for question in questions]
    return "".join(rows).encode("utf-8")


def _write(folder: Path, name: str, text: bytes) -> None:
    (folder / name).write_bytes(text)
