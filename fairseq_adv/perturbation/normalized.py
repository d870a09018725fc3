"""A perturbation of the layer-normalised embeddings (SiFT)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fairseq_adv.perturbation import geometry
from fairseq_adv.perturbation.embeddings import Perturbation
from fairseq_adv.perturbation.precision import layer_norm_after


class NormalizedPerturbation(Perturbation):
    """delta on LN(x), where x, the sum of a token's embeddings, is the input of the first layer norm.

    That layer norm subtracts the mean of x and divides by its standard deviation s. So LN(x) + delta as its
    input gives the same output as x + s delta, which is what it gets here (up to the eps that it adds to
    s^2). The clean pass stays the encoder's own, and a delta is as large for every token and every encoder.

    Args:
        model: contains the embedding, and a layer norm after it.
        embedding: see :class:`Perturbation`, which gets all further arguments. Sizes are of LN(x), whose
            entries have mean square 1.

    Raises:
        ValueError: the encoder has no layer norm after its embeddings.
    """

    def __init__(self, model: nn.Module, embedding: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(embedding, *args, **kwargs)
        self.layer_norm = first_layer_norm(model, embedding)

    @contextmanager
    def applied(self, differentiable: bool = True, skip_table_gradient: bool = False) -> Iterator[None]:
        """In this context the layer norm gets x + s delta; see :meth:`Perturbation.applied`."""

        def add_delta(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x, delta = inputs[0].float(), self.delta
            assert delta is not None  # for mypy: the embedding was called first
            s = x.std(dim=-1, unbiased=False, keepdim=True)
            return ((x + s * delta).to(inputs[0].dtype),)

        added = self.layer_norm.register_forward_pre_hook(add_delta)
        with added, super().applied(differentiable, skip_table_gradient):
            yield

    def relative_norm(self) -> Tensor:
        """||delta|| / ||LN(X)||, (examples,) fp32."""
        ones = self.mask.unsqueeze(-1).expand_as(self.value())
        return self.norm("l2") / geometry.example_norm(ones.float(), "l2", self.groups)

    def added(self, output: Tensor, delta: Tensor) -> Tensor:
        return output


def first_layer_norm(model: nn.Module, embedding: nn.Module) -> nn.Module:
    """The layer norm after the embeddings.

    Raises:
        ValueError: the encoder has none.
    """
    norm = layer_norm_after(model, embedding)
    if norm is None:
        raise ValueError(
            f"{type(model).__name__} has no layer norm after its embeddings, whose input could be perturbed: "
            "use an encoder such as roberta_base"
        )
    return norm
