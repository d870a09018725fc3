"""A mini-batch in fairseq's trainer: ``FairseqTask.train_step`` split into parts that can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_adv.criterions.flood import Flood
from fairseq_adv.criterions.logs import Log
from fairseq_adv.data.errors import as_data_error
from fairseq_adv.fairseq_patches.mixed_precision import autocast
from fairseq_adv.models.compiled_layers import has_compiled_layers
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import (
    DropoutReplay,
    Perturbation,
    find_token_embedding,
    geometry,
    layers_with_masks,
)

Start = Callable[[Tensor, int], Tensor]  # makes delta_0, see Perturbation


class ModelParts:
    """Modules and weights of a model, found once per run, since searching 24 layers takes milliseconds.

    Args:
        model: its modules and weights must stay the same objects.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @cached_property
    def _modules(self) -> list[nn.Module]:
        return list(self.model.modules())

    @cached_property
    def notes_updates(self) -> bool:
        """Whether a module does something in ``set_num_updates`` but call that of its own modules."""
        passes_on = (None, BaseFairseqModel.set_num_updates, FairseqEncoder.set_num_updates)
        return any(
            getattr(type(module), "set_num_updates", None) not in passes_on
            or "set_num_updates" in vars(module)
            for module in self._modules
        )

    @cached_property
    def embedding(self) -> nn.Module:
        """The token embedding."""
        with as_data_error():
            return find_token_embedding(self.model)

    @cached_property
    def weights(self) -> list[nn.Parameter]:
        """All weights, trained or not."""
        return list(self.model.parameters())

    @cached_property
    def named_weights(self) -> dict[str, nn.Parameter]:
        """The same by name; one that several layers share has the first of its names."""
        return dict(self.model.named_parameters())

    @cached_property
    def dropout_layers(self) -> list[nn.Module]:
        """The layers whose masks are kept for further passes. None with ``--compile``, since a replaced
        method within a compiled layer has it compiled again.
        """
        if has_compiled_layers(self.model):
            return []
        return layers_with_masks(self._modules, self.weights[0].device, (FairseqDropout, nn.Dropout))


class MiniBatch:
    """The argument of a method's ``step``.

    Args:
        objective: the objective to train on.
        sample: the mini-batch, already on the model's device.
        parts: the parts of the model, which the trainer may have wrapped for distributed training.
        optimizer: the trainer's ``FairseqOptimizer``; its ``backward`` applies the loss scale.
        update: number of updates made before this one.
        ignore_grad: the batch is a dummy that only keeps this worker in step with the others.
        ema_parts: the parts of the averaged model, if the task requests one (``uses_ema``).
        flood: changes the loss passed to :meth:`descend`.

    Attributes:
        scores: accuracy and the like of the first pass, for the log: the predictions themselves, which are
            large for a masked LM, are not kept.
    """

    def __init__(
        self, objective: Objective, sample: Sample, parts: ModelParts, optimizer: Any, update: int,
        ignore_grad: bool = False, ema_parts: ModelParts | None = None,
        flood: Flood | None = None,
    ) -> None:  # fmt: skip
        self.objective = objective
        self.sample = sample
        self.model = parts.model
        self.parts = parts
        self.optimizer = optimizer
        self.update = update
        self.ignore_grad = ignore_grad
        self.ema_parts = ema_parts
        self._flood = flood
        self.scores: Log = {}

    @property
    def embedding(self) -> nn.Module:
        """The model's token embedding."""
        return self.parts.embedding

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.parts.weights[0].device

    def noise(
        self, kind: str, size: float, seed: int, *, by_length: bool, update: int | None = None
    ) -> Start:
        """Random noise as the start of a perturbation. It does not depend on how a batch is padded, split or
        distributed.

        Args:
            kind: ``uniform``, U(-size, size) in each entry, or ``normal``, N(0, size^2); zero on padding.
            size: of the noise. For a relative one to be a share of the root mean square entry, pass
                ``by_length`` with the norm ``l2`` but not with ``linf``.
            seed: the run's; the update and the ids of the rows are mixed into it.
            by_length: divide by sqrt(L*D), L tokens of an example (of a question's candidates together).
            update: ``None``: the mini-batch's own.
        """
        groups, ids = self.objective.groups(self.sample), self.objective.row_ids(self.sample)
        seeds = geometry.row_seeds(seed, self.update if update is None else update, ids, groups)
        draw = geometry.uniform_start if kind == "uniform" else geometry.gaussian_start
        norm_type = "l2" if by_length else "linf"
        return lambda mask, dim: draw(mask, dim, size, seeds, norm_type, groups)

    def perturbation(self, start: Start, **sizes: Any) -> Perturbation:
        """delta on the model's embeddings; ``sizes`` are further arguments of :class:`Perturbation`."""
        groups = self.objective.groups(self.sample)
        return Perturbation(self.embedding, self.objective.padding_idx, start, groups=groups, **sizes)

    def replay(self, enabled: bool) -> DropoutReplay:
        """What repeats the dropout masks in the mini-batch's passes, if ``enabled``."""
        return DropoutReplay([self.device], enabled, self.parts.dropout_layers)

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Forward passes in this context use the optimizer's precision (``--amp``)."""
        with torch.autograd.profiler.record_function("forward"), autocast(self.optimizer, self.device):
            yield

    def predict(self) -> Tensor:
        """The predictions of a forward pass, whose precision is that of the context."""
        predictions = self.objective.predict(self.model, self.sample)
        self._score(predictions)
        return predictions

    def loss(self) -> Tensor:
        """The summed loss of a forward pass under the optimizer's precision."""
        with self.autocast():
            predictions = self.objective.predict(self.model, self.sample)
            loss = self.objective.loss(predictions, self.sample)
        self._score(predictions)
        return loss

    def backward(self, loss: Tensor) -> None:
        """Accumulates the gradient of ``loss``, or of zero for a dummy batch."""
        with torch.autograd.profiler.record_function("backward"):
            self.optimizer.backward(loss * 0 if self.ignore_grad else loss)

    def descend(self, loss: Tensor) -> None:
        """:meth:`backward` for the complete loss, called once per mini-batch.

        With ``--flood-scope micro-batch`` the loss is flooded first.
        """
        if self._flood is not None and self._flood.is_per_micro_batch:
            loss = self._flood.flooded(loss, self.objective.sample_size(self.sample))
        self.backward(loss)

    def _score(self, predictions: Tensor) -> None:
        if not self.scores:
            self.scores = self.objective.logging_output(predictions.detach(), self.sample, gather=False)
