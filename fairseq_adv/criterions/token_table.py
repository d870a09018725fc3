"""TAVAT's table, which has a perturbation for each word of the vocabulary, and how it survives a restart."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_adv.criterions.method_options import MethodConfig
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.objectives.gathered import sum_over_workers, workers
from fairseq_adv.perturbation import geometry
from fairseq_adv.perturbation.host_copies import host_copy

logger = logging.getLogger(__name__)
_KEY = "tavat_table"
_NO_ROW = -1  # seeds the table; no row of a data set has this id


class TokenTable:
    """A table of perturbations, (words, dim) in fp32, the same on all workers.

    It is stored with the optimizer's settings (lr, betas, …), like the flood level: fairseq saves these in
    every checkpoint, restores them on every worker when training resumes, and leaves them in fp32. As a
    parameter of the criterion, the table would be cast to half precision and wrapped in DDP, which refuses
    it, and loading a checkpoint without a table would fail.

    Args:
        magnitude: m; the initial values are U(-m, m) / sqrt(dim).
    """

    def __init__(self, seed: int, magnitude: float) -> None:
        self.seed = seed
        self.magnitude = magnitude
        self._records: list[tuple[Tensor, Tensor, Tensor]] = []
        self._is_dummy = False

    def rows(self, optimizer: Any, embedding: nn.Module) -> Tensor:
        """The table before this update; created in the first one.

        Args:
            optimizer: the trainer's; reading a checkpoint may have replaced it.
        """
        kept, weight = optimizer.param_groups[0], embedding.weight
        table: Tensor | None = kept.get(_KEY)
        table = self._first(embedding) if table is None else table
        kept[_KEY] = table = table.to(weight.device)  # type: ignore[arg-type]  # a checkpoint's is on the CPU
        return table

    def begin(self, batch: MiniBatch) -> None:
        """Called before each mini-batch."""
        self._is_dummy = batch.ignore_grad
        if all(weight.grad is None for weight in batch.parts.weights):
            self._records = []  # an update starts, perhaps after one that was dropped

    def record(self, tokens: Tensor, mask: Tensor, values: Tensor) -> None:
        """Records the final perturbations of a mini-batch's words; not those of a dummy.

        Args:
            tokens: (rows, tokens) int64.
            mask: (rows, tokens) bool, true on real tokens.
            values: (rows, tokens, dim) fp32, zero on padding.
        """
        if not self._is_dummy:
            self._records.append((tokens, mask, values.flatten(0, 1)))

    def update(self, optimizer: Any, embedding: nn.Module, adds: bool) -> None:
        """Sets a word's row to the mean over its occurrences in all mini-batches of the update.

        This includes the mini-batches of other workers. The rows of other words do not change.

        Args:
            adds: add the sum over the occurrences to the row instead.
        """
        table = self.rows(optimizer, embedding)
        counts = table.new_zeros(len(table))
        for tokens, real, _ in self._records:
            counts.index_add_(0, tokens.flatten(), real.flatten().float())
        sum_over_workers(counts)
        words = self._words(counts)
        place = ((counts > 0).cumsum(0) - 1).clamp(min=0)
        sums = table.new_zeros(len(words), table.size(1))
        for tokens, _, values in self._records:
            if len(words):
                sums.index_add_(0, place[tokens.flatten()], values)
        sum_over_workers(sums)
        if adds:
            table.index_add_(0, words, sums)
        else:
            table.index_copy_(0, words, sums / counts[words].unsqueeze(1))
        self._records = []

    def _words(self, counts: Tensor) -> Tensor:
        """The words with a count above 0, in order, (words,) int64; with one worker, the host knows them."""
        if workers() > 1:
            return counts.nonzero().view(-1)
        occurs = torch.zeros(len(counts), dtype=torch.bool)
        for tokens, real, _ in self._records:
            # An encoder that reshapes the tokens (multiple choice) leaves no copy of them on the host.
            occurs[host_copy(tokens)[host_copy(real)].cpu()] = True
        return occurs.nonzero().view(-1).to(counts.device, non_blocking=True)

    def _first(self, embedding: nn.Module) -> Tensor:
        dim = int(embedding.embedding_dim)  # type: ignore[arg-type]
        (seed,) = geometry.row_seeds(self.seed, 0, [_NO_ROW])
        generator = torch.Generator().manual_seed(seed)  # on the CPU: the same for every device
        noise = torch.rand(int(embedding.num_embeddings), dim, generator=generator)  # type: ignore[arg-type]
        return noise.mul_(2).sub_(1).mul_(self.magnitude / dim**0.5)


def warn_of_a_lost_table(cfg: MethodConfig) -> None:
    """Warns if checkpoints will not contain the table."""
    if cfg.no_save_optimizer_state and not cfg.no_save:
        logger.warning(
            "--no-save-optimizer-state: checkpoints won't contain the table of --criterion %s, so a run that "
            "resumes from one starts with a new table. Leave it out if a run may be restarted.",
            cfg._name,
        )
