"""The training objectives: predict -> loss -> divergence -> metrics, one file per kind.

``register_objective`` adds the objective of a task, ``build_objective`` selects the one that belongs to a
task.
"""

from fairseq_adv.objectives.base import Objective, build_objective, register_objective
from fairseq_adv.objectives.masked_lm import MaskedLM
from fairseq_adv.objectives.multi_label import MultiLabel
from fairseq_adv.objectives.sentence_prediction import SentencePrediction
from fairseq_adv.objectives.sentence_ranking import SentenceRanking
from fairseq_adv.objectives.spans import Spans
from fairseq_adv.objectives.tags import Tags
from fairseq_adv.objectives.wsc import WSC

__all__ = [
    "WSC",
    "MaskedLM",
    "MultiLabel",
    "Objective",
    "SentencePrediction",
    "SentenceRanking",
    "Spans",
    "Tags",
    "build_objective",
    "register_objective",
]
