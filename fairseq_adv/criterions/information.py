"""InfoBERT's two bounds on mutual information, in plain torch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, distributed, nn

HIDDEN = 300  # width of the network that compares two states, as in the authors' code
_LOWEST = -1e30  # exp of it is 0, and its gradient is not NaN


def upper_bound(states: Tensor, mask: Tensor, generator: Generator) -> Tensor:
    """Half the mean squared distance between tokens and a random permutation of them.

    This is the authors' default: the CLUB bound of section 3.2 with a Gaussian around each token.

    Args:
        states: (rows, tokens, dim), of the embedding layer.
        mask: (rows, tokens) bool, true on real tokens.
        generator: the generator for the permutation, on the device of ``states``.

    Returns:
        a scalar in fp32; 0 if there are no tokens.
    """
    flat, real = states.float().flatten(0, 1), mask.flatten()
    keys = torch.rand(mask.shape, generator=generator, device=mask.device).flatten()
    order = keys.masked_fill(~real, 2.0).argsort()  # the real tokens, shuffled; then padding
    places = (~real).to(torch.uint8).argsort(stable=True)  # the real tokens, in order; then padding
    count = real.sum()
    paired = torch.arange(len(flat), device=mask.device) < count
    distances = (flat[places] - flat[order]).square().sum(dim=1)
    bound: Tensor = (distances * paired).sum() / (2 * count.clamp(min=1))
    return bound


def anchored(gradient: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """Which tokens are local anchored features (Algorithm 1 of the paper).

    Of the n tokens of a row, those whose gradient norm has rank ceil(n low) to ceil(n high) - 1, smallest
    first.

    Args:
        gradient: (rows, tokens, dim), of the loss with respect to the perturbation.
        mask: (rows, tokens) bool, true on the tokens to rank.
        low: c_l.
        high: c_h.

    Returns:
        (rows, tokens) bool.
    """
    norms = torch.linalg.vector_norm(gradient.float(), dim=-1).masked_fill(~mask, math.inf)
    rank = norms.argsort(dim=1, stable=True).argsort(dim=1)
    count = mask.sum(dim=1, keepdim=True).double()
    chosen: Tensor = mask & (rank >= (count * low).ceil()) & (rank < (count * high).ceil())
    return chosen


class InfoNCE(nn.Module):
    """A lower bound on the mutual information of two states, with T(x, y) = softplus(MLP([x; y])).

    Args:
        dim: of each state.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * dim, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor, y: Tensor, real: Tensor) -> Tensor:
        """The mean over the chunks of ``mean_a T(x_a, y_a) - mean_a log mean_b exp T(x_b, y_a)``.

        Args:
            x: (chunks, size, dim).
            y: (chunks, size, dim).
            real: (chunks, size) bool; pairs that are false are ignored, and so are chunks without a true one.

        Returns:
            a scalar in fp32; 0 if there are no pairs.
        """
        weight, dim = self.first.weight, x.size(-1)
        of_x = F.linear(x.to(weight.dtype), weight[:, :dim])
        of_y = F.linear(y.to(weight.dtype), weight[:, dim:], self.first.bias)
        hidden = F.relu(of_x.unsqueeze(1) + of_y.unsqueeze(2))  # (chunks, a, b, HIDDEN)
        scores = F.softplus(self.last(hidden).squeeze(-1).float())
        count = real.sum(dim=1).float()
        against = scores.masked_fill(~real.unsqueeze(1), _LOWEST).logsumexp(dim=2)
        gains = (scores.diagonal(dim1=1, dim2=2) - against) * real
        bounds = gains.sum(dim=1) / count.clamp(min=1) + count.clamp(min=1).log()
        return bounds.sum() / (count > 0).sum().clamp(min=1)


def average_gradients(network: nn.Module) -> None:
    """Averages the gradients of a network over the workers, if there are several."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    for weight in network.parameters():
        if weight.grad is None:  # LayerDrop dropped all layers, or nothing was anchored
            weight.grad = torch.zeros_like(weight)
        weight.grad /= distributed.get_world_size()  # first: a sum could overflow fp16
        distributed.all_reduce(weight.grad)


def lower_bound(
    estimate: nn.Module, local: Tensor, whole: Tensor, chosen: Tensor, max_chosen: int, generator: Generator
) -> Tensor:
    """:class:`InfoNCE` between chosen tokens and the states of their rows, shuffled, in chunks of ``rows``
    pairs.

    Args:
        estimate: an :class:`InfoNCE`.
        local: (rows, tokens, dim), of the embedding layer.
        whole: (rows, dim), of the first token in the last layer.
        chosen: (rows, tokens) bool.
        max_chosen: upper limit on the number of chosen tokens per row.
        generator: the generator for the shuffle, on the device of ``local``.

    Returns:
        a scalar in fp32; 0 if nothing is chosen.
    """
    rows, tokens = chosen.shape
    keys = torch.rand(chosen.shape, generator=generator, device=chosen.device).flatten()
    order = keys.masked_fill(~chosen.flatten(), 2.0).argsort()[: rows * max_chosen]
    real = torch.arange(len(order), device=order.device) < chosen.sum()
    x, y = local.flatten(0, 1)[order], whole[order // tokens]
    result: Tensor = estimate(
        x.view(max_chosen, rows, -1), y.view(max_chosen, rows, -1), real.view(max_chosen, rows)
    )
    return result
