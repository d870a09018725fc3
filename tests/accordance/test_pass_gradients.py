"""The gradient of the word table taken behind the look-up, against the one that autograd makes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairseq_adv.accordance.gradients import PassGradients

pytestmark = pytest.mark.fast

PADDING = 1
TOKENS = torch.tensor([[4, 7, 4, 2], [5, 2, PADDING, PADDING]])
WORDS = torch.tensor([PADDING, 2, 4, 5, 7, 8])  # 8 stands in another batch


class Tiny(nn.Module):
    """A table of 10 words, looked up once, and a layer above it."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = nn.Embedding(10, 3, **options)  # type: ignore[arg-type]
        self.above = nn.Linear(3, 2)
        self.tied = False

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.embed_tokens(tokens)
        out = self.above(features).tanh().sum(dim=-1)
        return out + (features @ self.embed_tokens.weight.t()).exp().sum(dim=-1) if self.tied else out


def loss(model: nn.Module, tokens: Tensor = TOKENS) -> Tensor:
    value: Tensor = model(tokens).square().sum()
    return value


def by_autograd(model: nn.Module) -> dict[str, Tensor]:
    loss(model).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def taken(model: Tiny, words: Tensor) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """By name, with the word table put together from its two parts; and the parts."""
    passes = PassGradients(model, words)
    with passes.watched():
        loss(model).backward()
    gradients = passes.take()
    assert len(gradients) == len(passes.named)
    for gradient, (name, like) in zip(gradients, passes.named):
        assert gradient is None or (gradient.shape, gradient.device) == (like.shape, like.device), name
    assert all(p.grad is None for p in model.parameters())
    found = {name: g for (name, _), g in zip(passes.named[:-2], gradients) if g is not None}
    rows, other = gradients[-2:]
    table = torch.zeros(10, 3) if other is None else other.clone()
    assert rows is not None
    table[known(model, words)] += rows
    return {**found, "embed_tokens.weight": table}, [rows, other]


def known(model: Tiny, words: Tensor) -> Tensor:
    """The words without what the table takes for padding."""
    return words if model.embed_tokens.padding_idx is None else words[words != PADDING]


def assert_equal(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            ours[name], gradient, rtol=1e-6, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_look_up_needs_no_more_than_the_words() -> None:
    """A word that comes twice has both gradients; padding has none; no table is made."""
    model = Tiny(padding_idx=PADDING)
    expected = by_autograd(model)
    assert expected["embed_tokens.weight"][4].norm() > 0 == expected["embed_tokens.weight"][PADDING].norm()
    ours, (rows, other) = taken(model, WORDS)
    assert_equal(ours, expected)
    assert rows is not None and rows.shape == (5, 3)
    assert other is None


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("words", [WORDS, torch.tensor([2, 5])])
@pytest.mark.parametrize("options", [{}, {"padding_idx": PADDING}])
def test_what_the_table_gets_elsewhere_is_not_lost(
    tied: bool, words: Tensor, options: dict[str, int]
) -> None:
    """The table also makes the logits, or other words are looked up than the probe's."""
    model = Tiny(**options)
    model.tied = tied
    ours, (_, other) = taken(model, words)
    assert_equal(ours, by_autograd(model))
    if other is None:
        assert not tied and len(words) > 2
    else:
        assert other[known(model, words)].abs().sum() == 0  # the two parts don't overlap


def test_the_passes_do_not_add_up_and_nothing_is_left_behind() -> None:
    model = Tiny()
    passes = PassGradients(model, WORDS)
    with passes.watched():
        loss(model).backward()
        first = passes.take()
        loss(model, TOKENS[:1]).backward()
        passes.take()
        model(TOKENS)  # a pass without a backward
        loss(model).backward()
        again = passes.take()
        nothing = passes.take()
    assert all(torch.equal(a, b) for a, b in zip(first[:-1], again[:-1]))
    assert nothing == [None] * len(passes.named)
    assert by_autograd(model).keys() == dict(model.named_parameters()).keys()  # the hook is gone


def test_half_precision_is_added_up_in_fp32() -> None:
    """A word 3000 times, each with a gradient of 1: fp16 has no odd numbers above 2048."""
    table = nn.Embedding(4, 1).half()
    model = nn.ModuleDict({"embed_tokens": table})
    passes = PassGradients(model, torch.tensor([2, 3]))
    with passes.watched():
        table(torch.tensor([[2] * 3001 + [3]])).float().sum().backward()
    rows, other = passes.take()
    assert rows is not None and rows.dtype == torch.float32
    assert rows.flatten().tolist() == [3001, 1]
    assert other is None


def test_a_table_that_is_not_trained_has_no_gradient() -> None:
    model = Tiny()
    model.embed_tokens.weight.requires_grad_(False)
    passes = PassGradients(model, WORDS)
    with passes.watched():
        loss(model).backward()
    assert [name for name, _ in passes.named] == ["above.weight", "above.bias"]
    assert all(gradient is not None for gradient in passes.take())


@pytest.mark.parametrize("case", ["no table", "two tables", "scaled by frequency"])
def test_other_models_are_taken_as_autograd_has_them(case: str) -> None:
    model: nn.Module
    if case == "scaled by frequency":
        model = Tiny(scale_grad_by_freq=True)
    elif case == "two tables":
        model = nn.Sequential(Tiny(), nn.ModuleDict({"embed_tokens": nn.Embedding(10, 2)}))
        model.forward = lambda tokens: model[0](tokens) + model[1]["embed_tokens"](tokens).sum(-1)  # type: ignore[index, operator, method-assign]
    else:
        model = nn.Sequential(nn.Embedding(10, 3), nn.Linear(3, 2))
    passes = PassGradients(model, WORDS)
    with passes.watched():
        loss(model).backward()
    gradients = dict(zip((name for name, _ in passes.named), passes.take()))
    expected = by_autograd(model)
    assert gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[name], gradient) for name, gradient in expected.items())  # type: ignore[arg-type]
