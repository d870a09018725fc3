"""Where GLUE's files have their sentences and labels: one :class:`TaskLayout` per task.

The columns are those of fairseq's recipe ``examples/roberta/preprocess_GLUE_tasks.sh``, counted from 0 here
and from 1 there. WNLI is not in the recipe; its files look like RTE's. AX, the diagnostic set, has only a
test file and is predicted by an MNLI model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from fairseq_adv.data.errors import DataError


@dataclass(frozen=True)
class SplitLayout:
    """One file of a task.

    Attributes:
        name: the split's name in fairseq (train, valid, valid1, test, test1).
        file: the file's name in GLUE.
        columns: the names of all columns, in order; the header if ``has_header`` is true.
        inputs: positions of the sentences in ``columns``.
        label: position of the label in ``columns``, or None for a split without labels.
        has_header: whether the first line names the columns.
        drops_malformed: whether the recipe drops rows that don't have exactly ``len(columns)`` fields.
        required: whether the task needs this file.
        other_file: an alternative name for the file.
    """

    name: str
    file: str
    columns: Tuple[str, ...]
    inputs: Tuple[int, ...]
    label: Optional[int]
    has_header: bool = True
    drops_malformed: bool = False
    required: bool = True
    other_file: str = ""

    def path(self, folder: Path) -> Path:
        """The file in ``folder``; by its other name if only that exists."""
        path, other = folder / self.file, folder / self.other_file
        return other if self.other_file and other.is_file() and not path.is_file() else path


@dataclass(frozen=True)
class TaskLayout:
    """A GLUE task: its splits and labels. ``classes`` is empty for a regression (STS-B, scores 0 to 5).

    Attributes:
        labels_of: the task whose labels are used, for a task without training data (AX).
        other_folder: an alternative name for the task's folder.
    """

    name: str
    classes: Tuple[str, ...]
    splits: Tuple[SplitLayout, ...]
    labels_of: str = ""
    other_folder: str = ""

    @property
    def folders(self) -> Tuple[str, ...]:
        """The names that the task's folder can have."""
        return (self.name, self.other_folder) if self.other_folder else (self.name,)

    @property
    def inputs(self) -> int:
        """The number of sentences of an example: 1 or 2."""
        return len(self.splits[0].inputs)


def _split(
    name: str,
    file: str,
    columns: str,
    inputs: str,
    label: str = "",
    has_header: bool = True,
    drops_malformed: bool = False,
) -> SplitLayout:
    names = tuple(columns.split(","))
    return SplitLayout(
        name=name,
        file=file,
        columns=names,
        inputs=tuple(names.index(one) for one in inputs.split(",")),
        label=names.index(label) if label else None,
        has_header=has_header,
        drops_malformed=drops_malformed,
        required=not name.startswith("test"),
    )


def _task(name: str, classes: str, *splits: SplitLayout) -> TaskLayout:
    return TaskLayout(name, tuple(classes.split(",")) if classes else (), splits)


def _plain(name: str, classes: str, columns: str, inputs: str, label: str, test_columns: str) -> TaskLayout:
    """A task with train.tsv, dev.tsv and test.tsv, each with a header."""
    return _task(
        name,
        classes,
        _split("train", "train.tsv", columns, inputs, label),
        _split("valid", "dev.tsv", columns, inputs, label),
        _split("test", "test.tsv", test_columns, inputs),
    )


def _cola() -> TaskLayout:
    columns = "source,label,star,sentence"
    return _task(
        "CoLA",
        "0,1",
        _split("train", "train.tsv", columns, "sentence", "label", has_header=False),
        _split("valid", "dev.tsv", columns, "sentence", "label", has_header=False),
        _split("test", "test.tsv", "index,sentence", "sentence"),
    )


def _qqp() -> TaskLayout:
    columns = "id,qid1,qid2,question1,question2,is_duplicate"
    inputs, label = "question1,question2", "is_duplicate"
    return _task(
        "QQP",
        "0,1",
        _split("train", "train.tsv", columns, inputs, label, drops_malformed=True),
        _split("valid", "dev.tsv", columns, inputs, label, drops_malformed=True),
        _split("test", "test.tsv", "id,question1,question2", inputs),
    )


def _mnli() -> TaskLayout:
    test = (
        "index,promptID,pairID,genre,sentence1_binary_parse,sentence2_binary_parse,sentence1_parse,sentence2_parse,"
        "sentence1,sentence2"
    )
    train = test + ",label1,gold_label"
    dev = test + ",label1,label2,label3,label4,label5,gold_label"
    inputs, label = "sentence1,sentence2", "gold_label"
    return _task(
        "MNLI",
        "contradiction,entailment,neutral",
        _split("train", "train.tsv", train, inputs, label),
        _split("valid", "dev_matched.tsv", dev, inputs, label),
        _split("valid1", "dev_mismatched.tsv", dev, inputs, label),
        _split("test", "test_matched.tsv", test, inputs),
        _split("test1", "test_mismatched.tsv", test, inputs),
    )


def _ax() -> TaskLayout:
    # The classes are in the order of MNLI's label dictionary: by their counts in GLUE's train.tsv (130903,
    # 130900, 130899).
    split = SplitLayout("test", "diagnostic.tsv", tuple(_PAIR.split(",")), (1, 2), None, other_file="AX.tsv")
    return TaskLayout(
        "AX",
        ("contradiction", "neutral", "entailment"),
        (split,),
        labels_of="MNLI",
        other_folder="diagnostic",
    )


_PAIR = "index,sentence1,sentence2"
_MRPC = "Quality,#1 ID,#2 ID,#1 String,#2 String"
_STSB = "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"

TASKS: Tuple[TaskLayout, ...] = (
    _cola(),
    _plain("SST-2", "0,1", "sentence,label", "sentence", "label", "index,sentence"),
    _plain("MRPC", "0,1", _MRPC, "#1 String,#2 String", "Quality", _MRPC.replace("Quality", "index")),
    _plain("STS-B", "", _STSB + ",score", "sentence1,sentence2", "score", _STSB),
    _qqp(),
    _mnli(),
    _plain(
        "QNLI",
        "entailment,not_entailment",
        "index,question,sentence,label",
        "question,sentence",
        "label",
        "index,question,sentence",
    ),
    _plain("RTE", "entailment,not_entailment", _PAIR + ",label", "sentence1,sentence2", "label", _PAIR),
    _plain("WNLI", "0,1", _PAIR + ",label", "sentence1,sentence2", "label", _PAIR),
    _ax(),
)


def task_layout(name: str) -> TaskLayout:
    """The layout of a task, by its name in any case, with or without its hyphen.

    Raises:
        DataError: no GLUE task has this name.
    """
    wanted = name.replace("-", "").lower()
    for task in TASKS:
        if task.name.replace("-", "").lower() == wanted:
            return task
    names = ", ".join(task.name for task in TASKS)
    raise DataError(f"{name}: no such GLUE task. Choose one of {names}.")
