"""A mini-batch in fairseq's trainer: what ``FairseqTask.train_step`` does with it, in repeatable parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any, ContextManager

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import Tensor, nn

from fairseq_adv.criterions.flood import Flood
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import find_token_embedding
from fairseq_adv.perturbation.passes import frozen_parameters, no_sync


class ModelParts:
    """What a walk over a model finds: made once a run, since a walk takes milliseconds at 24 layers.

    Args:
        model: whose parts stay the same objects.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @cached_property
    def embedding(self) -> nn.Module:
        """The token embedding.

        Raises:
            ValueError: see :func:`find_token_embedding`.
        """
        return find_token_embedding(self.model)

    @cached_property
    def weights(self) -> list[nn.Parameter]:
        """All of them, trained or not."""
        return list(self.model.parameters())


class MiniBatch:
    """What a method's ``step`` is given.

    Args:
        objective: what is learned.
        sample: the mini-batch, already on the model's device.
        parts: of the model as the trainer holds it, perhaps wrapped for distributed training.
        optimizer: the trainer's ``FairseqOptimizer``; its ``backward`` applies the loss scale.
        update: number of updates made before this one.
        ignore_grad: the batch is a dummy, run only to keep step with the other workers.
        average: the parts of the average of the weights, if the task asks for one (``uses_ema``).
        flood: changes the loss that :meth:`descend` is given.
    """

    def __init__(
        self, objective: Objective, sample: Sample, parts: ModelParts, optimizer: Any, update: int,
        ignore_grad: bool = False, average: ModelParts | None = None,
        flood: Flood | None = None,
    ) -> None:  # fmt: skip
        self.objective = objective
        self.sample = sample
        self.model = parts.model
        self.parts = parts
        self.optimizer = optimizer
        self.update = update
        self.ignore_grad = ignore_grad
        self.average = average
        self._flood = flood

    @property
    def embedding(self) -> nn.Module:
        """The model's token embedding."""
        return self.parts.embedding

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.parts.weights[0].device

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Forward passes in here have the optimizer's precision (``--amp``)."""
        enabled = isinstance(self.optimizer, AMPOptimizer)
        with torch.autograd.profiler.record_function("forward"), torch.autocast("cuda", enabled=enabled):
            yield

    def forward(self) -> tuple[Tensor, Tensor]:
        """(predictions, summed loss) under the optimizer's precision."""
        with self.computing():
            predictions = self.objective.predict(self.model, self.sample)
            return predictions, self.objective.loss(predictions, self.sample)

    def backward(self, loss: Tensor) -> None:
        """Accumulates the gradient of ``loss``, or of zero for a dummy batch."""
        with torch.autograd.profiler.record_function("backward"):
            self.optimizer.backward(loss * 0 if self.ignore_grad else loss)

    def descend(self, loss: Tensor) -> None:
        """:meth:`backward` of the whole loss, once a mini-batch: ``--flood-scope micro-batch`` floods it."""
        if self._flood is not None and self._flood.is_per_micro_batch:
            loss = self._flood.flooded(loss, self.objective.sample_size(self.sample))
        self.backward(loss)

    def no_sync_unless(self, last: bool) -> ContextManager[Any]:
        """Keeps gradients local in every pass but the last, so that an update costs one all-reduce.

        Inside the trainer's own ``no_sync`` (earlier micro-batches of ``--update-freq``) the last
        pass stays local as well.
        """
        return nullcontext() if last else no_sync(self.model)

    def frozen_parameters(self) -> ContextManager[None]:
        """See :func:`fairseq_adv.perturbation.passes.frozen_parameters`."""
        return frozen_parameters(self.parts.weights)
