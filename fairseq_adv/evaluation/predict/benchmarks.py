"""The values of ``fairseq-adv predict --task``, and their files. The record of a task names those that its
models can answer.

GLUE: ``index<TAB>prediction`` under a header. ARC and CommonsenseQA: ``id,label`` without a header, as in the
sample predictions of AI2's evaluator. SuperGLUE's WSC: one JSON object per line, with the label "True" or
"False".

Imports neither torch nor fairseq, for the command's help.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import TaskLayout, task_layout
from fairseq_adv.data.tables.table_text import plain_cell, table_text

GLUE_HEADER = "index\tprediction"


@dataclass(frozen=True)
class PredictionTask:
    """One value of ``--task``."""

    name: str  # used in messages and file names
    glue: TaskLayout | None = None  # the layout of its files, for a GLUE task
    second: bool = False  # whether its rows are GLUE's mismatched ones (fairseq's test1 and valid1)

    def split(self, split: str) -> str:
        """fairseq's name of a split."""
        return f"{split}1" if self.second and not split.endswith("1") else split

    def file(self, split: str, ending: str) -> str:
        """The file name that the leaderboard expects; for splits other than test it includes the split's
        name."""
        if self.glue is not None:
            name = f"{self.name}.tsv"
        elif self.name == "wsc":
            name = "WSC.jsonl"
        else:
            name = f"predictions.{ending}"
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
        if self.name == "wsc":
            if odd := next((name for name in ids if not (name.isascii() and name.isdigit())), None):
                raise DataError(
                    f"row {odd}: its idx is not a number. SuperGLUE's own files number their lines."
                )
            rows = (json.dumps({"idx": int(name), "label": answer}) for name, answer in zip(ids, answers))
            return "".join(f"{row}\n" for row in rows)
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


def _glue(name: str, layout: str = "", second: bool = False) -> PredictionTask:
    return PredictionTask(name, task_layout(layout or name), second)


PREDICTION_TASKS: tuple[PredictionTask, ...] = (
    _glue("CoLA"),
    _glue("SST-2"),
    _glue("MRPC"),
    _glue("STS-B"),
    _glue("QQP"),
    _glue("MNLI-m", "MNLI"),
    _glue("MNLI-mm", "MNLI", second=True),
    _glue("QNLI"),
    _glue("RTE"),
    _glue("WNLI"),
    _glue("AX"),
    PredictionTask("commonsense_qa"),
    PredictionTask("arc"),
    PredictionTask("race"),
    PredictionTask("openbookqa"),
    PredictionTask("qnli_ranking"),
    PredictionTask("wsc"),
    PredictionTask("squad"),
    PredictionTask("tagging"),
)

# Without --task: classes, numbers, choices, tags or spans of any data set.
OWN_DATA = PredictionTask("own-data")


def prediction_task(name: str | None) -> PredictionTask:
    """The task with this name, in any case and with or without hyphens; ``OWN_DATA`` if None."""

    if name is None:
        return OWN_DATA

    def plain(text: str) -> str:
        return text.replace("-", "").replace("_", "").lower()

    for task in PREDICTION_TASKS:
        if plain(task.name) == plain(name):
            return task
    names = ", ".join(task.name for task in PREDICTION_TASKS)
    raise DataError(f"--task {name}: no such task. Choose one of {names}.")
