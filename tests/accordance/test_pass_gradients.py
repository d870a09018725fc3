"""The gradients of a pass, with the probe's words apart, against those that autograd makes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairseq_adv.accordance.probe import PassGradients
from fairseq_adv.accordance.sums import GROUPS, _belongs
from fairseq_adv.perturbation import EncoderParts

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


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("words", [WORDS, torch.tensor([2, 5])])
@pytest.mark.parametrize("options", [{}, {"padding_idx": PADDING}])
def test_the_words_of_the_probe_are_apart(tied: bool, words: Tensor, options: dict[str, int]) -> None:
    """Nothing is lost if the table also makes the logits, or other words are looked up than the probe's; if
    not, the rest is zero, and takes no memory in the sums.
    """
    model = Tiny(**options)
    model.tied = tied
    expected = by_autograd(model)
    passes = PassGradients(model, words)
    loss(model).backward()
    *others, rows, rest = passes.take()
    for gradient, (name, like) in zip([*others, rows, rest], passes.named):
        assert gradient is not None
        assert (gradient.shape, gradient.device) == (like.shape, like.device), name
    assert all(p.grad is None for p in model.parameters())
    assert rows is not None and rest is not None
    assert torch.equal(rows, expected["embed_tokens.weight"][words])
    assert rest[words].abs().sum() == 0
    assert bool(rest.any()) == (tied or len(words) == 2)
    assert torch.equal(rest.index_add(0, words, rows), expected.pop("embed_tokens.weight"))
    assert all(torch.equal(g, e) for g, e in zip(others, expected.values()))  # type: ignore[arg-type]
    assert passes.take() == [None] * len(passes.named)


def test_a_table_that_is_not_trained_has_no_gradient() -> None:
    model = Tiny()
    model.embed_tokens.weight.requires_grad_(False)
    passes = PassGradients(model, WORDS)
    loss(model).backward()
    assert [name for name, _ in passes.named] == ["above.weight", "above.bias"]
    assert all(gradient is not None for gradient in passes.take())


@pytest.mark.parametrize("case", ["no table", "two tables"])
def test_other_models_are_taken_as_autograd_has_them(case: str) -> None:
    model: nn.Module
    if case == "two tables":
        model = nn.Sequential(Tiny(), nn.ModuleDict({"embed_tokens": nn.Embedding(10, 2)}))
        model.forward = lambda tokens: model[0](tokens) + model[1]["embed_tokens"](tokens).sum(-1)  # type: ignore[index, operator, method-assign]
    else:
        model = nn.Sequential(nn.Embedding(10, 3), nn.Linear(3, 2))
    passes = PassGradients(model, WORDS)
    loss(model).backward()
    gradients = dict(zip((name for name, _ in passes.named), passes.take()))
    expected = by_autograd(model)
    assert gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[name], gradient) for name, gradient in expected.items())  # type: ignore[arg-type]


def test_the_head_of_a_hugging_face_model_is_what_is_not_its_encoder() -> None:
    """Groups are told by the names of fairseq's heads."""
    encoder, head = Tiny(), nn.Linear(2, 2)
    model = nn.ModuleDict({"bert": encoder, "classifier": head})
    model.encoder_parts = lambda: EncoderParts(encoder, encoder.embed_tokens, [], None, 3)
    named = PassGradients(model, WORDS).named
    found = {group: [name for name, _ in named if _belongs(name, group)] for group in GROUPS}
    assert found["head"] == ["classification_heads.classifier.weight", "classification_heads.classifier.bias"]
    assert set(found["encoder"]) == {"bert.embed_tokens.weight", "bert.above.weight", "bert.above.bias"}
    assert len(found["all"]) == len(named) == 6, "the table is two"
