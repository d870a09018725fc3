"""GLUE's files: where each has its sentences and labels, and how it is read and checked.

The columns are those of fairseq's recipe ``examples/roberta/preprocess_GLUE_tasks.sh``, counted from 0 here
and from 1 there. WNLI is not in the recipe; its files look like RTE's. AX, the diagnostic set, has only a
test file and is predicted by an MNLI model. A file is read as by the recipe's ``tail``, ``awk`` and ``cut``:
a line ends at a line feed only, a cell at a tab only, and a quote is an ordinary character.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import lines_of
from fairseq_adv.data.printable import plain_name
from fairseq_adv.data.tables.labelled_rows import NUMBER, LabelledRows


@dataclass(frozen=True)
class SplitLayout:
    """One file of a task."""

    name: str  # the split's name in fairseq (train, valid, valid1, test, test1)
    file: str  # the file's name in GLUE
    columns: Tuple[str, ...]  # the names of all columns, in order; the header if ``has_header`` is true
    inputs: Tuple[int, ...]  # positions of the sentences in ``columns``
    label: Optional[int]  # position of the label in ``columns``, or None for a split without labels
    has_header: bool = True  # whether the first line names the columns
    # whether the recipe drops rows that don't have exactly ``len(columns)`` fields
    drops_malformed: bool = False
    required: bool = True  # whether the task needs this file
    other_file: str = ""  # an alternative name for the file

    def path(self, folder: Path) -> Path:
        """The file in ``folder``; by its other name if only that exists."""
        path, other = folder / self.file, folder / self.other_file
        return other if self.other_file and other.is_file() and not path.is_file() else path


@dataclass(frozen=True)
class TaskLayout:
    """A GLUE task: its splits and labels. ``classes`` is empty for a regression (STS-B, scores 0 to 5)."""

    name: str
    classes: Tuple[str, ...]
    splits: Tuple[SplitLayout, ...]
    labels_of: str = ""  # the task whose labels are used, for a task without training data (AX)
    other_folder: str = ""  # an alternative name for the task's folder

    @property
    def folders(self) -> Tuple[str, ...]:
        """The names that the task's folder can have."""
        return (self.name, self.other_folder) if self.other_folder else (self.name,)


def _split(name: str, file: str, columns: str, inputs: str, label: str = "", **others: Any) -> SplitLayout:
    names = tuple(columns.split(","))
    return SplitLayout(
        name=name,
        file=file,
        columns=names,
        inputs=tuple(names.index(one) for one in inputs.split(",")),
        label=names.index(label) if label else None,
        **{"required": not name.startswith("test"), **others},
    )


def _task(
    name: str, classes: str, columns: str, inputs: str, label: str, test_columns: str, **others: Any
) -> TaskLayout:
    """A task with train.tsv, dev.tsv and test.tsv; ``others`` are of the first two."""
    splits = (
        _split("train", "train.tsv", columns, inputs, label, **others),
        _split("valid", "dev.tsv", columns, inputs, label, **others),
        _split("test", "test.tsv", test_columns, inputs),
    )
    return TaskLayout(name, tuple(classes.split(",")) if classes else (), splits)


def _mnli() -> TaskLayout:
    test = (
        "index,promptID,pairID,genre,sentence1_binary_parse,sentence2_binary_parse,sentence1_parse,sentence2_parse,"
        "sentence1,sentence2"
    )
    train = test + ",label1,gold_label"
    dev = test + ",label1,label2,label3,label4,label5,gold_label"
    inputs, label = "sentence1,sentence2", "gold_label"
    splits = (
        _split("train", "train.tsv", train, inputs, label),
        _split("valid", "dev_matched.tsv", dev, inputs, label),
        _split("valid1", "dev_mismatched.tsv", dev, inputs, label),
        _split("test", "test_matched.tsv", test, inputs),
        _split("test1", "test_mismatched.tsv", test, inputs),
    )
    return TaskLayout("MNLI", ("contradiction", "entailment", "neutral"), splits)


_PAIR, _SENTENCES = "index,sentence1,sentence2", "sentence1,sentence2"
_MRPC = "Quality,#1 ID,#2 ID,#1 String,#2 String"
_STSB = "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"
_QQP, _QNLI = "question1,question2", "index,question,sentence"
_IS_ENTAILED = "entailment,not_entailment"
# In the order of MNLI's label dictionary: by their counts in GLUE's train.tsv (130903, 130900, 130899).
_AX = ("contradiction", "neutral", "entailment")

