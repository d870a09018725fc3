"""Measures a trained cell: one pass over each split, and attacks on the embeddings. Run by fill.py, as

    measure.py CHECKPOINT ANSWERS SPLITS RADII bf16|fp32

SPLITS and RADII are separated by commas. Prints JSON: accuracy and mean loss of each split; for each attack,
how many answers stay right in each mini-batch of 25 rows. Writes the probabilities of all but the last class.
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
from fairseq_adv.fairseq_patches.bf16_products import fast_bf16_products
from fairseq_adv.perturbation.passes import use_differentiable_layers

STEPS, BLOCK, ROWS = 10, 25, 32  # steps of an attack; rows attacked, and predicted, at a time


def head_in_fp32(trained: Trained) -> None:
    """Computes the head in fp32 in autocast too: logits rounded to bf16 would often be equal."""
    heads: Any = trained.model.classification_heads
    head = heads[trained.task.cfg.classification_head_name]
    plain, kind = head.forward, next(head.parameters()).device.type

    def forward(features: Any, **more: Any) -> Any:
        with torch.autocast(kind, enabled=False):
            return plain(features.float(), **more)

    head.forward = forward


def predict(trained: Trained, split: str) -> tuple[Any, dict[str, float]]:
    """(rows, classes - 1) fp16 probabilities in the split's order, and its scores."""
    size = len(trained.task.dataset(split))
    found = np.zeros((size, trained.objective.classes() - 1), np.float16)
    right, loss = 0, 0.0
    with torch.no_grad():
        for sample in trained.batches(split, ROWS):
            scores = trained.objective.log_probabilities(trained.objective.predict(trained.model, sample))
            target = sample["target"].view(-1)
            right += int((scores.argmax(dim=1) == target).sum())
            loss -= float(scores.gather(1, target.unsqueeze(1)).double().sum())
            found[sample["id"].cpu().numpy()] = scores.exp()[:, :-1].cpu().numpy()
    return found, {"rows": size, "accuracy": 100 * right / size, "loss": loss / size}


def under_attack(trained: Trained, radius: float) -> dict[str, list[float]]:
    """The rows of each mini-batch, and how many answers stay right."""
    how = Attack(radius, radius / 4, STEPS, relative=True, loss="margin")
    found = [attack(trained.model, trained.objective, [one], how) for one in trained.batches("attack", BLOCK)]
    return {"rows": [one.examples for one in found], "right": [one.perturbed_correct for one in found]}


def main(checkpoint: str, answers: str, splits: str, radii: str, precision: str) -> None:
    names, shares = splits.split(","), [float(radius) for radius in radii.split(",") if radius]
    trained = load(checkpoint, None, [*names, *(["attack"] if shares else [])])
    trained.model.eval()
    use_differentiable_layers(trained.model)  # fairseq's fused layer knows no autocast
    head_in_fp32(trained)
    device, is_bf16 = next(trained.model.parameters()).device, precision == "bf16"
    with fast_bf16_products(device, is_bf16), torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
        found = {name: predict(trained, name) for name in names}
        attacks = {f"{radius:g}": under_attack(trained, radius) for radius in shares}
    with atomic_open(Path(answers)) as file:
        np.savez_compressed(file, **{name: one for name, (one, _) in found.items()})
    print(json.dumps({"scores": {name: scores for name, (_, scores) in found.items()}, "attacks": attacks}))


if __name__ == "__main__":
    main(*sys.argv[1:])
