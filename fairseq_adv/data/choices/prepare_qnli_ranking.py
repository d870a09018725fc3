"""Converts GLUE's QNLI to the jsonl files that ``--task qnli_ranking`` reads: its rows grouped by question.

Which sentence contains the answer? (FreeLB, 4.1) QNLI was made from SQuAD in such a way that most questions
come with one entailed and one other sentence. Ranking exploits that; a classifier of single rows does not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.checked_json import json_object, note_id
from fairseq_adv.data.choices.questions import Choice, Question, jsonl_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import SplitLayout, read_split, task_layout
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.workspace import Prepared, finished, workspace

FORMAT_VERSION = 1
ENTAILED = "entailment"
REPORT = "report.json"
# All rows of dev, including those without a partner. They have no answer to train on, hence the name of a
# test split.
DEV_ROWS = "test-dev"


def prepare_pairs(folder: Path, out: Path, seed: int = 1, overwrite: bool = False) -> Prepared:
    """Writes ``out/{train,valid,test-dev,test}.jsonl`` and ``report.json`` from GLUE's QNLI, atomically.

    ``train`` and ``valid`` have pairs with their answers. ``test`` has every row of test.tsv, for prediction,
    and ``test-dev`` every row of dev.tsv, to compute the score on all of dev.

    Args:
        seed: for the order of the choices.
    """
    layout = task_layout("QNLI")
    files = {Path(split.file).stem: split for split in layout.splits}
    for split in files.values():
        if split.required and not (folder / split.file).is_file():
            raise DataError(f"{folder}: no {split.file}. Pass the folder of GLUE's QNLI.")
    present = [name for name, split in files.items() if (folder / split.file).is_file()]
    hashes = {files[name].file: sha256_of(folder / files[name].file) for name in present}
    made_from = {"format": FORMAT_VERSION, "seed": seed, "input files (sha256)": hashes}
    result = Prepared("QNLI", out, notes=[f"no {n}.tsv" for n in files if n not in present])
    if finished(out, made_from, overwrite):
        result.reused, result.details = True, _details(json_object(out / REPORT))
        return result
    rows = {name: _read(folder, name, files[name]) for name in present}
    train, dev = _as_partners("train", rows["train"]), _as_partners("dev", rows["dev"])
    splits = {
        "train": labelled_pairs("train", rows["train"], seed=seed),
        "valid": labelled_pairs("valid", rows["dev"], train, seed),
        DEV_ROWS: rows_to_predict(DEV_ROWS, rows["dev"], train, seed),
    }
    if "test" in rows:
        splits["test"] = rows_to_predict("test", rows["test"], train + dev, seed)
    for name, file in (("train", "train.tsv"), ("valid", "dev.tsv")):
        if not splits[name].questions:
            raise DataError(
                f"{folder / file}: no question has both an entailed sentence and another one, so there are "
                "no pairs. Is the file only a part of the original?"
            )
    sources = {"train": "train", "valid": "dev", DEV_ROWS: "dev", "test": "test"}
    report = {name: _summary(len(rows[sources[name]]), pairs) for name, pairs in splits.items()}
    with workspace(out, made_from) as space:
        for name, pairs in splits.items():
            (space / f"{name}.jsonl").write_bytes(jsonl_of(_questions(name, pairs)))
        (space / REPORT).write_bytes(json.dumps(report).encode() + b"\n")
    result.details = _details(report)
    return result


def _read(folder: Path, name: str, split: SplitLayout) -> list[Row]:
    # The index is read like a text: it identifies the row in the submission.
    read = read_split(folder / split.file, task_layout("QNLI"), replace(split, inputs=(0, *split.inputs)))
    rows: list[Row] = []
    seen: dict[str, str] = {}
    for i, (texts, where) in enumerate(zip(zip(*read.inputs), read.where)):
        index, question, sentence = (text.strip() for text in texts)
        for column, text in zip(split.columns, (index, question, sentence)):
            if not text:
                raise DataError(f"{where}: empty {column}. Fill it in, or remove the line.")
        note_id(seen, index, where)
        entailed = read.labels[i] == ENTAILED if read.labels else None
        rows.append(Row(index, question, sentence, entailed, index))
    return rows


def _as_partners(name: str, rows: Iterable[Row]) -> list[Row]:
    return [replace(row, label=f"{name}-{row.index}") for row in rows]


def _summary(rows: int, pairs: Pairs) -> dict[str, Any]:
    right = [answer for _, answer in pairs.questions if answer is not None]
    return {
        "rows": rows,
        "questions": len(pairs.questions),
        "right choice first": right.count(0) if right else None,
        "rows paired with a row used before": pairs.reused,
        "rows paired with a row of another split": pairs.mined,
        "rows alone": len(pairs.alone),
        "indices of rows alone": pairs.alone,
    }


def _details(report: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for split, counts in report.items():
        lines.append(f"{split}: {counts['questions']} questions from {counts['rows']} rows")
        for what in ("rows paired with a row used before", "rows paired with a row of another split"):
            if counts[what]:
                lines.append(f"  {what}: {counts[what]}")
        if counts["rows alone"]:
            fate = "left out" if split in ("train", "valid") else "questions with one choice"
            lines.append(f"  rows without a partner: {counts['rows alone']}, {fate} (report.json names them)")
    return lines


def _questions(name: str, pairs: Pairs) -> list[Question]:
    return [
        Question(
            f"{name}-{number}", rows[0].question, tuple(Choice(row.label, row.sentence) for row in rows),
            answer, "",
        )
        for number, (rows, answer) in enumerate(pairs.questions)
    ]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of GLUE's file."""

    index: str  # its first column, as written
    question: str  # without surrounding white space
    sentence: str  # without surrounding white space
    entailed: Optional[bool]  # whether the sentence contains the answer; ``None``: unknown
    # the choice's label: the index, prefixed with the file's name if it comes from another split
    # ("dev-17"); such a row is never predicted
    label: str


