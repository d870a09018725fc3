"""WHAT is learned: predict -> loss -> divergence -> metrics, one file a kind.

``build_objective`` picks the objective that belongs to a task.
"""

from __future__ import annotations

from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_adv.objectives.base import Objective
from fairseq_adv.objectives.masked_lm import MaskedLM
from fairseq_adv.objectives.sentence_prediction import SentencePrediction
from fairseq_adv.objectives.sentence_ranking import SentenceRanking
from fairseq_adv.objectives.wsc import WSC
from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask
from fairseq_adv.tasks.wsc import WSCTask

# The first entry whose class the task is an instance of.
OBJECTIVES: list[tuple[type[FairseqTask], type[Objective]]] = [
    (SentencePredictionTask, SentencePrediction),
    (MultipleChoiceTask, SentenceRanking),
    (WSCTask, WSC),
    (MaskedLMTask, MaskedLM),
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
        f"the adversarial criterions have no objective for {type(task).__name__}; they train {known}. Choose "
        "another --task, or another --criterion."
    )


__all__ = [
    "OBJECTIVES",
    "WSC",
    "MaskedLM",
    "Objective",
    "SentencePrediction",
    "SentenceRanking",
    "build_objective",
]
