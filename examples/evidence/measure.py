"""Measures a trained cell: one pass over dev and test rows, and an attack on the embeddings. fill.py runs

    measure.py CHECKPOINT ANSWERS RADIUS STEPS RESTARTS bf16|fp32

Prints JSON: accuracy and mean loss of each split; for each attacked row 1 if its answer stays right, else 0.
Writes the log-probabilities of all classes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_adv.data.io import atomic_open
from fairseq_adv.evaluation.attack import Attack, attack
from fairseq_adv.evaluation.trained import Trained, load
from fairseq_adv.fairseq_patches.mixed_precision import fast_bf16_products

BLOCK, ROWS = 25, 32  # rows attacked, and predicted, at a time


def head_in_fp32(trained: Trained) -> None:
    """Computes the head in fp32 in autocast too: logits rounded to bf16 would often be equal."""
    model: Any = trained.model
    head = model.hf.classifier
    original, kind = head.forward, next(head.parameters()).device.type

    def forward(features: Any, **more: Any) -> Any:
        with torch.autocast(kind, enabled=False):
            return original(features.float(), **more)

    head.forward = forward


def predict(trained: Trained, split: str) -> tuple[Any, dict[str, float]]:
    """(rows, classes) fp16 log-probabilities in the split's order, and its scores."""
    size = len(trained.task.dataset(split))
    found = np.zeros((size, trained.objective.classes()), np.float16)
    right, loss = 0, 0.0
    with torch.no_grad():
        for sample in trained.batches(split, ROWS):
            scores = trained.objective.log_probabilities(trained.objective.predict(trained.model, sample))
            target = sample["target"].view(-1)
            right += int((scores.argmax(dim=1) == target).sum())
            loss -= float(scores.gather(1, target.unsqueeze(1)).double().sum())
            found[sample["id"].cpu().numpy()] = scores.cpu().numpy()
    return found, {"rows": size, "accuracy": 100 * right / size, "loss": loss / size}


class Watched:
    """An objective that keeps, for each row, whether its last answer is right."""

    def __init__(self, objective: Any, rows: int) -> None:
        self._objective, self.right = objective, np.zeros(rows, bool)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def logging_output(self, predictions: Any, sample: Any, gather: bool = True) -> Any:
        right = predictions.argmax(dim=1) == sample["target"].view(-1)
        self.right[sample["id"].cpu().numpy()] = right.cpu().numpy()
        return self._objective.logging_output(predictions, sample, gather=gather)


def under_attack(trained: Trained, radius: float, steps: int, restarts: int) -> str:
    """For each row "1" if it is answered right after each of the restarts; the first starts at the text."""
    right = np.ones(len(trained.task.dataset("attack")), bool)
    for seed in range(restarts):
        objective: Any = Watched(trained.objective, len(right))
        how = Attack(radius, radius / 4, steps, radius if seed else 0, seed, relative=True, loss="margin")
        attack(trained.model, objective, trained.batches("attack", BLOCK), how)
        right &= objective.right
    return "".join("01"[int(one)] for one in right)


def main(checkpoint: str, answers: str, radius: str, steps: str, restarts: str, precision: str) -> None:
    trained = load(checkpoint, None, ["valid", "test", "attack"])
    trained.model.eval()
    head_in_fp32(trained)
    device, is_bf16 = next(trained.model.parameters()).device, precision == "bf16"
    with fast_bf16_products(device, is_bf16), torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
        found = {name: predict(trained, name) for name in ("valid", "test")}
        stays = under_attack(trained, float(radius), int(steps), int(restarts))
    with atomic_open(Path(answers)) as file:
        np.savez_compressed(file, **{name: one for name, (one, _) in found.items()})
    print(json.dumps({"scores": {name: scores for name, (_, scores) in found.items()}, "attacked": stays}))


if __name__ == "__main__":
    main(*sys.argv[1:])