@dataclass
class Pairs:
    """The questions of one split."""

    # (rows in random order, position of the right one or ``None``)
    questions: list[tuple[list[Row], Optional[int]]] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)  # indices of rows without a partner
    reused: int = 0  # number of rows that are in more than one pair
    mined: int = 0  # number of rows paired with a row of another split


def labelled_pairs(name: str, rows: Sequence[Row], others: Sequence[Row] = (), seed: int = 1) -> Pairs:
    """Pairs of one entailed and one other sentence, for training and validation.

    The i-th entailed row of a question is paired with its i-th other row; each remaining row is paired with a
    row that already has a partner, in turn. If a question has rows of one kind only, ``others`` is searched
    for rows of the other kind; if there are none, its rows are left out.

    Args:
        name: of the split; together with the seed and the pair's number it determines the pair's order.
    """
    result, elsewhere = Pairs(), _by_question(others)
    for question, group in _by_question(rows).items():
        right = [row for row in group if row.entailed]
        wrong = [row for row in group if not row.entailed]
        if not right or not wrong:
            others_of_question = _elsewhere(group, elsewhere.get(question, []))
            mined = [row for row in others_of_question if bool(row.entailed) == bool(wrong)]
            if not mined:
                result.alone += [row.index for row in group]
                continue
            result.mined += len(group)
            mined = mined[: len(group)]
            right, wrong = (right, mined) if right else (mined, wrong)
        pairs = max(len(right), len(wrong))
        result.reused += pairs - min(len(right), len(wrong))
        for i in range(pairs):
            chosen = [right[i % len(right)], wrong[i % len(wrong)]]
            order = _drawn([0, 1], seed, name, len(result.questions))
            result.questions.append(([chosen[k] for k in order], order.index(0)))
    return result


def rows_to_predict(name: str, rows: Sequence[Row], others: Sequence[Row] = (), seed: int = 1) -> Pairs:
    """Every row once: each question with all its rows, ignoring their labels.

    A row whose question occurs once is paired with the first row of the same question in ``others``. Without
    one, it becomes a question with a single choice.
    """
    result, elsewhere = Pairs(), _by_question(others)
    for question, group in _by_question(rows).items():
        if len(group) == 1:
            partner = _elsewhere(group, elsewhere.get(question, []))[:1]
            result.mined += len(partner)
            group = group + partner
        if len(group) == 1:
            result.alone.append(group[0].index)
        order = _drawn(list(range(len(group))), seed, name, len(result.questions))
        result.questions.append(([group[k] for k in order], None))
    return result


def _by_question(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.question, []).append(row)
    return groups


def _elsewhere(group: Sequence[Row], rows: Iterable[Row]) -> list[Row]:
    """The rows with another sentence: the same sentence would always tie."""
    sentences = {row.sentence for row in group}
    return [row for row in rows if row.sentence not in sentences]


def _drawn(order: list[int], seed: int, name: str, number: int) -> list[int]:
    """The order of a question's choices, independent of all other questions."""
    random.Random(f"{seed} {name} {number}").shuffle(order)
    return order
