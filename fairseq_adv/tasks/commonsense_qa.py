"""CommonsenseQA: ``<s> Q: question </s> A: choice </s>`` for each of five choices (FreeLB, 4.2; fairseq's
recipe).
"""

from dataclasses import dataclass
from typing import Tuple

from fairseq.tasks import register_task

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.tasks.multiple_choice import MultipleChoiceConfig, MultipleChoiceTask


@dataclass
class CommonsenseQAConfig(MultipleChoiceConfig):
    """Options of ``--task commonsense_qa``."""


@register_task("commonsense_qa", dataclass=CommonsenseQAConfig)
class CommonsenseQATask(MultipleChoiceTask):
    """The official jsonl files; ``test`` has no answers."""

    def texts(self, question: Question, choice: Choice) -> Tuple[str, ...]:
        return self.without_documents(question, choice)
