"""The loss of trained models under Gaussian noise on the word embeddings (Flooding-X, Figure 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from fairseq_adv.data.tables.table_text import number_cell, table_text
from fairseq_adv.evaluation.kept import file_for, measured_once, stamp
from fairseq_adv.evaluation.trained import Trained, load
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import Perturbation, find_token_embedding, geometry


@dataclass(frozen=True)
class Noise:
    """How the loss under noise is measured.

    Attributes:
        stds: standard deviations alpha, in the units of the embeddings, 0 (no noise) or more.
        split: a labelled split.
        data: data folder; ``None``: the one in the checkpoint.
        batch_size: examples per mini-batch; the noise does not depend on it.
        draws: number of draws of the noise for each alpha; the losses are averaged over them.
        seed: for the noise.
        cpu: don't use a GPU.

    Raises:
        ValueError: a number is out of range.
    """

    stds: Sequence[float]
    split: str = "valid"
    data: str | None = None
    batch_size: int = 32
    draws: int = 1
    seed: int = 1
    cpu: bool = False

    def __post_init__(self) -> None:
        if len(set(self.stds)) < 2 or not all(0 <= std < math.inf for std in self.stds):
            raise ValueError(
                f"--stds {','.join(f'{std:g}' for std in self.stds)}: pass two or more different standard "
                "deviations of 0 or more, such as 0,0.01,0.02"
            )
        for name in ("batch_size", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: pass 1 or more")


@dataclass(frozen=True)
class NoiseCurve:
    """Mean loss in nats at each standard deviation of the noise, for one checkpoint."""

    label: str
    losses: Sequence[tuple[float, float]]


@torch.no_grad()
def mean_loss(
    model: nn.Module, objective: Objective, samples: Iterable[Sample], std: float = 0.0, seed: int = 1,
    draw: int = 0,
) -> float:  # fmt: skip
    """Mean loss in nats without dropout, with N(0, std²) added to every entry of the real tokens' embeddings.

    The noise of each row has its own seed: it is the same in any mini-batch, and differs between values of
    ``std`` only in its scale.

    Args:
        model: a fairseq encoder model.
        objective: predicts and scores.
        samples: mini-batches with labels, on the model's device.
        std: of the noise, in the units of the embeddings; 0: no noise.
        seed: for the noise.
        draw: index of the draw for one seed.
    """
    was_training = model.training
    model.eval()
    total, size = 0.0, 0
    try:
        for sample in samples:
            noise: AbstractContextManager[None] = nullcontext()
            if std > 0:
                seeds = geometry.row_seeds(seed, draw, objective.row_ids(sample), objective.groups(sample))
                start = partial(geometry.gaussian_start, std=std, seeds=seeds)
                noise = Perturbation(
                    find_token_embedding(model), objective.padding_idx, start
                ).applied(differentiable=False)  # fmt: skip
            with noise:
                total += objective.loss(objective.predict(model, sample), sample).item()
            size += objective.sample_size(sample)
    finally:
        model.train(was_training)
    return total / max(size, 1)


def noise_curve(checkpoint: Path, label: str, how: Noise, kept: Path) -> NoiseCurve:
    """Measures a checkpoint; the result for each standard deviation is stored and reused.

    Args:
        checkpoint: written by fairseq-train.
        label: its name in the figure.
        how: the noise.
        kept: folder for results.

    Raises:
        ValueError: the checkpoint's task has no registered objective, or the split is missing.
        FileNotFoundError: there is no such checkpoint.
    """
    path = str(checkpoint)
    trained: list[Trained] = []  # loaded only if a value is missing

    def measure(std: float) -> dict[str, float]:
        if not trained:
            trained.append(load(path, how.data, [how.split], how.cpu))
        one = trained[0]
        losses = [
            mean_loss(
                one.model, one.objective,
                one.batches(how.split, how.batch_size, doing=f"{label}, std {std:g}"), std, how.seed, draw,
            )
            for draw in range(how.draws if std > 0 else 1)
        ]  # fmt: skip
        return {"loss": sum(losses) / len(losses)}

    losses = []
    for std in sorted(set(how.stds)):
        made_from = {
            "noise": std, "split": how.split, "data": how.data, "draws": how.draws, "seed": how.seed,
            "checkpoint": str(checkpoint.resolve()), **stamp(checkpoint),
        }  # fmt: skip
        values = measured_once(file_for(kept, made_from), made_from, partial(measure, std))
        losses.append((std, values["loss"]))
    return NoiseCurve(label, losses)


def noise_csv(curves: Sequence[NoiseCurve]) -> str:
    """A row for each standard deviation, a column of mean losses in nats for each checkpoint."""
    rows = [
        [f"{std:g}", *(number_cell(curve.losses[i][1]) for curve in curves)]
        for i, (std, _) in enumerate(curves[0].losses)
    ]
    return table_text([["noise_std", *(curve.label for curve in curves)], *rows])
