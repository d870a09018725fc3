"""Masked language modelling with fairseq's ``masked_lm`` task: BERT's and RoBERTa's pre-training.

The loss is bitwise identical to that of fairseq's own ``masked_lm`` criterion. Logits are computed only at
the masked positions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from fairseq import utils
from fairseq.distributed.utils import get_global_rank
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.data.corpus.shard import check_rows, check_shards
from fairseq_adv.hub.vocabulary_check import check_vocabulary
from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Objective, Sample, check_masked_lm_head
from fairseq_adv.perturbation.host_copies import host_copy, keep_places, places, with_host_copy

logger = logging.getLogger(__name__)
_FEW = 0.01  # of the tokens
MULTIPLE = 128


class MaskedLM(Objective):
    """Predicts the masked words. A row of the batch, with all its masked positions, is one example.

    Raises:
        DataError: the dictionary of the initial checkpoint differs from that of the corpus.
    """

    has_graphs = True

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self._multiple = 1  # of which the number of logits is one
        for option in ("finetune_from_model", "restore_file"):
            checkpoint = getattr(cfg, option)
            if checkpoint and checkpoint != "checkpoint_last.pt":
                flag = "--" + option.replace("_", "-")
                check_vocabulary(checkpoint, task.source_dictionary, task.cfg.data, flag)

    def check_split(self, split: str, epoch: int = 1, combine: bool = False) -> None:
        check_rows(self.task.cfg.data, split, epoch, len(self.task.source_dictionary) - 1, combine)  # <mask>

    def check_data(self) -> None:
        """Checks all shards: fairseq opens a shard only when its epoch starts, hours into a run."""
        check_shards(self.task.cfg.data, self.cfg.train_subset)

    def check_model(self, model: nn.Module) -> None:
        check_masked_lm_head(model)
        self._warn_of_long_lines(model)

    def _warn_of_long_lines(self, model: nn.Module) -> None:
        """fairseq leaves them out, and reports the number of rows: a few may be most of the text."""
        dataset = self.task.datasets.get(self.cfg.train_subset)
        if dataset is None:
            return
        longest = int(model.max_positions())  # type: ignore[operator]
        most = min(longest, getattr(self.cfg, "max_tokens", None) or longest)  # as the trainer
        tokens = np.asarray(dataset.sizes).ravel()
        skipped = tokens[tokens > most].sum(dtype=int) / tokens.sum(dtype=int)
        if skipped > _FEW and get_global_rank() == 0:
            reason, fix = "the encoder can't read", f"--tokens-per-sample {most}"
            if most < longest:
                reason, fix = "--max-tokens leaves out", f"--max-tokens {longest}"
            elif str(self.task.cfg.sample_break_mode) in ("complete", "complete_doc", "eos"):
                fix = "--sample-break-mode none, which divides lines"
            logger.warning(
                "%.0f%% of the tokens of %s are not trained on: they are in rows of more than %d tokens, "
                "which %s. Pass %s",
                100 * skipped, self.cfg.train_subset, most, reason, fix,
            )  # fmt: skip

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(masked positions of the batch, vocabulary) logits; a single row without a target if nothing is
        masked.
        """
        logits, _ = model(**sample["net_input"], masked_tokens=self.batch_cache(sample).projected)
        return logits  # type: ignore[no-any-return]

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """Summed cross-entropy in nats over the masked positions; 0, but connected to the weights, if there
        are none.
        """
        return F.nll_loss(
            self.log_probabilities(predictions),
            self.batch_cache(sample).targets,
            reduction="sum",
            ignore_index=self.padding_idx,
        )

    def divergence(
        self, clean: Tensor, perturbed: Tensor, sample: Sample, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """Summed over the masked positions; each term is a divergence of distributions over the
        vocabulary."""
        rows = self.row_divergence(clean, perturbed, kind, detach_targets)
        return rows.masked_fill(self.batch_cache(sample).targets == self.padding_idx, 0.0).sum()

    def sample_size(self, sample: Sample) -> int:
        return self.batch_cache(sample).size  # type: ignore[no-any-return]

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        highest, words = predictions.detach().max(dim=-1)  # NaN if one of them is
        targets = self.batch_cache(sample).targets
        right = (words == targets) & (targets != self.padding_idx)
        size = self.sample_size(sample)
        return {"ntargets": size, "ncorrect": right.sum(), "nnan": highest.isnan().sum()}

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``ppl``, the perplexity of the task's loss only, and ``accuracy`` at the masked positions."""
        scores.log_sums(logging_outputs, ["nnan"])
        if not scores.log_accuracy(logging_outputs):
            return

        def perplexity(meters: MetersDict) -> float:
            # Of freelb and the like that of the first pass, as their accuracy: their loss may be a sum.
            meter = meters[next(name for name in scores.CLEAN if name in meters)]
            return utils.get_perplexity(meter.avg)  # type: ignore[no-any-return, no-untyped-call]

        metrics.log_derived("ppl", perplexity)

    def prepare_batch(self, sample: Sample) -> _Masked:
        """The positions of the logits: the masked positions, or a single one if there are none.

        In the latter case fairseq's criterion computes logits at all positions. Without any, the weights
        would have no gradient, and distributed training would wait for one.
        """
        target: Tensor = sample["target"]
        masked = host_copy(target).ne(self.padding_idx)
        size = int(masked.sum())
        if not size:
            masked[0, 0] = True
        projected = with_host_copy(masked.to(target.device, non_blocking=True), masked)
        further = -max(size, 1) % self._multiple
        targets = target[places(projected, further)]
        if further:
            targets[-further:].fill_(self.padding_idx)
        return _Masked(projected, targets, size)

    def use_fixed_sizes(self) -> None:
        """Further logits, at the first position and without a target, fill up the masked positions."""
        self._multiple = MULTIPLE

    def fixed_key(self, sample: Sample) -> int:
        return len(self.batch_cache(sample).targets)

    def fixed_batch(self, sample: Sample) -> _Masked:
        masked = self.batch_cache(sample)
        projected = masked.projected.clone()
        keep_places(projected, tuple(index.clone() for index in places(masked.projected)))
        size = masked.targets.new_full((), masked.size)
        return _Masked(projected, masked.targets.clone(), size)

    def copy_batch(self, fixed: _Masked, sample: Sample) -> None:
        masked = self.batch_cache(sample)
        for into, index in zip(places(fixed.projected), places(masked.projected)):
            into.copy_(index)
        fixed.targets.copy_(masked.targets)
        fixed.size.fill_(masked.size)


@dataclass(frozen=True)
class _Masked:
    """What the passes of a mini-batch share.

    Attributes:
        projected: (rows, tokens) bool, the positions of the logits.
        targets: (logits,) int64.
        size: number of masked positions; an int, or an int64 scalar for CUDA graphs.
    """

    projected: Tensor
    targets: Tensor
    size: Any
