"""Converts GLUE's QNLI to the jsonl files that ``--task qnli_ranking`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.choices.qnli_pairs import Pairs, Row, labelled_pairs, rows_to_predict
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.layouts import SplitLayout, task_layout
from fairseq_adv.data.glue.tsv import read_split
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.workspace import finished, workspace

FORMAT_VERSION = 1
ENTAILED = "entailment"
REPORT = "report.json"
# All rows of dev, including those without a partner. They have no answer to train on, hence the name of a
# test split.
DEV_ROWS = "test-dev"


@dataclass
class PreparedPairs:
    """The result of :func:`prepare_pairs`.

    Attributes:
        out: the folder.
        report: counts of each split, and the indices of rows without a partner; as in ``report.json``.
        reused: nothing was done, because ``out`` was complete and made from the same input.
        notes: missing files.
    """

    out: Path
    report: dict[str, dict[str, Any]]
    reused: bool = False
    notes: list[str] = field(default_factory=list)


def prepare_pairs(folder: Path, out: Path, seed: int = 1, overwrite: bool = False) -> PreparedPairs:
    """Writes ``out/{train,valid,test-dev,test}.jsonl`` and ``report.json`` from GLUE's QNLI, atomically.

    ``train`` and ``valid`` have pairs with their answers. ``test`` has every row of test.tsv, for prediction,
    and ``test-dev`` every row of dev.tsv, to compute the score on all of dev.

    Args:
        folder: with train.tsv, dev.tsv and, optionally, test.tsv.
        out: the folder to create.
        seed: for the order of the choices.
        overwrite: replace an ``out`` that an earlier run made from something else.

    Raises:
        DataError: a file is missing or wrong (with its line), no pair can be made, or ``out`` was not made by
            this function.
    """
    layout = task_layout("QNLI")
    files = {Path(split.file).stem: split for split in layout.splits}
    for split in files.values():
        if split.required and not (folder / split.file).is_file():
            raise DataError(f"{folder}: no {split.file}. Pass the folder of GLUE's QNLI.")
    present = [name for name, split in files.items() if (folder / split.file).is_file()]
    made_from = _made_from([folder / files[name].file for name in present], seed)
    result = PreparedPairs(out, {}, notes=[f"no {n}.tsv" for n in files if n not in present])
    if finished(out, made_from, overwrite):
        result.report, result.reused = json_object(out / REPORT), True
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
    result.report = {name: _summary(len(rows[sources[name]]), pairs) for name, pairs in splits.items()}
    with workspace(out, made_from) as space:
        texts = {f"{name}.jsonl": _lines(name, pairs) for name, pairs in splits.items()}
        texts[REPORT] = [json.dumps(result.report)]
        for file, lines in texts.items():
            # Only line feeds end a line: a sentence may contain U+2028 and the like.
            (space / file).write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
    return result


def _read(folder: Path, name: str, split: SplitLayout) -> list[Row]:
    # The index is read like a text: it identifies the row in the submission.
    read = read_split(folder / split.file, task_layout("QNLI"), replace(split, inputs=(0, *split.inputs)))
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for i, (texts, line) in enumerate(zip(zip(*read.inputs), read.lines)):
        index, question, sentence = (text.strip() for text in texts)
        for column, text in zip(split.columns, (index, question, sentence)):
            if not text:
                raise DataError(f"{read.path}:{line}: empty {column}. Fill it in, or remove the line.")
        if index in seen:
            raise DataError(
                f"{read.path}:{line}: index {index} is also on line {seen[index]}. Indices must be unique."
            )
        seen[index] = line
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


def _lines(name: str, pairs: Pairs) -> list[str]:
    lines = []
    for number, (rows, answer) in enumerate(pairs.questions):
        choices = [{"label": row.label, "text": row.sentence} for row in rows]
        entry: dict[str, Any] = {
            "id": f"{name}-{number}",
            "question": {"stem": rows[0].question, "choices": choices},
        }
        if answer is not None:
            entry["answerKey"] = rows[answer].label
        lines.append(json.dumps(entry, ensure_ascii=False))
    return lines


def _made_from(files: Iterable[Path], seed: int) -> dict[str, Any]:
    hashes = {path.name: sha256_of(path) for path in files}
    return {"format": FORMAT_VERSION, "seed": seed, "input files (sha256)": hashes}
