"""A run of transformers' Trainer with a method attached; a script, so that torchrun can start it.

python trained.py OUT METHOD [OPTION=VALUE …]       options of TrainingArguments; sizes as size:NAME=VALUE
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from loop.tiny_models import LARGE, METHODS, WORDS, bert

from fairseq_adv.loop import attach

FILLER = 9  # not the model's padding token: only the attention mask knows it


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Texts of 3 to 7 words; Trainer shuffles them."""

    def __init__(self, count: int = 16) -> None:
        generator = torch.Generator().manual_seed(5)
        self.items = []
        for _ in range(count):
            length = int(torch.randint(3, 8, (), generator=generator))
            ids = torch.full((7,), FILLER)
            ids[:length] = torch.randint(5, WORDS, (length,), generator=generator)
            label = torch.randint(3, (), generator=generator)
            self.items.append(
                {"input_ids": ids, "attention_mask": (torch.arange(7) < length).long(), "labels": label}
            )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def trainer_of(folder: Path, name: str = "", sizes: dict[str, Any] | None = None, dropout: float = 0.0,
               make: Any = bert, **options: Any) -> Trainer:  # fmt: skip
    """The Trainer of a tiny model, for four updates by SGD.

    Args:
        name: of the method; "": none is attached.
        sizes: of the method; ``None``: large ones.
        make: makes the model.
        options: of TrainingArguments.
    """
    chosen = {
        "per_device_train_batch_size": 2, "max_steps": 4, "learning_rate": 0.1, "optim": "sgd",
        "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1, "save_strategy": "no",
        "report_to": "none", "use_cpu": True, "disable_tqdm": True, **options,
    }  # fmt: skip
    trainer = Trainer(make(dropout), TrainingArguments(str(folder), **chosen), train_dataset=Rows())
    if name:
        attach(trainer, METHODS[name], **({"relative": False, **LARGE[name]} if sizes is None else sizes))
    return trainer


def weights(trainer: Trainer) -> Tensor:
    """All of them, in one fp64 vector."""
    return torch.cat([p.detach().double().flatten() for p in trainer.model.parameters()])


if __name__ == "__main__":
    out, method, *words = sys.argv[1:]
    found = {key: ast.literal_eval(value) for key, value in (word.split("=", 1) for word in words)}
    sizes = {key[5:]: value for key, value in found.items() if key.startswith("size:")}
    rest = {key: value for key, value in found.items() if not key.startswith("size:")}
    made = trainer_of(Path(out), method, sizes, **rest)
    made.train()
    rank = made.args.process_index
    torch.save({"weights": weights(made), "log": made.state.log_history}, Path(out, f"result{rank}.pt"))
