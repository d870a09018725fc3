"""The hook on the embedding layer: it has an effect, on real tokens only, and leaves nothing behind."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from fairseq_adv.perturbation import Perturbation, find_token_embedding
from fairseq_adv.perturbation.geometry import uniform_start

pytestmark = pytest.mark.fast

TOKENS = torch.tensor([[4, 5, 6], [7, 8, 1]])  # 1 is padding


class Bag(nn.Module):
    """Sum of embeddings -> linear: the gradient of every token is the weight vector."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Module()
        self.encoder.embed_tokens = nn.Embedding(10, 4, padding_idx=1)
        self.output = nn.Linear(4, 1, bias=False)
        self.output.weight.data = torch.tensor([[1.0, 2.0, 2.0, 4.0]])  # norm 5

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.encoder.embed_tokens(tokens)
        return self.output((embedded * tokens.ne(1).unsqueeze(-1)).sum(dim=1))  # type: ignore[no-any-return]


def perturbation(model: nn.Module, magnitude: float = 0.0, radius: float = 0.0) -> Perturbation:
    start = partial(uniform_start, magnitude=magnitude, seeds=[1, 2])
    return Perturbation(find_token_embedding(model), 1, start, radius=radius)


def test_a_step_by_hand() -> None:
    """g of a token is w: over L tokens its norm is 5 sqrt(L), and the loss rises by alpha 5 sqrt(L)."""
    model = Bag()
    delta = perturbation(model)
    with delta.applied():
        clean = model(TOKENS)
    clean.sum().backward()
    delta.ascend(0.5)
    with delta.applied():
        moved = model(TOKENS)
    expected = 0.5 * 5 * torch.tensor([[3.0], [2.0]]).sqrt()
    torch.testing.assert_close(moved - clean, expected, rtol=1e-5, atol=1e-6)
    assert delta.norm().tolist() == pytest.approx([0.5, 0.5], rel=1e-6)
    assert delta.delta is not None and not delta.delta[1, 2].any()  # padding


def test_tokens_by_keyword_are_told() -> None:
    model = Bag()
    embed = model.encoder.embed_tokens
    with pytest.raises(RuntimeError, match="without a keyword"), perturbation(model).applied():
        embed(input=TOKENS)
    assert not embed._forward_hooks


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_a_skipped_gradient_of_the_table_reaches_the_weights_in_the_last_pass(frozen: bool) -> None:
    """The sum over three passes, each with its own slope, is that of passes that skip nothing."""
    found = []
    for skips in (False, True):
        torch.manual_seed(0)
        model = Bag()
        weight = model.encoder.embed_tokens.weight.requires_grad_(not frozen)
        delta = perturbation(model, magnitude=1.0)
        for slope in (1.0, 2.0, 4.0):
            with delta.applied(skip_table_gradient=skips and slope < 4):
                loss = (slope * model(TOKENS)).square().sum()
            loss.backward()
            if skips and slope < 4:
                assert weight.grad is None and model.output.weight.grad is not None
                delta.add_table_gradient_later()
            delta.ascend(0.1)
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(*found, rtol=1e-6, atol=0)
    assert found[0].numel() == (4 if frozen else 44)
    weight.grad = None
    with delta.applied():
        model(TOKENS).sum().backward()
    if not frozen:  # an update later: the sum was used up
        assert weight.grad[4].tolist() == [1.0, 2.0, 2.0, 4.0]


def test_relative_norm_counts_real_tokens_only() -> None:
    model = Bag()
    model.encoder.embed_tokens.weight.data.fill_(1.0)  # padding's row too, as in converted checkpoints
    delta = perturbation(model)
    with delta.applied():
        model(TOKENS).sum().backward()
    delta.ascend(0.5)
    # ||X||_F = sqrt(tokens * 4)
    assert delta.relative_norm().tolist() == pytest.approx([0.5 / 12**0.5, 0.5 / 8**0.5], rel=1e-6)


@pytest.mark.parametrize("calls", [0, 2])
def test_a_layer_that_is_not_called_exactly_once_is_an_error(calls: int) -> None:
    model = Bag()
    delta = perturbation(model)

    def forward() -> None:
        with delta.applied():
            for _ in range(calls):
                model(TOKENS)

    with pytest.raises(RuntimeError, match=f"called {calls} times"):
        forward()


def test_finds_the_layer_inside_a_wrapper() -> None:
    model = Bag()
    wrapper = nn.Module()
    wrapper.module = nn.Module()
    wrapper.module.module = model
    assert find_token_embedding(wrapper) is model.encoder.embed_tokens


def test_a_model_without_an_embedding_of_its_encoder_is_refused() -> None:
    with pytest.raises(ValueError, match="embed_tokens: none"):
        find_token_embedding(nn.Linear(2, 2))
    model = Bag()
    model.decoder = nn.Module()
    model.decoder.embed_tokens = nn.Embedding(3, 4)
    assert find_token_embedding(model) is model.encoder.embed_tokens
    model.decoder.embed_tokens = model.encoder.embed_tokens
    with pytest.raises(ValueError, match="decoder"):
        find_token_embedding(model)


def test_that_of_t5s_encoders_is_the_one_they_call() -> None:
    """transformers 5 returns another one, with the same weight."""
    transformers = pytest.importorskip("transformers", reason="pip install '.[hf]'")
    config = transformers.T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, num_labels=2
    )
    model = transformers.T5ForTokenClassification(config).eval()
    called = []
    find_token_embedding(model).register_forward_hook(lambda *_: called.append(1))
    model(input_ids=torch.tensor([[3, 4, 1]]))
    assert called == [1]