TASKS: Tuple[TaskLayout, ...] = (
    _task(
        "CoLA", "0,1", "source,label,star,sentence", "sentence", "label", "index,sentence", has_header=False
    ),
    _task("SST-2", "0,1", "sentence,label", "sentence", "label", "index,sentence"),
    _task("MRPC", "0,1", _MRPC, "#1 String,#2 String", "Quality", _MRPC.replace("Quality", "index")),
    _task("STS-B", "", _STSB + ",score", _SENTENCES, "score", _STSB),
    _task(
        "QQP", "0,1", f"id,qid1,qid2,{_QQP},is_duplicate", _QQP, "is_duplicate", f"id,{_QQP}",
        drops_malformed=True,
    ),
    _mnli(),
    _task("QNLI", _IS_ENTAILED, _QNLI + ",label", "question,sentence", "label", _QNLI),
    _task("RTE", _IS_ENTAILED, _PAIR + ",label", _SENTENCES, "label", _PAIR),
    _task("WNLI", "0,1", _PAIR + ",label", _SENTENCES, "label", _PAIR),
    TaskLayout(
        "AX", _AX, (_split("test", "diagnostic.tsv", _PAIR, _SENTENCES, required=True, other_file="AX.tsv"),),
        labels_of="MNLI", other_folder="diagnostic",
    ),
)  # fmt: skip


def task_layout(name: str) -> TaskLayout:
    """The layout of a task, by its name in any case, with or without its hyphen."""
    for task in TASKS:
        if plain_name(task.name) == plain_name(name):
            return task
    names = ", ".join(task.name for task in TASKS)
    raise DataError(f"{name}: no such GLUE task. Choose one of {names}.")


def read_split(path: Path, task: TaskLayout, layout: SplitLayout) -> LabelledRows:
    """Reads and checks one file."""
    rows = lines_of(path)
    used = layout.inputs if layout.label is None else (*layout.inputs, layout.label)
    if layout.has_header:
        _check_header(path, layout, used, next(rows, (1, ""))[1])
    inputs: Tuple[List[str], ...] = tuple([] for _ in layout.inputs)
    labels: List[str] = []
    places: List[str] = []
    dropped = 0
    for number, row in rows:
        where, cells = f"{path}:{number}", row.split("\t")
        if len(cells) != len(layout.columns):
            if layout.drops_malformed:
                dropped += 1
                continue
            _check_width(where, layout, cells)
        cells[-1] = cells[-1].removesuffix("\r")  # the recipe's later steps treat \r\n as one line end
        for column in used:
            if "\r" in cells[column]:  # to them it ends a line too: every later label on the wrong row
                raise DataError(
                    f"{where}: a carriage return inside column {column + 1}. Replace it with a space."
                )
        for values, column in zip(inputs, layout.inputs):
            values.append(cells[column])
        if layout.label is not None:
            labels.append(_checked_label(where, task, cells[layout.label]))
        places.append(where)
    if not places:
        raise DataError(
            f"{path}: no rows{' of the right width' if dropped else ''} found. Download {task.name} again."
        )
    return LabelledRows(layout.name, inputs, labels, places, dropped)


def _check_header(path: Path, layout: SplitLayout, used: Tuple[int, ...], header: str) -> None:
    names = header.rstrip("\r").split("\t")
    # Only the columns that are read must have the right names; copies may name others differently.
    expected = " | ".join(layout.columns)
    if len(names) < len(layout.columns) or any(names[column] != layout.columns[column] for column in used):
        raise DataError(
            f"{path}:1: wrong header.\n  expected: {expected}\n  found:    {' | '.join(names)}\n"
            "Is it GLUE's own tab-separated file for this task and split?"
        )


def _check_width(where: str, layout: SplitLayout, cells: List[str]) -> None:
    wanted = len(layout.columns)
    # `cut` ignores columns after the last one that is read. That is safe if the last one is the label: a tab
    # inside a sentence would shift it, and it would not be a label of the task. Elsewhere such a tab would
    # truncate a sentence.
    if len(cells) > wanted and layout.label == wanted - 1:
        return
    if cells in ([""], ["\r"]):
        fix = "The line is empty; remove it."
    elif len(cells) > wanted:
        fix = "Is there a tab inside a sentence? Replace it with a space."
    else:
        fix = "Is the line broken in two, or separated by something other than tabs?"
    raise DataError(
        f"{where}: {len(cells)} column(s) instead of {wanted} ({' | '.join(layout.columns)}). {fix}"
    )


def _checked_label(where: str, task: TaskLayout, cell: str) -> str:
    label = cell.strip()
    if task.classes:
        if label not in task.classes:
            hint = " Has the file a header? CoLA's have none." * (task.name == "CoLA")
            raise DataError(
                f"{where}: {f'unknown label {label!r}' if label else 'empty label'}; {task.name} has "
                f"{', '.join(task.classes)}.{hint}"
            )
        return label
    if label[:1] == "-" or not NUMBER.fullmatch(label) or not 0.0 <= float(label) <= 5.0:
        problem = f"score {label!r} is not a number from 0 to 5" if label else "empty score"
        raise DataError(f"{where}: {problem}. {task.name} needs one in its last column.")
    return "%.6g" % (float(label) / 5.0)  # as awk prints $1 / 5.0
