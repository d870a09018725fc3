"""The API pages have what a user looks up in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from documents import ROOT

from fairseq_adv.criterions import methods


def test_every_class_of_options_is_on_the_page_of_criterions() -> None:
    """A table there has a class's own options, not those that it inherits."""
    page = (ROOT / "docs" / "api" / "criterions.md").read_text(encoding="utf-8")
    found = {
        f"{base.__module__}.{base.__qualname__}"
        for method in methods().values()
        for base in getattr(method, "__dataclass").__mro__
        if base.__module__.startswith("fairseq_adv.")
    }
    assert len(found) > 15
    assert not [name for name in found if f"::: {name}\n" not in page]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_loop_on_the_page_of_perturbation_is_freelb(dropout: float) -> None:
    """On a BERT of transformers, against Algorithm 1 on embeddings that are passed to the model."""
    transformers = pytest.importorskip("transformers", reason="the page's loop is for its models")
    page = (ROOT / "docs" / "api" / "perturbation.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )
    ).train()  # fmt: skip
    tokens = torch.randint(1, 30, (3, 7))
    tokens[1, 4:] = 0
    batch = {"attention_mask": tokens.ne(0).long(), "labels": torch.tensor([0, 1, 1])}
    gradients = []

    def step() -> None:
        gradients.append([weight.grad.clone() for weight in model.parameters()])

    optimizer = SimpleNamespace(zero_grad=model.zero_grad, step=step)
    torch.manual_seed(2)
    names["freelb_update"](model, optimizer, {"input_ids": tokens, **batch}, [5, 6, 7])

    real = tokens.ne(0).unsqueeze(-1)
    delta = names["geometry"].uniform_start(tokens.ne(0), 16, 0.2, [5, 6, 7])
    model.zero_grad()
    for number in range(3):
        torch.manual_seed(2)
        delta = delta.detach().requires_grad_()
        embeddings = model.get_input_embeddings()(tokens) + delta
        (model(inputs_embeds=embeddings, **batch).loss / 3).backward()
        if number < 2:
            move = delta.grad * real
            delta = delta + 0.1 * move / move.flatten(1).norm(dim=1).view(-1, 1, 1)
            delta = delta * (0.3 / delta.flatten(1).norm(dim=1)).clamp(max=1).view(-1, 1, 1)
    step()
    assert delta.flatten(1).norm(dim=1).max() > 0.15
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
