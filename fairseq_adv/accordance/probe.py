"""Measures the gradient accordance of a model (Flooding-X, Liu et al., ACL 2022, eq. 11 to 13).

The paper does not specify how many batches a sub-epoch has, whether the weights change during it, or whether
dropout is on. Here the weights are fixed, dropout is off by default, and the batches are drawn only once, so
that a curve over the course of training shows only the effect of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import utils
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.accordance.preserve_state import preserve_random_state, preserve_state, seed_random_numbers
from fairseq_adv.accordance.sums import GROUPS, GroupedSums
from fairseq_adv.data.errors import DataError
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.gathered import rank, sum_over_workers, workers
from fairseq_adv.perturbation import find_token_embedding
from fairseq_adv.perturbation.embeddings import parts_of
from fairseq_adv.perturbation.geometry import row_seeds
from fairseq_adv.perturbation.host_copies import with_host_copy
from fairseq_adv.perturbation.passes import no_sync, use_differentiable_layers


@dataclass(frozen=True)
class Accordance:
    """One measurement."""

    # for each group of parameters, the mean cosine between the gradients of different classes and batches,
    # from -1 to 1; NaN if there is no such pair. Eq. 13 as printed gives half of it.
    cosine: dict[str, float]
    # number of pairs in the mean. A class makes no pairs in batches where it is missing or its gradient is
    # zero or not finite.
    pairs: int
    batches: int
    loss: float  # mean loss over their examples, in nats


class _Batch(NamedTuple):
    """A probe batch, split by class."""

    number: int  # counted from 0; the same for any number of workers
    classes: list[tuple[int, Sample]]  # each class of the batch with its examples, as a mini-batch on the CPU


class AccordanceProbe:
    """Draws the probe batches and measures on them. Of W workers, worker r takes batches r, r + W and so on.

    With k classes and P parameters that get a gradient (of the word table, only the probe's words count), a
    measurement stores (k + 1) P floats in addition to the gradient of a pass. ``all`` and ``encoder`` need
    separate sums: together 2 (k + 1) P, or (2 k + 1) P with two classes. ``head`` is small.

    Args:
        task: has loaded ``split``.
        split: split to draw examples from.
        batches: N, 2 or more; fewer are drawn if the split has too few examples.
        seed: for drawing (without replacement) and for the dropout masks.
        dropout: measure with dropout. The masks depend on the batch and the class, not on the worker.
        groups: one or more of :data:`GROUPS`.
        max_positions: longer rows are not drawn, since training drops them
            (``fairseq.utils.resolve_max_positions``).
        options: common prefix of the options for ``batches`` and ``batch_size``, for messages.
    """

    def __init__(
        self, objective: Objective, task: FairseqTask, split: str, *, batches: int, batch_size: int,
        seed: int, dropout: bool = False, groups: Sequence[str] = GROUPS, max_positions: Any = None,
        options: str = "--accordance-",
    ) -> None:  # fmt: skip
        self.objective = objective
        self.classes = objective.classes()
        self.seed = seed
        self.dropout = dropout
        self.groups = tuple(groups)
        if split not in task.datasets:
            raise DataError(
                f"gradient accordance: the split {split!r} is not loaded, only {', '.join(task.datasets)}"
            )
        data: Any = task.dataset(split)
        usable = np.arange(len(data))
        if max_positions is not None:  # the trainer drops rows that are too long for the model
            usable, _ = data.filter_indices_by_size(usable, max_positions)
        drawn = draw_rows(len(usable), batches, batch_size, seed, split, options)
        self.batches = len(drawn)
        self._mine: list[_Batch] = []
        words: list[Tensor] = []
        usable = np.sort(usable)
        with preserve_random_state():
            for number, chosen in enumerate(drawn):
                sample = data.collater([data[int(usable[place])] for place in chosen])
                if "target" not in sample:
                    raise DataError(f"the split {split!r} has no labels, which gradient accordance needs")
                words.append(sample["net_input"]["src_tokens"].unique())
                if number % workers() == rank():
                    parts = [(index, objective.of_class(sample, index)) for index in range(self.classes)]
                    present = [(index, part) for index, part in parts if part is not None]
                    self._mine.append(_Batch(number, present))
        self._words: Tensor = torch.cat(words).unique()  # type: ignore[no-untyped-call]

    def measure(self, model: nn.Module, *, loss_scale: float = 1.0, autocast: bool = False) -> Accordance:
        """Makes N k forward-backward passes, each for one class of one batch, with the model's current
        weights.

        All workers must call it together, and all get the same numbers. Training is not affected.

        Args:
            loss_scale: factor of the loss that keeps fp16 gradients from underflowing.
            autocast: compute as with ``--amp``: in fp16 on GPUs, in bf16 on CPUs.
        """
        device = next(model.parameters()).device
        gradients = PassGradients(model, self._words)
        sums = GroupedSums(gradients.named, self.classes, self.groups)
        totals = torch.zeros(2, dtype=torch.float64, device=device)
        with preserve_state(model), no_sync(model), torch.enable_grad():
            model.train(self.dropout)
            use_differentiable_layers(model)
            for batch in self._mine:
                for index, sample in batch.classes:
                    (seed,) = row_seeds(self.seed, batch.number, [index])
                    seed_random_numbers(seed, device)
                    totals += self._pass(model, _moved(sample, device), loss_scale, autocast)
                    sums.add(index, gradients.take())
                sums.end_batch()
        return self._result(sums, totals)

    def _pass(self, model: nn.Module, sample: Sample, loss_scale: float, autocast: bool) -> Tensor:
        """Backward pass of the summed loss, as in training; returns (2,) fp64: the loss, the number of
        examples."""
        with torch.autocast(next(model.parameters()).device.type, enabled=autocast):
            loss = self.objective.loss(self.objective.predict(model, sample), sample)
        (loss * loss_scale).backward()  # type: ignore[no-untyped-call]
        totals = loss.new_full((2,), self.objective.sample_size(sample), dtype=torch.float64)
        totals[0] = loss.detach()
        return totals

    def _result(self, sums: GroupedSums, totals: Tensor) -> Accordance:
        if workers() > 1:
            sums.reduce(sum_over_workers)
            sum_over_workers(totals)
        loss, examples = totals.tolist()
        values = torch.tensor([*sums.cosines().values(), loss / examples], dtype=torch.float64)
        values = values.to(totals.device, non_blocking=True)
        # Other workers may round the sum over the parameters differently: use the first worker's.
        values = values if rank() == 0 else torch.zeros_like(values)
        sum_over_workers(values)
        *cosines, mean_loss = values.tolist()
        return Accordance(dict(zip(self.groups, cosines)), sums.pairs, self.batches, mean_loss)


def draw_rows(
    examples: int, batches: int, size: int, seed: int, split: str, options: str = "--accordance-"
) -> list[list[int]]:
    """The rows of each batch, drawn without replacement; see :class:`AccordanceProbe`."""
    if batches < 2:
        raise DataError(f"{options}batches {batches}: pass 2 or more, since accordance compares batches")
    if size < 1:
        raise DataError(f"{options}batch-size {size}: pass 1 or more")
    batches = min(batches, examples // size)
    if batches < 2:
        raise DataError(
            f"{options}batch-size {size}: the split {split!r} has {examples} examples that fit the "
            f"model, too few for two batches. Pass {max(examples // 2, 1)} or less, or use a larger split."
        )
    order = np.random.RandomState(seed % 2**32).permutation(examples)
    return order[: batches * size].reshape(batches, size).tolist()  # type: ignore[no-any-return]


class PassGradients:
    """The gradients of one pass at a time; of the word table, the rows of the probe's words are apart.

    Other words get no gradient where words are looked up, so the sums need no memory for them.

    Args:
        words: (words,) int64, distinct: the words of all probe batches.

    Attributes:
        named: describes what :meth:`take` returns: names, and tensors with the shapes, types and devices of
            the gradients.
    """

    def __init__(self, model: nn.Module, words: Tensor) -> None:
        trainable = [(name, p) for name, p in _named(model) if p.requires_grad]
        try:
            table = getattr(find_token_embedding(model), "weight", None)
        except ValueError:
            table = None
        self._others = [p for _, p in trainable if p is not table]
        self.named: list[tuple[str, Tensor]] = [(name, p) for name, p in trainable if p is not table]
        self._table: nn.Parameter | None = None
        for name, p in trainable:
            if p is table:
                self._table, self._words = p, words.to(p.device, non_blocking=True)
                self.named += [(name, p.detach()[: len(words)]), (name, p)]

    def take(self) -> list[Tensor | None]:
        """Returns the gradients since the last call, in the order of :attr:`named`, and clears them.

        The last but one is that of the probe's words, (words, dim), the last that of the other rows of the
        table, (all, dim), which is zero unless the model uses its table in another way too.
        """
        gradients = [_taken(p) for p in self._others]
        if self._table is None:
            return gradients
        table = _taken(self._table)
        if table is None:
            return [*gradients, None, None]
        words = table[self._words]
        return [*gradients, words, table.index_fill_(0, self._words, 0)]


def _named(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters; those of a Hugging Face model's head are named as in one of fairseq's heads."""
    parts = parts_of(model)
    inside = None if parts is None else {id(p) for p in parts.encoder.parameters()}
    for name, parameter in model.named_parameters():
        is_head = inside is not None and id(parameter) not in inside
        yield (f"classification_heads.{name}" if is_head else name), parameter


def _taken(parameter: nn.Parameter) -> Tensor | None:
    gradient, parameter.grad = parameter.grad, None
    return gradient


def _moved(sample: Sample, device: torch.device) -> Sample:
    """Class labels and words are integers, so nothing is cast for fp16."""

    def move(tensor: Tensor) -> Tensor:
        return with_host_copy(tensor.to(device, non_blocking=True), tensor)

    moved: Sample = utils.apply_to_sample(move, sample)
    return moved
