"""One forward-backward of a mini-batch, exact under everything that fairseq's trainer does."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ContextManager

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import Tensor, nn

from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation.passes import frozen_parameters, no_sync


class TrainingPass:
    """What ``FairseqTask.train_step`` does for one mini-batch, cut so that a method can repeat it.

    Args:
        objective: what is learned.
        sample: the mini-batch, already on the model's device.
        model: the model as the trainer holds it, perhaps wrapped for distributed training.
        optimizer: the trainer's ``FairseqOptimizer``; its ``backward`` applies the loss scale.
        ignore_grad: the batch is a dummy, run only to keep step with the other workers.
    """

    def __init__(
        self, objective: Objective, sample: Sample, model: nn.Module, optimizer: Any, ignore_grad: bool
    ) -> None:
        self.objective = objective
        self.sample = sample
        self.model = model
        self.optimizer = optimizer
        self.ignore_grad = ignore_grad

    def forward(self) -> tuple[Tensor, Tensor]:
        """(predictions, summed loss) under the optimizer's precision."""
        enabled = isinstance(self.optimizer, AMPOptimizer)
        with torch.autograd.profiler.record_function("forward"), torch.autocast("cuda", enabled=enabled):
            predictions = self.objective.predict(self.model, self.sample)
            return predictions, self.objective.loss(predictions, self.sample)

    def backward(self, loss: Tensor) -> None:
        """Accumulates the gradient of ``loss``, or of zero for a dummy batch."""
        with torch.autograd.profiler.record_function("backward"):
            self.optimizer.backward(loss * 0 if self.ignore_grad else loss)

    def no_sync_unless(self, last: bool) -> ContextManager[Any]:
        """Keeps gradients local in every pass but the last, so that an update costs one all-reduce.

        Inside the trainer's own ``no_sync`` (earlier micro-batches of ``--update-freq``) the last
        pass stays local as well.
        """
        return nullcontext() if last else no_sync(self.model)

    def frozen_parameters(self) -> ContextManager[None]:
        """See :func:`fairseq_adv.perturbation.passes.frozen_parameters`."""
        return frozen_parameters(self.model)
