"""Trained models for TextAttack's attacks. Needs TextAttack, which nothing else here imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Union

import torch

from fairseq_adv.data.errors import DataError

if TYPE_CHECKING:
    from fairseq_adv.evaluation.predict.text_model import TextModel

try:
    from textattack.models.wrappers import ModelWrapper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"fairseq_adv.hub.textattack needs TextAttack ({error}): see docs/textattack.md",
        name=error.name,
    ) from error


class TextAttackModel(ModelWrapper):
    """Wraps a model from :func:`fairseq_adv.load` for the attacks of TextAttack 0.3.11.

    Labels in TextAttack are indices into ``model.labels``.

    Attributes:
        model: makes the predictions; an ensemble predicts the mean of its models.

    Raises:
        DataError: the model has no classes: it predicts numbers, or answers multiple-choice questions.
    """

    def __init__(self, model: TextModel) -> None:
        if not model.labels:
            numbers = "numbers" if model.takes == "texts" else model.kind
            does = "answers multiple-choice questions" if model.takes_questions else f"predicts {numbers}"
            raise DataError(f"TextAttack attacks models with classes, but this one {does}")
        if model.several:
            raise DataError(
                "TextAttack attacks models with one class a text, but this one has several labels: use "
                "fairseq-adv attack"
            )
        self.model = model

    def __call__(self, text_input_list: Sequence[Union[str, tuple[str, str]]]) -> torch.Tensor:
        """(n, k) fp32 probabilities of the classes, in the order of ``model.labels``; rows sum to 1.

        The model's temperature is left out, as in ``fairseq-adv attack``.

        Args:
            text_input_list: n texts, or n pairs of texts if the model was trained on pairs.

        Raises:
            DataError: single texts for a model trained on pairs, or vice versa.
        """
        scores = self.model.scores(text_input_list)
        if scores is None:
            return torch.empty(0, len(self.model.labels))
        return torch.from_numpy(replace(scores, temperature=1.0).shares())
