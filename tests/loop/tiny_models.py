"""Tiny random models of transformers, and mini-batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForSequenceClassification,
    BertForTokenClassification,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from fairseq_adv.loop import ALUM, PGD, R3F, SMART, FreeLB, LoopMethod, Noise
from fairseq_adv.loop.methods import Diverging

WORDS, DIM, PAD = 50, 16, 0
SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 40, "pad_token_id": PAD,
}  # fmt: skip


METHODS = {"freelb": FreeLB, "pgd": PGD, "noise": Noise, "r3f": R3F, "alum_vat": ALUM, "smart": SMART}
SEEDS = [11, 12, 13, 14]
LARGE: dict[str, dict[str, Any]] = {  # sizes at which each part of a method shows
    "freelb": {"step_size": 0.4, "max_norm": 0.6, "init_mag": 0.5},
    "pgd": {"step_size": 0.4, "max_norm": 0.6, "init_mag": 0.5, "norm_type": "linf"},
    "noise": {"size": 2.0},
    "r3f": {"weight": 2.0, "epsilon": 0.2},
    "alum_vat": {
        "alpha": 3.0, "steps": 2, "step_size": 0.3, "epsilon": 0.4, "init_std": 0.2, "kind": "js",
        "projection": "l2",
    },
    "smart": {"alpha": 3.0, "steps": 2, "step_size": 0.3, "epsilon": 0.4, "init_std": 0.2, "mu": 2.5},
}  # fmt: skip


def made(name: str, model: Any, **changes: Any) -> LoopMethod:
    """The method with large sizes; they are lengths."""
    return METHODS[name](model, **{"relative": False, **LARGE[name], **changes})


def _spread(model: nn.Module) -> Any:
    """Weights as large as trained ones have, so that gradients aren't tiny."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return model.train()


def bert(dropout: float = 0.0, kind: str = "SequenceClassification", **changes: Any) -> Any:
    """``BertFor{kind}``, in training mode."""
    torch.manual_seed(3)
    sizes = {**SIZES, "num_labels": 3, **changes}
    config = BertConfig(**sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    classes = (
        BertForMaskedLM, BertForSequenceClassification, BertForMultipleChoice, BertForTokenClassification,
    )  # fmt: skip
    return _spread(next(one for one in classes if one.__name__ == f"BertFor{kind}")(config))


def qwen() -> Any:
    """A decoder with a head that reads the last token."""
    torch.manual_seed(3)
    return _spread(Qwen2ForSequenceClassification(Qwen2Config(**SIZES, num_key_value_heads=2, num_labels=3)))


def rows(count: int = 4, left: bool = False) -> dict[str, Tensor]:
    """Texts of 3 to 7 words with a class each."""
    generator = torch.Generator().manual_seed(5)
    lengths = [7, 4, 6, 3][:count]
    filler = 9 if left else PAD  # decoders pad with a token that texts have, too
    ids, mask = torch.full((count, 7), filler), torch.zeros(count, 7, dtype=torch.long)
    for row, length in enumerate(lengths):
        place = slice(7 - length, 7) if left else slice(length)
        ids[row, place] = torch.randint(5, WORDS, (length,), generator=generator)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1, 2, 1])[:count]}


def part(batch: dict[str, Tensor], *of: int) -> dict[str, Tensor]:
    """Some rows of a mini-batch."""
    return {name: value[list(of)] for name, value in batch.items()}


def closure(model: Any, batch: dict[str, Tensor], method: Any) -> Callable[[], Any]:
    """What a method is called with."""

    def run() -> Any:
        output = model(**batch)
        return (output.loss, output.logits) if isinstance(method, Diverging) else output.loss

    return run


def gradient(model: nn.Module) -> Tensor:
    """All gradients in one fp64 vector, which are zero afterwards."""
    found = torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


def distance(found: Tensor, expected: Tensor) -> float:
    """As a share of the second's length."""
    return float((found - expected).norm() / expected.norm())
