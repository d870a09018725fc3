"""YOPO's f_0: the encoder up to the output of its first Transformer layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_adv.perturbation.embeddings import find_token_embedding, parts_of


def find_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of the encoder whose token embedding :func:`find_token_embedding` finds, in order.

    Raises:
        ValueError: the module with the token embedding has no ``layers``.
    """
    parts = parts_of(model)
    if parts is not None:
        if not parts.layers:
            raise ValueError(
                f"{type(parts.encoder).__name__} has no list of layers that run one after the other, which "
                "this criterion needs: use another encoder, or another --criterion"
            )
        return parts.layers
    embedding = find_token_embedding(model)
    for module in model.modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, nn.ModuleList) and any(child is embedding for child in module.children()):
            return [layers[i] for i in range(len(layers))]  # iterating over a LayerDrop list drops layers
    raise ValueError(
        f"{type(model).__name__} has no list of layers next to its token embedding, which this criterion "
        "needs: use an encoder such as fairseq's roberta (encoder.sentence_encoder.layers), or choose "
        "another --criterion"
    )


class FirstLayer:
    """The first layer that a forward pass runs; with LayerDrop it may differ from pass to pass.

    Args:
        model: an encoder model; may be wrapped for distributed training.

    Raises:
        ValueError: its layers can't be found.
    """

    def __init__(self, model: nn.Module) -> None:
        self.layers = find_layers(model)
        self._gradient: Tensor | None = None

    @contextmanager
    def record(self) -> Iterator[None]:
        """A forward pass and its backward pass in this context store p = dL/df_0 for :meth:`backward`."""
        self._gradient = None

        def keep(gradient: Tensor) -> None:
            self._gradient = gradient.detach()

        def watch(output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(keep)  # type: ignore[no-untyped-call]

        with self._on_first_output(watch):
            yield

    def steps(self, count: int, length: float) -> tuple[int, float]:
        """The number of steps to take after a recorded pass, and their length.

        If LayerDrop has dropped every layer, there is no p, and no pass is shallower than the recorded one:
        one step is as long as all together.
        """
        return (count, length) if self._gradient is not None else (1, count * length)

    def backward(self, forward: Callable[[], object]) -> None:
        """Back-propagates <p, f_0> (YOPO, Algorithm 1), with p held constant.

        Args:
            forward: runs a forward pass of the model, which is stopped at f_0.

        Raises:
            RuntimeError: there is no p, or the pass ran no layer.
        """
        if self._gradient is None:
            raise RuntimeError("no gradient has reached the first layer: run a backward pass first")
        outputs: list[Tensor] = []

        def stop(output: Tensor) -> None:
            outputs.append(output)
            raise _Reached

        try:
            with self._on_first_output(stop):
                forward()
        except _Reached:
            pass
        if not outputs:
            raise RuntimeError("the forward pass ran no layer of the encoder")
        torch.autograd.backward(outputs, [self._gradient.to(outputs[0].dtype)])

    @contextmanager
    def _on_first_output(self, act: Callable[[Tensor], None]) -> Iterator[None]:
        reached = False

        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            nonlocal reached
            if not reached:
                reached = True
                act(output[0] if isinstance(output, tuple) else output)

        with ExitStack() as hooks:
            for layer in self.layers:
                hooks.enter_context(layer.register_forward_hook(hook))
            yield


class _Reached(Exception):
    """Ends a forward pass at f_0."""
