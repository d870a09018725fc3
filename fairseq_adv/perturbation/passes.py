"""The passes of a mini-batch that an ordinary training step doesn't make, and what they need besides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_adv.perturbation.dropout import DropoutReplay
from fairseq_adv.perturbation.embeddings import Perturbation
from fairseq_adv.perturbation.weights import added_together


class Passes:
    """The passes of one mini-batch, with what they need and no paper mentions:

    - each repeats the dropout masks of the first (:class:`DropoutReplay`);
    - each but the last keeps its gradients on this worker, so that an update costs one all-reduce (or none,
      inside of the trainer's own ``no_sync``);
    - the weights are frozen in those that only move delta;
    - the gradient of the table of words is computed once for all passes (:meth:`Perturbation.applied`).

    An update of FreeLB::

        passes = Passes(model, lambda: model(**batch).loss, delta)
        for each in passes.descents(K):
            each.backward(each.loss() / K)
            if not each.is_last:
                delta.ascend(alpha)
        optimizer.step()

    Args:
        model: may be wrapped for distributed training.
        forward: makes a forward pass of the model, and returns the loss or the predictions.
        delta: the perturbation; ``None``: every pass is at X.
        backward: computes the gradients of a loss.
        weights: all weights of the model; ``None``: they are looked up.
        replay: ``None``: dropout masks are shared.
        scale: returns the factor by which ``backward`` multiplies a loss.

    Attributes:
        losses: the detached results of :meth:`Pass.loss`, in order.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[[], Tensor],
        delta: Perturbation | None = None,
        *,
        backward: Callable[[Tensor], object] = Tensor.backward,
        weights: Sequence[nn.Parameter] | None = None,
        replay: DropoutReplay | None = None,
        scale: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.model = model
        self.run = forward
        self.delta = delta
        self.run_backward = backward
        self.weights = list(model.parameters()) if weights is None else weights
        self.replay = DropoutReplay([self.weights[0].device]) if replay is None else replay
        self.scale = scale
        self.losses: list[Tensor] = []

    def descents(self, count: int, last_moves: bool = False) -> Iterator[Pass]:
        """Passes at X + delta whose gradients of the weights add up. Each also gives the gradient that delta
        moves along, the last one only if ``last_moves``.
        """
        for nth in range(count):
            is_last = nth == count - 1
            yield Pass(self, moves=last_moves or not is_last, is_first=nth == 0, is_last=is_last)

    def ascents(self, count: int, first_trains: bool = False) -> Iterator[Pass]:
        """Passes at X + delta that only give the gradient that delta moves along, with one more to follow
        (:meth:`last`). The first trains the weights, too, if ``first_trains``.
        """
        for nth in range(count):
            yield Pass(self, trains=first_trains and nth == 0, moves=True, is_first=nth == 0)

    def clean(self) -> Pass:
        """A pass at X, which others follow."""
        return Pass(self, at_delta=False)

    def last(self, after: Tensor | None = None) -> Pass:
        """The last pass, at X + delta.

        Args:
            after: computed from an earlier pass, whose gradient is computed together with that of this one.
        """
        return Pass(self, is_last=True, after=after)


class Pass:
    """A forward pass and its backward pass; made by :class:`Passes`.

    Attributes:
        trains: whether its gradient reaches the weights.
        is_first: whether it is the first of its loop.
        is_last: whether it is the last of the mini-batch.
    """

    def __init__(
        self, passes: Passes, *, at_delta: bool = True, trains: bool = True, moves: bool = False,
        is_first: bool = False, is_last: bool = False, after: Tensor | None = None,
    ) -> None:  # fmt: skip
        self._passes = passes
        self._delta = passes.delta if at_delta else None
        self._moves = moves
        # What else than a table, such as one with dropout, might return another X in the last pass.
        is_table = self._delta is not None and isinstance(self._delta.embedding, nn.Embedding)
        self._skips_table = trains and moves and not is_last and is_table
        self._after = after
        self.trains = trains
        self.is_first = is_first
        self.is_last = is_last

    def forward(self) -> Tensor:
        """Makes the forward pass; returns its result."""
        passes = self._passes
        with self._alone(), passes.replay, self._joined(), self._applied():
            return passes.run()

    def loss(self) -> Tensor:
        """:meth:`forward`, whose result is kept in :attr:`Passes.losses`."""
        loss = self.forward()
        self._passes.losses.append(loss.detach())
        return loss

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of delta before :meth:`backward`; small numbers don't underflow in half precision."""
        assert self._delta is not None and self._delta.delta is not None  # for mypy: the pass made it
        scaled = loss * self._passes.scale()
        (gradient,) = torch.autograd.grad(scaled, self._delta.delta, retain_graph=True)
        return gradient

    def backward(self, loss: Tensor, by: Callable[[Tensor], Any] | None = None) -> Any:
        """Computes the gradients of ``loss``, which is computed from the result of :meth:`forward`.

        Args:
            loss: may be something else if ``by`` is given.
            by: what computes them, instead of the function that :class:`Passes` was given.

        Returns:
            the result of that function.
        """
        embedding = nullcontext() if self._delta is None else self._delta.not_called()
        with self._alone(), self._added(), embedding:
            result = (by or self._passes.run_backward)(loss)
        if self._skips_table and self._delta is not None:
            self._delta.add_table_gradient_later()
        return result

    def repeat(self, gradient: Callable[[Callable[[], Tensor]], None]) -> None:
        """Makes the pass again with the same random draws, at another delta and for its gradient alone.

        Args:
            gradient: gets the function that makes a forward pass, calls it, and computes the gradient.
        """
        assert self._delta is not None  # a pass at X has nothing to repeat
        passes = self._passes
        frozen = frozen_parameters(passes.weights)
        with passes.replay.again(), no_sync(passes.model), frozen, self._delta.applied():
            gradient(passes.run)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """In this context gradients stay on this worker, and the weights are frozen, if the pass wants it."""
        passes = self._passes
        local = nullcontext() if self.is_last else no_sync(passes.model)
        frozen = nullcontext() if self.trains else frozen_parameters(passes.weights)
        with local, frozen:
            yield

    def _added(self) -> ContextManager[None]:
        passes = self._passes
        is_reduced = self.is_last and torchs_ddp(passes.model) is not None
        return added_together(passes.weights) if self.trains and not is_reduced else nullcontext()

    def _joined(self) -> ContextManager[Any]:
        return nullcontext() if self._after is None else reduced_with(self._passes.model, self._after)

    def _applied(self) -> ContextManager[None]:
        if self._delta is None:
            return nullcontext()
        return self._delta.applied(self._moves, self._skips_table)


def no_sync(model: nn.Module) -> ContextManager[Any]:
    """In this context backward passes do not reduce the gradients over the workers.

    Only torch's DDP reduces during backward; ``legacy_ddp`` does so once before the optimizer's step.
    """
    wrapper = torchs_ddp(model)
    if wrapper is None:
        return nullcontext()
    return wrapper.no_sync()  # type: ignore[no-untyped-call, no-any-return]


def reduced_with(model: nn.Module, earlier: Tensor) -> ContextManager[Any]:
    """In this context a forward pass counts as using all weights that ``earlier`` was computed from.

    A loss of two passes has one backward. Before it torch's DDP looks for weights that it won't reach, in the
    graph of the last pass alone, and fails at a layer that only the first pass used (LayerDrop).

    Args:
        model: may be wrapped for distributed training.
        earlier: computed from the outputs of an earlier pass, with its graph; it is not changed.
    """
    wrapper = torchs_ddp(model)
    if wrapper is None:
        return nullcontext()

    def join(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return _Joined.apply(output, earlier)  # type: ignore[no-untyped-call]
        if isinstance(output, dict):  # transformers'
            for name in output:
                output[name] = join(module, inputs, output[name])
        return tuple(join(module, inputs, part) for part in output) if type(output) is tuple else output

    hook: ContextManager[Any] = wrapper.module.register_forward_hook(join)
    return hook


class _Joined(torch.autograd.Function):
    """The first argument; its graph includes that of the second, which gets no gradient from here."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, earlier: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gradients[0], None


def torchs_ddp(model: nn.Module) -> DistributedDataParallel | None:
    """Finds torch's DDP around a model, which fairseq wraps once, or twice with ``--heartbeat-timeout``."""
    module: nn.Module | None = model
    while not (module is None or isinstance(module, DistributedDataParallel)):
        module = module._modules.get("module")
    return module


@contextmanager
def frozen_parameters(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """In this context backward passes compute the gradient of the perturbation, but not of the model's
    weights.

    It freezes the weights instead of using ``autograd.grad``, so that loss scaling and activation
    checkpointing (``--checkpoint-activations``) work as in any other backward pass.
    """
    trainable = [p for p in weights if p.requires_grad]
    try:
        for parameter in trainable:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def use_differentiable_layers(model: nn.Module) -> None:
    """Turns off fairseq's fused inference layer, which has no gradient, as a training pass would."""
    for module in model.modules():
        if hasattr(module, "ever_training"):
            module.ever_training = True  # type: ignore[assignment]
