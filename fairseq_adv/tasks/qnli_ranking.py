"""QNLI as pairwise ranking: ``<s> Q: question </s> A: sentence </s>``, the entailed sentence is the
correct choice.

The pairs are made by ``fairseq-adv prepare qnli-ranking``.
"""

from dataclasses import replace
from pathlib import Path
from typing import Tuple

from fairseq.tasks import register_task

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.tasks.choices_record import CHOICES, choices_card
from fairseq_adv.tasks.multiple_choice import MultipleChoiceConfig, MultipleChoiceTask
from fairseq_adv.tasks.task_record import describe_task


@register_task("qnli_ranking", dataclass=MultipleChoiceConfig)
class QNLIRankingTask(MultipleChoiceTask):
    """Two sentences per question. A question with only one sentence can only be used for prediction."""

    def texts(self, question: Question, choice: Choice) -> Tuple[str, ...]:
        return self.without_documents(question, choice)


def _has_pairs(folder: Path) -> bool:
    return (folder / "report.json").is_file() and (folder / "train.jsonl").is_file()


describe_task(
    QNLIRankingTask,
    replace(
        CHOICES,
        recognises=_has_pairs,
        benchmarks=("qnli_ranking", "QNLI"),
        card=choices_card('"Q: the question"', '"A: " + choice'),
    ),
)
