"""A perturbation of two parts (TAVAT): one for the example, as in FreeLB, and one from a table of words."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairseq_adv.perturbation import geometry
from fairseq_adv.perturbation.embeddings import Perturbation
from fairseq_adv.perturbation.geometry import Groups


class TokenAwarePerturbation(Perturbation):
    """delta + eta of TAVAT (Li and Qiu, AAAI 2021), for one mini-batch, in the L2 norm.

    Both parts get the same gradient, since the model uses their sum. delta steps along the gradient of its
    example, eta along that of each token. Then eta is scaled by the token's share of the largest norm in the
    example, and both parts together are scaled back into the ball, or each into its own.

    Args:
        embedding: see :class:`Perturbation`.
        padding_idx: see :class:`Perturbation`.
        start: makes delta_0.
        table: (words, dim) fp32 on the embedding's device, eta_0 of each word.
        radius: epsilon of the ball for the sum, or for each part; 0 or less: no ball.
        groups: the rows of each example; ``None``: every row is an example.
        relative: see :class:`Perturbation`; the table's values are then relative too.
        joint_norm: divide eta_0 by its norm over the whole mini-batch.
        two_balls: delta and eta have a ball each, and may start outside (Algorithm 1, lines 4, 10 and 13).
    """

    _example: Tensor
    _token: Tensor

    def __init__(
        self,
        embedding: nn.Module,
        padding_idx: int,
        start: Callable[[Tensor, int], Tensor],
        table: Tensor,
        *,
        radius: float = 0.0,
        groups: Groups | None = None,
        relative: bool = False,
        joint_norm: bool = False,
        two_balls: bool = False,
    ) -> None:
        super().__init__(embedding, padding_idx, start, groups=groups, relative=relative)
        self.table = table
        self.ball = radius  # for the sum; the base class's radius would apply to delta alone
        self.joint_norm = joint_norm
        self.two_balls = two_balls

    @torch.no_grad()
    def ascend(self, step_size: float, gradient: Tensor | None = None) -> None:
        """Moves both parts by a step of ``step_size``. See :class:`TokenAwarePerturbation`."""
        grad = (self.gradient() if gradient is None else gradient) * self.mask.unsqueeze(-1)
        length = step_size * self._unit_per_row()
        token = self._token + length * geometry.token_direction(grad, self.mask)
        example = self._example + length * geometry.ascent_direction(grad, "l2", self.groups)
        self._settle(*self._projected(example, geometry.scale_by_token(token, self.groups)))

    def of_words(self) -> Tensor:
        """eta in the table's units, (rows, tokens, dim) fp32, zero on padding."""
        return self._token / self._unit_per_row()

    @torch.no_grad()
    def _begin(self, tokens: Tensor, embedded: Tensor) -> None:
        super()._begin(tokens, embedded)
        token = self.table[tokens] * self.mask.unsqueeze(-1)
        if self.joint_norm:
            token = token / token.norm().clamp(min=torch.finfo(torch.float32).tiny)
        parts = self.value(), token * self._unit_per_row()
        self._settle(*(parts if self.two_balls else self._projected(*parts)))

    def _unit_per_row(self) -> Tensor:
        """(rows, 1, 1) or a scalar: the factor of the sizes."""
        return torch.ones(()) if self.unit is None else geometry.per_row(self.unit, self.groups)

    def _projected(self, example: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        if self.ball <= 0:
            return example, token
        if self.two_balls:
            return example * self._share(example), token * self._share(token)
        share = self._share(example + token)
        return example * share, token * share

    def _share(self, x: Tensor) -> Tensor:
        """(rows, 1, 1): the factor that brings ``x`` into the ball."""
        norm = geometry.example_norm(x, "l2", self.groups)
        radius = self.ball * (torch.ones_like(norm) if self.unit is None else self.unit)
        return geometry.per_row(radius / torch.maximum(norm, radius), self.groups)

    def _settle(self, example: Tensor, token: Tensor) -> None:
        self._example, self._token = example, token
        self.move_to(example + token)
