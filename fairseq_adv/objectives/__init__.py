"""WHAT is learned: predict -> loss -> metrics, one file a kind.

``build_objective`` picks the objective that belongs to a task. Ranking, masked language modelling
and WSC will stand here beside sentence prediction, a file each.
"""

from __future__ import annotations

from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_adv.objectives.base import Objective
from fairseq_adv.objectives.sentence_prediction import SentencePrediction

# The first entry whose class the task is an instance of.
OBJECTIVES: list[tuple[type[FairseqTask], type[Objective]]] = [
    (SentencePredictionTask, SentencePrediction),
]


def build_objective(cfg: Any, task: FairseqTask) -> Objective:
    """The objective for ``task``, with the criterion's options ``cfg``.

    Raises:
        ValueError: no objective knows this task, or the options don't fit the task.
    """
    for task_class, objective_class in OBJECTIVES:
        if isinstance(task, task_class):
            return objective_class(cfg, task)
    known = ", ".join(task_class.__name__ for task_class, _ in OBJECTIVES)
    raise ValueError(
        f"the adversarial criterions have no objective for {type(task).__name__}; they train {known}. "
        "Choose another --task, or another --criterion."
    )


__all__ = ["OBJECTIVES", "Objective", "SentencePrediction", "build_objective"]
