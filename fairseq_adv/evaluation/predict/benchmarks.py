"""The values of ``fairseq-adv predict --task``: which checkpoints can answer them, and their file names.

Imports neither torch nor fairseq, for the command's help.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import TaskLayout, task_layout


@dataclass(frozen=True)
class PredictionTask:
    """One value of ``--task``."""

    name: str  # used in messages and file names
    trained_with: tuple[str, ...]  # names of the fairseq tasks whose checkpoints can answer it
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


def _glue(name: str, layout: str = "", *more: str, second: bool = False) -> PredictionTask:
    trained_with = ("sentence_prediction", "text_classification", *more)
    return PredictionTask(name, trained_with, task_layout(layout or name), second)


PREDICTION_TASKS: tuple[PredictionTask, ...] = (
    _glue("CoLA"),
    _glue("SST-2"),
    _glue("MRPC"),
    _glue("STS-B"),
    _glue("QQP"),
    _glue("MNLI-m", "MNLI"),
    _glue("MNLI-mm", "MNLI", second=True),
    _glue("QNLI", "", "qnli_ranking"),
    _glue("RTE"),
    _glue("WNLI", "", "wsc"),
    _glue("AX"),
    PredictionTask("commonsense_qa", ("commonsense_qa",)),
    PredictionTask("arc", ("arc_retrieval",)),
    PredictionTask("race", ("arc_retrieval",)),
    PredictionTask("openbookqa", ("arc_retrieval",)),
    PredictionTask("qnli_ranking", ("qnli_ranking",)),
    PredictionTask("wsc", ("wsc",)),
    PredictionTask("squad", ("span_qa",)),
    PredictionTask("tagging", ("tagging",)),
)

# Without --task: classes, numbers, choices, tags or spans of any data set.
OWN_DATA = PredictionTask(
    "own-data",
    (
        "sentence_prediction", "text_classification", "commonsense_qa", "arc_retrieval", "qnli_ranking",
        "tagging", "span_qa",
    ),
)  # fmt: skip


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
