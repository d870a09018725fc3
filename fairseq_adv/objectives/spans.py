"""Answers that are spans of a context (ALUM, Tables 2 to 4: SQuAD): one softmax for where the answer begins,
and one for its end.

A window of a context is one example. ``<s>`` stands for no answer: it is the target of every window that does
not contain the whole answer, even if every question has an answer.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fairseq_adv.objectives import span_metrics
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.gathered import gathered
from fairseq_adv.objectives.labelled import TokenLevel
from fairseq_adv.perturbation.host_copies import host_copy


class Spans(TokenLevel):
    """Where the answer begins and ends; batches from
    :class:`~fairseq_adv.data.spans.spans_dataset.SpansDataset`.
    """

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(windows, 2, tokens) logits of begin and end, -inf where no answer may begin or end."""
        logits = self.at_tokens(model, sample).transpose(1, 2)
        return logits.masked_fill(~sample["allowed"].unsqueeze(1), span_metrics.FORBIDDEN)

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """The mean of the cross-entropies of begin and end, in nats, summed over the windows."""
        log_probs = self.log_probabilities(predictions)
        target = sample["target"].unsqueeze(-1)
        losses = -log_probs.gather(2, target.clamp(min=0)).masked_fill(target < 0, 0.0)
        return losses.sum() / 2

    def row_divergence(
        self, clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """(windows,): the mean of the divergences of begin and end, over the allowed positions."""
        return super().row_divergence(clean, perturbed, kind, detach_targets).mean(dim=1)

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        predictions = predictions.detach()
        right = (predictions.argmax(dim=-1) == sample["target"]).all(dim=1)
        output: dict[str, Any] = {
            "ncorrect": right.sum(),
            "ntargets": (sample["target"][:, 0] >= 0).sum(),
            "nnan": predictions.isnan().flatten(1).any(dim=1).sum(),
        }
        if gather:
            numbers = span_metrics.records(predictions, sample, self.task)
            # A question without known answers is not scored.
            known, ids = host_copy(sample["target"])[:, 0] >= 0, host_copy(sample["id"])
            on_device = ids[known].to(sample["id"].device, non_blocking=True)
            output.update(gathered(numbers[known], on_device, self.task))
        return output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``accuracy``, the windows whose begin and end are correct, and in validation ``em`` and ``f1``
        of whole questions: see :mod:`fairseq_adv.objectives.span_metrics`.
        """
        span_metrics.reduce(logging_outputs)
