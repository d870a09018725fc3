"""TAVAT's two perturbations, by hand."""

from __future__ import annotations

import torch

from fairseq_adv.perturbation import Groups, TokenAwarePerturbation, geometry


def test_each_token_has_a_direction_of_its_own_and_padding_has_none() -> None:
    """Half precision's largest numbers overflow in a norm that is not taken in fp32."""
    grad = torch.tensor([[[3.0, 4.0], [0.0, 0.0], [float("inf"), 1.0], [6e4, 0.0], [1.0, 1.0]]]).half()
    mask = torch.tensor([[True, True, True, True, False]])
    expected = torch.tensor([[[0.6, 0.8], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    assert torch.allclose(geometry.token_direction(grad, mask), expected)


def test_a_token_is_scaled_by_its_share_of_the_longest_of_its_example() -> None:
    x = torch.tensor([[[3.0, 4.0], [0.0, 10.0]], [[0.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]]])
    expected = torch.tensor([[[1.5, 2.0], [0.0, 10.0]], [[0.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]]])
    assert torch.equal(geometry.scale_by_token(x), expected)
    together = geometry.scale_by_token(x, Groups(torch.tensor([0, 1, 0]), 2))
    assert torch.allclose(together[2, 0], torch.tensor([0.4, 0.0]))


def test_both_parts_are_scaled_into_the_ball_together() -> None:
    """eta of norm 5 and no delta, in a ball of 2: the model sees the sum."""
    embedding = torch.nn.Embedding(4, 2)
    table = torch.tensor([[0.0, 0.0], [9.0, 9.0], [3.0, 0.0], [0.0, 4.0]])
    tokens = torch.tensor([[2, 3, 1]])  # 1 is padding
    delta = TokenAwarePerturbation(
        embedding, 1, lambda mask, dim: torch.zeros(*mask.shape, dim), table, radius=2.0
    )
    with delta.applied():
        out = embedding(tokens)
    expected = torch.tensor([[[1.2, 0.0], [0.0, 1.6], [0.0, 0.0]]])
    torch.testing.assert_close(out.detach(), embedding(tokens).detach() + expected)
    torch.testing.assert_close(delta.of_words(), expected)
