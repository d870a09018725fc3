"""AdvGLUE, HANS and ANLI, read as they are distributed: rows that trained models are measured on.

Imports neither torch nor fairseq, for the command's options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairseq_adv.data.checked_json import json_object, require_field
from fairseq_adv.data.classes.nli_files import (
    ROUNDS,
    NliFile,
    files_in,
    gold_rows,
    layout_of,
    nli_rows,
    round_named,
)
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import some_rows
from fairseq_adv.data.tables.labelled_rows import Columns, LabelledRows, joined, read_texts
from fairseq_adv.data.tables.split_files import split_named
from fairseq_adv.data.tables.table_files import text_cell

NLI = ("entailment", "neutral", "contradiction")
HANS = ("entailment", "non-entailment")
_IS_ENTAILED = ("entailment", "not_entailment")
_HANS_COLUMNS = ("pairID", "heuristic", "subcase", "template")


@dataclass(frozen=True)
class EvaluationRows:
    """n rows with right answers.

    Attributes:
        texts: (n,) a text each, or the two of a pair.
        labels: (n,) the right classes, by the set's names.
        columns: (n,) what else the set says of its rows, by name.
    """

    texts: list[tuple[str, ...]]
    labels: list[str]
    columns: dict[str, list[str]]


@dataclass(frozen=True)
class EvaluationSet:
    """A value of ``--task`` that is read with ``--input``.

    Attributes:
        name: that value.
        input: what to pass as ``--input``.
        classes: those that a model needs, by the set's names; those of HANS have any others besides.
        read: the rows of a path and a split ("dev", "test"), which only ANLI has.
    """

    name: str
    input: str
    classes: tuple[str, ...]
    read: Callable[[Path, str], EvaluationRows]

    @property
    def has_splits(self) -> bool:
        """Whether ``--split`` chooses among its rows."""
        return self.name == "ANLI"


def _hans(path: Path, _: str) -> EvaluationRows:
    columns = Columns(("sentence1", "sentence2"), "gold_label")
    rows = list(nli_rows(path))
    kept = {name: [text_cell(row, name, where) for where, row in rows] for name in _HANS_COLUMNS}
    return _checked(read_texts("HANS", rows, columns), HANS, kept)


def _anli(path: Path, split: str) -> EvaluationRows:
    parts, columns = list[LabelledRows](), {"round": list[str](), "uid": list[str]()}
    for file in _rounds(path, split):
        rows = list(nli_rows(file.path))
        layout = layout_of(rows[0][1], file.path)
        gold = gold_rows(rows, layout)
        if len(gold) < len(rows):
            known = {where for where, _ in gold}
            where = next(where for where, _ in rows if where not in known)
            raise DataError(f"{where}: no right answer in {layout.columns.label!r}. Each row needs one.")
        parts.append(read_texts(file.round, gold, layout.columns))
        columns["round"] += [file.round] * len(rows)
        columns["uid"] += [str(row.get("uid", "")) for _, row in rows]
    return _checked(joined("ANLI", parts), NLI, columns)


def _rounds(path: Path, split: str) -> list[NliFile]:
    """The files of a split in ANLI's folder, or the single file of a round."""
    if path.is_file():
        anli_round = round_named(Path(path.parent.name, path.name))
        if not anli_round:
            raise DataError(f"{path}: neither file nor folder is called R1, R2 or R3. Pass ANLI's folder.")
        return [NliFile(path, split, anli_round)]
    files = [one for one in files_in(path, only_rounds=True) if one.split == split_named(Path(split))]
    if not files:
        raise DataError(
            f"{path}: no file of the split {split!r}, such as R1/{split}.jsonl. Pass ANLI's folder, or "
            "--split dev or test."
        )
    return files


def _checked(read: LabelledRows, classes: Sequence[str], columns: dict[str, list[str]]) -> EvaluationRows:
    """Raises DataError for a label that the set doesn't have."""
    for label, where in zip(read.labels, read.where):
        if label not in classes:
            raise DataError(
                f"{where}: label {label!r:.40} is none of {', '.join(classes)}. Is it the right file?"
            )
    return EvaluationRows(list(zip(*read.inputs)), read.labels, columns)


def _advglue(
    path: Path, _: str, keys: Sequence[str], texts: Sequence[str], classes: Sequence[str]
) -> EvaluationRows:
    """One task of dev.json, whose labels are numbers in GLUE's order of the classes."""
    document = json_object(path)
    read = EvaluationRows([], [], {"task": [], "idx": []})
    numbers = ", ".join(f"{number} ({name})" for number, name in enumerate(classes))
    for key in keys:
        for number, row in enumerate(some_rows(require_field(document, key, list, str(path)), path)):
            where = f"{path}: {key}[{number}]"
            row = require_field({"row": row}, "row", dict, where)
            read.texts.append(tuple(require_field(row, name, str, where) for name in texts))
            label = row.get("label")
            if type(label) is not int or not 0 <= label < len(classes):
                raise DataError(f"{where}: label must be one of {numbers}, not {label!r:.40}")
            read.labels.append(classes[label])
            read.columns["task"].append(key)
            read.columns["idx"].append(str(row.get("idx", number)))
    return read


def _advglue_task(name: str, keys: str, texts: str, classes: tuple[str, ...]) -> EvaluationSet:
    read = partial(_advglue, keys=keys.split(), texts=texts.split(), classes=classes)
    return EvaluationSet(f"AdvGLUE-{name}", "dev.json", classes, read)


EVALUATION_SETS: tuple[EvaluationSet, ...] = (
    EvaluationSet("HANS", "heuristics_evaluation_set.txt", ("entailment",), _hans),
    EvaluationSet("ANLI", f"the folder with {', '.join(ROUNDS)}, or a file of one round", NLI, _anli),
    _advglue_task("SST-2", "sst2", "sentence", ("0", "1")),
    _advglue_task("QQP", "qqp", "question1 question2", ("0", "1")),
    _advglue_task("MNLI", "mnli mnli-mm", "premise hypothesis", NLI),
    _advglue_task("QNLI", "qnli", "question sentence", _IS_ENTAILED),
    _advglue_task("RTE", "rte", "sentence1 sentence2", _IS_ENTAILED),
)
