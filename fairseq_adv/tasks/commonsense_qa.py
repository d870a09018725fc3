"""CommonsenseQA: ``<s> Q: question </s> A: choice </s>`` for each of five choices (FreeLB, 4.2; fairseq's
recipe).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Tuple

from fairseq.tasks import register_task

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.tables.split_files import first_row
from fairseq_adv.tasks.choices_record import CHOICES, choices_card
from fairseq_adv.tasks.multiple_choice import MultipleChoiceConfig, MultipleChoiceTask
from fairseq_adv.tasks.task_record import describe_task


@register_task("commonsense_qa", dataclass=MultipleChoiceConfig)
class CommonsenseQATask(MultipleChoiceTask):
    """The official jsonl files; ``test`` has no answers."""

    def texts(self, question: Question, choice: Choice) -> Tuple[str, ...]:
        return self.without_documents(question, choice)


def _is_commonsense_qa(folder: Path) -> bool:
    row = first_row(folder)
    question = row.get("question")
    # There is no place for documents.
    return isinstance(question, dict) and "question_concept" in question and '"para"' not in json.dumps(row)


describe_task(
    CommonsenseQATask,
    replace(
        CHOICES,
        recognises=_is_commonsense_qa,
        benchmarks=("commonsense_qa",),
        card=choices_card('"Q: the question"', '"A: " + choice'),
    ),
)
