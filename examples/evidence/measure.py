"""Measures a trained cell: one pass over dev and test rows, and an attack on the embeddings. fill.py runs

    measure.py CHECKPOINT ANSWERS

Prints JSON: accuracy and loss of splits; for each attacked row 1 if it stays right, else 0. Writes ANSWERS.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from grid import GRID

from fairseq_adv.data.io import atomic_open
from fairseq_adv.evaluation.attack import Attack, attack
from fairseq_adv.evaluation.trained import Trained, load

BLOCK, ROWS = 25, 32  # rows attacked, and predicted, at a time


def head_in_fp32(trained: Trained) -> None:
    """Computes the head in fp32 in autocast too: logits rounded to bf16 would often be equal."""
    model: Any = trained.model
    head = model.hf.classifier
    original, off = head.forward, torch.autocast(next(head.parameters()).device.type, enabled=False)
    head.forward = off(lambda features, **more: original(features.float(), **more))


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


def under_attack(trained: Trained, radius: float, steps: int, restarts: int) -> str:
    """For each row "1" if it is answered right after each of the restarts; the first starts at the text."""
    right = np.ones(len(trained.task.dataset("attack")), bool)
    last, objective = right.copy(), cast(Any, trained.objective)  # last: whether the last answer is right
    log = objective.logging_output

    def watched(predictions: Any, sample: Any, gather: bool = True) -> Any:
        answers = predictions.argmax(dim=1) == sample["target"].view(-1)
        last[sample["id"].cpu().numpy()] = answers.cpu().numpy()
        return log(predictions, sample, gather=gather)

    objective.logging_output = watched
    for seed in range(restarts):
        how = Attack(radius, radius / 4, steps, radius if seed else 0, seed, relative=True, loss="margin")
        attack(trained.model, objective, trained.batches("attack", BLOCK), how)
        right &= last
    return "".join("01"[int(one)] for one in right)


def main(checkpoint: str, answers: str) -> None:
    trained = load(checkpoint, None, ["valid", "test", "attack"], precision=GRID["precision"])
    head_in_fp32(trained)
    with trained.autocast():
        found = {name: predict(trained, name) for name in ("valid", "test")}
        stays = under_attack(trained, GRID["radius"], GRID["steps"], GRID["restarts"])
    if not all(math.isfinite(scores["loss"]) for _, scores in found.values()):
        raise trained.not_finite()
    with atomic_open(Path(answers)) as file:
        np.savez_compressed(file, **{name: one for name, (one, _) in found.items()})
    print(json.dumps({"scores": {name: scores for name, (_, scores) in found.items()}, "attacked": stays}))


if __name__ == "__main__":
    main(*sys.argv[1:])
