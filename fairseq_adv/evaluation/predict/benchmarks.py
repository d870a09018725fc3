"""The values of ``fairseq-adv predict --task``, their files, and the zip of GLUE's. The record of a task
names those that its models can answer.

GLUE: ``index<TAB>prediction`` under a header. ARC and CommonsenseQA: ``id,label`` without a header, as in the
sample predictions of AI2's evaluator. Others as the task's record says.

Imports neither torch nor fairseq, for the command's help.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import TaskLayout, task_layout
from fairseq_adv.data.io import atomic_open
from fairseq_adv.data.printable import plain_cell, plain_name, table_text

if TYPE_CHECKING:
    from fairseq_adv.tasks.task_record import AnswerFile

GLUE_HEADER = "index\tprediction"


@dataclass(frozen=True)
class PredictionTask:
    """One value of ``--task``."""

    name: str  # used in messages and file names
    glue: TaskLayout | None = None  # the layout of its files, for a GLUE task
    test_rows: int = 0  # of its test set, for a GLUE task
    second: bool = False  # whether its rows are GLUE's mismatched ones (fairseq's test1 and valid1)
    answer_file: AnswerFile | None = None  # of the task's record

    def split(self, split: str) -> str:
        """fairseq's name of a split."""
        return f"{split}1" if self.second and not split.endswith("1") else split

    def file(self, split: str, ending: str) -> str:
        """The file name that the leaderboard expects; for splits other than test it includes the split's
        name."""
        if self.glue is not None:
            name = f"{self.name}.tsv"
        else:
            name = f"predictions.{ending}" if self.answer_file is None else self.answer_file.name
        return name if split == "test" else name.replace(".", f"-{split}.")

    def text(self, ids: Sequence[str], answers: Sequence[str], file: Path) -> str:
        """The contents of its file.

        Args:
            ids: names of the rows.
            answers: a label each; for STS-B the model's output, a fifth of the similarity, since fairseq's
                recipe divides the scores by 5.
            file: where they will be written; the answers to other questions there are refused.
        """
        if self.name == "STS-B":
            answers = [f"{min(max(float(answer) * 5.0, 0.0), 5.0):.3f}" for answer in answers]
        if self.glue is not None:
            rows = (f"{index}\t{answer}\n" for index, answer in enumerate(answers))
            return "".join([f"{GLUE_HEADER}\n", *rows])
        if self.answer_file is not None:
            return self.answer_file.text(ids, answers)
        _refuse_other_questions(file, ids)
        return table_text(zip(ids, answers))


def _refuse_other_questions(path: Path, ids: Sequence[str]) -> None:
    """They would be lost."""
    if not path.is_file():
        return
    with open(path, encoding="utf-8", newline="") as file:
        answered = [plain_cell(row[0]) for row in csv.reader(file) if row]
    if sorted(answered) != sorted(ids):
        raise DataError(
            f"{path}: has the answers to other questions ({len(answered)}, such as "
            f"{answered[0] if answered else '-'}). Pass another --out, or remove the file."
        )


def _glue(name: str, test_rows: int, layout: str = "", second: bool = False) -> PredictionTask:
    return PredictionTask(name, task_layout(layout or name), test_rows, second)


GLUE_TASKS = (
    _glue("CoLA", 1063),
    _glue("SST-2", 1821),
    _glue("MRPC", 1725),
    _glue("STS-B", 1379),
    _glue("QQP", 390965),
    _glue("MNLI-m", 9796, "MNLI"),
    _glue("MNLI-mm", 9847, "MNLI", second=True),
    _glue("QNLI", 5463),
    _glue("RTE", 3000),
    _glue("WNLI", 146),
    _glue("AX", 1104),
)
# For the command's help. A task of the user's own may have more.
BENCHMARKS = (
    *(task.name for task in GLUE_TASKS),
    "commonsense_qa", "arc", "race", "openbookqa", "qnli_ranking", "wsc", "squad", "tagging",
)  # fmt: skip

# Without --task: classes, numbers, choices, tags or spans of any data set.
OWN_DATA = PredictionTask("own-data")


def prediction_task(name: str | None) -> PredictionTask:
    """The task with this name, in any case and with or without hyphens, of GLUE's or of a task's record;
    ``OWN_DATA`` if None."""
    from fairseq_adv.tasks.task_record import described_tasks

    if name is None:
        return OWN_DATA
    tasks = {task.name: task for task in GLUE_TASKS}
    for record in reversed(described_tasks().values()):
        for one in record.benchmarks:
            tasks.setdefault(one, PredictionTask(one, answer_file=record.answer_file))

    for one, task in tasks.items():
        if plain_name(one) == plain_name(name):
            return task
    raise DataError(f"--task {name}: no such task. Choose one of {', '.join(tasks)}.")


# File -> (rows of the test set, task whose labels it has).
FILES = {one.file("test", "tsv"): (one.test_rows, one.glue.name) for one in GLUE_TASKS if one.glue}
_SCORE = re.compile(r"[0-9]+(\.[0-9]+)?")


def make_submission(folder: Path, out: Path, allow_missing: bool = False) -> tuple[dict[str, int], list[str]]:
    """Checks GLUE's prediction files in ``folder`` and packs them into the zip that its server accepts.

    Returns:
        the number of rows of each file, and the names of missing files.
    """
    if out.suffix != ".zip":
        raise DataError(f"{out}: GLUE requires a zip. Pass a name that ends in .zip.")
    contents = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    missing = [name for name in FILES if name not in contents]
    if not contents or (missing and not allow_missing):
        raise DataError(
            f"{folder}: {', '.join(missing)} missing. Make them with fairseq-adv predict"
            + (", or pass --allow-missing." if contents else ".")
        )
    for name, content in contents.items():
        check_file(folder / name, content, *FILES[name])
    with atomic_open(out) as whole, zipfile.ZipFile(whole, "w") as file:
        for name, content in sorted(contents.items()):
            # A fixed date, so that the same answers give the same zip.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            file.writestr(entry, content)
    return {name: FILES[name][0] for name in contents}, missing


def check_file(path: Path, content: bytes, rows: int, task: str) -> None:
    """Raises DataError, with the line, if a prediction file is not what GLUE's server reads."""
    lines = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
    classes = task_layout(task).classes
    every = ((number, _fault(number, line, classes)) for number, line in enumerate(lines, 1))
    number, fault = next((one for one in every if one[1]), (len(lines), ""))
    if not fault and len(lines) != rows + 1:
        fault = f"{len(lines) - 1} rows, but the test set of {task} has {rows}"
    if fault:
        raise DataError(f"{path}:{number}: {fault}")


def _fault(number: int, line: str, classes: Collection[str]) -> str:
    """What is wrong with a line of a prediction file; "" if nothing is."""
    if number == 1:
        return "" if line == GLUE_HEADER else f"expected the header {GLUE_HEADER!r}, found {line[:60]!r}"
    index, tab, answer = line.partition("\t")
    if not tab or index != str(number - 2):
        return f"expected index {number - 2} and a tab, found {line[:60]!r}"
    if classes:
        return "" if answer in classes else f"expected one of {', '.join(sorted(classes))}, found {answer!r}"
    is_score = _SCORE.fullmatch(answer) and float(answer) <= 5.0
    return "" if is_score else f"expected a number from 0 to 5, found {answer!r}"
