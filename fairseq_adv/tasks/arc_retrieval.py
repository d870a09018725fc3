"""Questions with documents: ``<s> documents </s> question answer </s>`` (FreeLB, 4.2 and A.1).

For ARC, OpenBookQA and the Regents questions the documents are each choice's ``para``; for RACE the article;
for SWAG and HellaSWAG the sentences before the one to be completed.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Tuple

from fairseq.tasks import register_task

from fairseq_adv.data.choices.question_layouts import has_questions
from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.tasks.choices_record import CHOICES, choices_card
from fairseq_adv.tasks.multiple_choice import MultipleChoiceConfig, MultipleChoiceTask
from fairseq_adv.tasks.task_record import describe_task

# An underscore within a word (read_file) is none, nor are those around one (__init__), nor is one that begins
# a subscript (H_{2}O, in ARC).
_BLANK = re.compile(r"(?P<word>(?<!\w)__[^\W_]\w*__(?!\w))|_{2,}|(?<![^\W_])_(?!\{)|_(?![^\W_]|\{)")


@dataclass
class ArcRetrievalConfig(MultipleChoiceConfig):
    """Options of ``--task arc_retrieval``."""

    no_documents: bool = field(
        default=False, metadata={"help": "leave the documents out, as a baseline for retrieval"}
    )


@register_task("arc_retrieval", dataclass=ArcRetrievalConfig)
class ArcRetrievalTask(MultipleChoiceTask):
    """ARC, OpenBookQA, Regents, RACE, SWAG and HellaSWAG, alone or together (``data`` a:b:c)."""

    def texts(self, question: Question, choice: Choice) -> Tuple[str, ...]:
        return "" if self.cfg.no_documents else choice.context, statement(question.stem, choice.text)


def statement(stem: str, answer: str) -> str:
    """Question and answer in one text; the answer fills the blank of a cloze question, as in fairseq's RACE
    recipe.
    """
    filled = _BLANK.sub(lambda blank: blank["word"] or answer, stem)
    return f"{stem} {answer}" if filled == stem else filled


describe_task(
    ArcRetrievalTask,
    replace(
        CHOICES,
        recognises=has_questions,
        looks_for="questions with choices (train.jsonl, SWAG's train.csv, RACE's folder train)",
        benchmarks=("arc", "race", "openbookqa"),
        card=choices_card('"the documents of " + choice', '"the question " + choice'),
    ),
)
