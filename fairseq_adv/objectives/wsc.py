"""Decides which noun phrase a pronoun refers to, with the masked language model (FreeLB, 4.1: WNLI; fairseq's
WSC recipe).

The pronoun is replaced by a phrase, the phrase is masked, and its score is the mean log-probability of its
tokens. The query and all candidates of all sentences of a batch are the rows of one batch; a sentence is one
example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Sample, check_masked_lm_head
from fairseq_adv.objectives.labelled import Labelled
from fairseq_adv.perturbation import Groups
from fairseq_adv.perturbation.divergence import divergence
from fairseq_adv.perturbation.host_copies import host_copy, places, with_host_copy

ABSENT = float("-inf")


class WSC(Labelled):
    """The query against the candidates; only sentences whose query is correct have a loss.

    The task's options ``wsc_cross_entropy``, ``wsc_margin_alpha``, ``wsc_margin_beta`` choose the loss.
    Batches come from :class:`~fairseq_adv.tasks.wsc.WSCDataset`.
    """

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.mask_index: int = task.mask_index

    def check_model(self, model: nn.Module) -> None:
        check_masked_lm_head(model)

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(sentences, 1 + max_candidates) fp32 scores: the query's, then the candidates'; -inf for missing
        ones.

        Logits are computed only at the masked positions.
        """
        shared = self.batch_cache(sample)
        logits, _ = model(src_tokens=shared.tokens, masked_tokens=sample["span"])
        log_probs = F.log_softmax(logits, dim=-1, dtype=torch.float32)
        log_probs = log_probs.gather(1, shared.words.unsqueeze(1)).squeeze(1)
        sums = log_probs.new_zeros(len(shared.tokens)).index_add(0, shared.row, log_probs)
        means = sums / shared.counts
        padded = means.new_full((sample["nsentences"], sample["max_columns"]), ABSENT)
        return padded.index_put((sample["sentence"], sample["column"]), means)  # type: ignore[no-any-return]

    def prepare_batch(self, sample: Sample) -> _Masked:
        """The masked rows, and what was masked."""
        tokens, span = sample["net_input"]["src_tokens"], sample["span"]
        row, column = places(span)
        masked = tokens.masked_fill(span, self.mask_index)
        with_host_copy(masked, host_copy(tokens).masked_fill(host_copy(span), self.mask_index))
        return _Masked(masked, row, tokens[row, column], span.sum(dim=1))

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """Summed over the sentences whose query is correct; 0, but connected to the weights, if there are
        none.
        """
        exists = predictions != ABSENT  # a NaN score counts, and makes the loss NaN
        right = sample["target"] == 1
        if self.task.cfg.wsc_cross_entropy:
            losses = -F.log_softmax(predictions, dim=-1)[:, 0]
        else:
            losses = self._margin(predictions, exists)
        # Not a product with 0: a sentence without a query has a loss of inf or NaN.
        return torch.where(right, losses, torch.zeros_like(losses)).sum()

    def _margin(self, predictions: Tensor, exists: Tensor) -> Tensor:
        """(sentences,): -q + alpha * max(0, c - q + beta), summed over the candidates c."""
        query = predictions[:, :1].masked_fill(~exists[:, :1], 0)
        candidates = predictions[:, 1:].masked_fill(~exists[:, 1:], 0)
        hinge = (candidates - query + self.task.cfg.wsc_margin_beta).clamp(min=0)
        terms = -query + self.task.cfg.wsc_margin_alpha * hinge
        return terms.masked_fill(~exists[:, 1:], 0).sum(dim=1)  # type: ignore[no-any-return]

    def log_probabilities(self, predictions: Tensor) -> Tensor:
        return predictions.float()

    def divergence(
        self, clean: Tensor, perturbed: Tensor, sample: Sample, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """Summed over the sentences with a label, which alone count in :meth:`sample_size`."""
        rows = self.row_divergence(clean, perturbed, kind, detach_targets)
        return rows.masked_fill(sample["target"] < 0, 0).sum()

    def row_divergence(
        self, clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """(sentences,): of the softmax over the scores of the query and its candidates, as in the loss."""
        return divergence(
            F.log_softmax(clean, dim=-1), F.log_softmax(perturbed, dim=-1), kind, detach_targets
        )

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        labelled = sample["target"] >= 0
        correct = (chosen(predictions.detach()) == (sample["target"] == 1)) & labelled
        unknown = predictions.detach().isnan().any(dim=1) & labelled
        return {"ncorrect": correct.sum(), "ntargets": labelled.sum(), "nnan": unknown.sum()}

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``accuracy`` x 100: correct decisions on the labelled queries of the whole split."""
        scores.log_sums(logging_outputs, ["nnan"])
        scores.log_accuracy(logging_outputs)

    def groups(self, sample: Sample) -> Groups:
        return Groups(sample["sentence"], sample["nsentences"])


@dataclass(frozen=True)
class _Masked:
    """What the passes of a mini-batch share.

    Attributes:
        tokens: (rows, tokens) int64, the phrases masked.
        row: (masked positions,) int64.
        words: (masked positions,) int64, the words there.
        counts: (rows,) int64, number of masked positions.
    """

    tokens: Tensor
    row: Tensor
    words: Tensor
    counts: Tensor


def chosen(scores: Tensor) -> Tensor:
    """Whether the query scores at least as high as every candidate, (sentences,) bool; true without
    candidates.

    Args:
        scores: from :meth:`WSC.predict`.
    """
    return (scores[:, :1] >= scores[:, 1:]).all(dim=1)
