"""Ranks the candidates of a question with a softmax over their scores (FreeLB, 4.2 and A.1).

The candidates of all questions in a batch, however many they are, go through the model as the rows of one
batch. A question with its candidates is one example: the norm of a perturbation is taken over all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Sample, check_classification_head
from fairseq_adv.objectives.first_token import first_token_context
from fairseq_adv.objectives.labelled import UNKNOWN, Labelled
from fairseq_adv.perturbation import Groups

ABSENT = float("-inf")  # the score of a choice that a question does not have


class SentenceRanking(Labelled):
    """One correct candidate per question; batches from
    :class:`~fairseq_adv.data.choices.ranking_dataset.RankingDataset`.

    Options: ``classification_head_name``; the head has one output.
    """

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.first_token_context = first_token_context(task)

    def check_model(self, model: nn.Module) -> None:
        check_classification_head(model, self.cfg.classification_head_name)

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(questions, max_choices) scores, -inf for choices that a question does not have."""
        with self.first_token_context(model):
            outputs, _ = model(
                **sample["net_input"],
                features_only=True,
                classification_head_name=self.cfg.classification_head_name,
            )
        padded = outputs.new_full((sample["nsentences"], sample["max_choices"]), ABSENT)
        return padded.index_put((sample["question"], sample["choice"]), outputs.view(-1))  # type: ignore[no-any-return]

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        # The same keys whatever the batch contains: the workers' logs are added up key by key.
        known = sample["target"] != UNKNOWN
        right = is_right(predictions.detach(), sample["target"].clamp(min=0)) & known
        names: list[str] = self.task.source_names
        unknown = predictions.detach().isnan().any(dim=1).sum()
        output: dict[str, Any] = {"ncorrect": right.sum(), "ntargets": known.sum(), "nnan": unknown}
        choices = (predictions.detach() != ABSENT).sum(dim=1)
        output["uniform_loss"] = torch.where(known, choices.log(), torch.zeros_like(choices)).sum()
        if len(names) > 1:
            for source, name in enumerate(names):
                in_source = sample["source"] == source
                output[f"ncorrect of {name}"] = (right & in_source).sum()
                output[f"ntargets of {name}"] = (known & in_source).sum()
        return output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``accuracy``, and ``accuracy_<data set>`` for each data set if there are several."""
        logs = [log for log in logging_outputs if "ntargets" in log]
        scores.log_sums(logs, ["uniform_loss", "nnan"])
        for key in logs[0] if logs else ():
            if key.startswith("ntargets"):  # of the whole split, and of each data set that it has
                scores.log_accuracy(logs, key[len("ntargets") :])

    def constant_loss(self, meters: MetersDict) -> float | None:
        """The mean log of the number of choices: without the texts, all choices are alike."""
        if not ("_ntargets" in meters and "_uniform_loss" in meters and meters["_ntargets"].sum):
            return None
        return float(meters["_uniform_loss"].sum) / float(meters["_ntargets"].sum)

    def groups(self, sample: Sample) -> Groups:
        return Groups(sample["question"], sample["nsentences"])


def is_right(scores: Tensor, target: Tensor) -> Tensor:
    """Whether the target scores strictly higher than every other choice: a tie is not correct.

    Args:
        scores: (questions, choices), -inf for missing choices.
        target: (questions,) int64.

    Returns:
        (questions,) bool.
    """
    of_target = scores.gather(1, target.unsqueeze(1))
    others = scores.scatter(1, target.unsqueeze(1), ABSENT)
    return (of_target > others).all(dim=1)
