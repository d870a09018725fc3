"""Trained models that predict on texts: ``fairseq_adv.load(checkpoint).predict(["a text"])``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union

from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.decisions import decide
from fairseq_adv.evaluation.predict.ensemble import Ensemble, Scores, join, probabilities
from fairseq_adv.evaluation.predict.running import run_model
from fairseq_adv.evaluation.predict.text_examples import question_examples, text_examples
from fairseq_adv.objectives import Objective
from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask

logger = logging.getLogger(__name__)

# A text; a pair of texts; a question with its choices, each a text or a text with its document.
Row = Union[str, "tuple[str, str]", "tuple[str, Sequence[str | tuple[str, str]]]", Question]

_WIDTHS = {1: "single texts", 2: "pairs of texts"}


@dataclass(frozen=True)
class Prediction:
    """The answer to one text, pair or question.

    Attributes:
        label: the class, or the choice, with the highest probability; "" for a regression.
        probabilities: of each class or choice, from 0 to 1, in the model's order; empty for a regression.
        value: the number that a regression predicts; ``None`` for classes and choices.
    """

    label: str
    probabilities: dict[str, float]
    value: float | None = None


@dataclass
class Member:
    """One checkpoint, loaded.

    Attributes:
        path: the file.
        task: set up with the tokenizer's dictionary.
        tokenizer: of the encoder.
        labels: its classes in the model's order; empty for a regression and for choices.
        width: 2 if it was trained on pairs of texts, 1 if on single texts; ``None``: the data no longer
            exists.
        objective: what it learned.
        model: on its device.
        has_cut: whether the warning about truncated texts was given.
    """

    path: Path
    task: FairseqTask
    tokenizer: TokenToIds
    labels: list[str]
    width: int | None
    objective: Objective
    model: nn.Module
    has_cut: bool = False


class TextModel:
    """One model or an ensemble of several; :func:`fairseq_adv.evaluation.predict.loading.load` makes it.

    Attributes:
        labels: the classes in the first model's order; empty for a regression and for choices.
        takes_questions: whether it answers questions with choices, not texts.
    """

    def __init__(self, members: Sequence[Member], how: InferenceConfig) -> None:
        self._members, self._how = list(members), how
        self.labels = list(members[0].labels)
        self.takes_questions = isinstance(members[0].task, MultipleChoiceTask)

    def predict(self, texts: Sequence[Row], batch_size: int | None = None) -> list[Prediction]:
        """Predicts on texts in mini-batches of similar length.

        A text, or a pair, with more tokens than the model has positions is truncated, as in training with
        ``--shorten-method truncate``, with a single warning. A question with its answer is never truncated.

        Args:
            texts: texts, or pairs of texts as (first, second), but not a mixture; for a multiple-choice model
                (question, choices), where a choice is a text or (text, document).
            batch_size: most texts per mini-batch; ``None``: as passed to ``load``, else 16384 tokens (1024 on
                a CPU).

        Returns:
            an answer for each text, in order.

        Raises:
            DataError: an invalid text, a mixture of pairs and single texts, or a question that is too long.
        """
        how = self._how if batch_size is None else replace(self._how, batch_size=batch_size)
        ensemble = self.scores(texts, how)
        return [] if ensemble is None else _predictions(ensemble)

    def scores(
        self, texts: Sequence[Row], how: InferenceConfig | None = None, progress: bool = False
    ) -> Ensemble | None:
        """Like :meth:`predict`, but returns arrays; ``None`` if there are no texts.

        Args:
            texts: as there.
            how: sizes of the mini-batches; ``None``: as passed to ``load``.
            progress: show a progress bar for each model.
        """
        if isinstance(texts, str):
            raise DataError(f"predict takes a list of texts, not one text: pass [{texts[:40]!r}]")
        rows = [self._row(row, number) for number, row in enumerate(texts)]
        if not rows:
            return None
        if not self.takes_questions:
            self._check_widths([len(row) for row in rows])
        return join([self._scores_of(member, rows, how or self._how, progress) for member in self._members])

    def _check_widths(self, widths: Sequence[int]) -> None:
        odd = next((number for number, width in enumerate(widths) if width != widths[0]), None)
        if odd is not None:
            raise DataError(f"text {odd}: pairs and single texts can't be mixed. Predict them separately.")
        for member in self._members:
            if member.width is not None and member.width != widths[0]:
                trained, given = _WIDTHS[member.width], _WIDTHS[widths[0]]
                raise DataError(f"{member.path}: was trained on {trained}, but was given {given}")

    def _row(self, row: Any, number: int) -> Any:
        if self.takes_questions:
            return row if isinstance(row, Question) else _question(row, number)
        parts = (row,) if isinstance(row, str) else row
        if _are_texts(parts) and len(parts) in (1, 2):
            return tuple(parts)
        raise DataError(f"text {number}: expected a text or a pair of texts (first, second), not {row!r:.60}")

    def _scores_of(self, member: Member, rows: Sequence[Any], how: InferenceConfig, progress: bool) -> Scores:
        if isinstance(member.task, MultipleChoiceTask):
            examples = question_examples(member.task, rows)
        else:
            examples, cut = text_examples(member.task, member.tokenizer, member.labels, rows)
            if cut and not member.has_cut:
                member.has_cut = True
                logger.warning(
                    "%s reads %d tokens: longer texts are truncated (%d of these %d)",
                    member.path, member.task.max_positions(), cut, len(rows),
                )  # fmt: skip
        found = run_model(member.path, member.objective, member.model, examples, how, progress)
        return Scores(
            examples.kind, "texts", "", examples.ids, examples.labels, *found, examples.gold,
            name=str(member.path),
        )  # fmt: skip


def _are_texts(values: Any) -> bool:
    return isinstance(values, (tuple, list)) and all(isinstance(value, str) for value in values)


def _question(row: Any, number: int) -> Question:
    where = f"question {number}"
    if not (isinstance(row, (tuple, list)) and len(row) == 2 and isinstance(row[0], str)):
        raise DataError(f"{where}: expected (question, choices), not {row!r:.60}")
    stem, given = row
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise DataError(f"{where}: expected a list of choices, not {given!r:.60}")
    choices = [(one, "") if isinstance(one, str) else one for one in given]
    for one in choices:
        if not (_are_texts(one) and len(one) == 2):
            raise DataError(f"{where}: a choice must be a text or (text, document), not {one!r:.60}")
    texts = [text for text, _ in choices]
    if not all(text.strip() for text in texts) or len(set(texts)) < len(texts):
        raise DataError(f"{where}: a choice is empty, or two choices are the same text")
    made = tuple(Choice(text, text, document) for text, document in choices)
    return Question(str(number), stem, made, None, where)


def _predictions(ensemble: Ensemble) -> list[Prediction]:
    first = ensemble.first
    if first.kind == "values":
        return [Prediction("", {}, float(value)) for value in first.log_probs[:, 0]]
    shares = probabilities(first.log_probs).tolist()
    found = []
    for row, answer in enumerate(decide(ensemble).answers):
        names = first.row_labels(row).tolist()
        found.append(Prediction(answer, {name: share for name, share in zip(names, shares[row]) if name}))
    return found
