"""The loss of a trained model under the worst perturbation that projected gradient ascent finds.

FreeLB, eq. 5: max over ||delta|| <= epsilon of L(X + delta), approximated by many steps of eq. 2.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ContextManager

import torch
from torch import Tensor, nn

from fairseq_adv.criterions.ratio import USEFUL_RATIOS
from fairseq_adv.data.errors import DataError, as_data_error
from fairseq_adv.evaluation.attack_settings import LOSSES, Attack
from fairseq_adv.evaluation.inference import memory_error_named
from fairseq_adv.evaluation.trained import load
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import Perturbation, find_token_embedding, geometry
from fairseq_adv.perturbation.passes import frozen_parameters, use_differentiable_layers

logger = logging.getLogger(__name__)
__all__ = ["LOSSES", "Attack", "Robustness", "attack", "attack_checkpoint", "margin"]


@dataclass
class Robustness:
    """Sums over the examples seen; the properties are means.

    Attributes:
        examples: number of examples with a label; for a masked LM, number of masked positions.
        clean: summed loss at X, in nats.
        perturbed: summed loss at X + delta, in nats.
        clean_correct: number of correct predictions at X; NaN for a regression, and if a prediction is NaN.
        perturbed_correct: the same at X + delta.
    """

    examples: int = 0
    clean: float = 0.0
    perturbed: float = 0.0
    clean_correct: float = 0
    perturbed_correct: float = 0

    def means(self) -> dict[str, float]:
        """Mean losses in nats, and accuracies x 100, per example, if they are known."""
        n = max(self.examples, 1)
        losses = {"examples": self.examples, "loss": self.clean / n, "perturbed_loss": self.perturbed / n}
        if math.isnan(self.clean_correct) and math.isnan(self.perturbed_correct):
            return losses
        return {
            **losses,
            "accuracy": 100.0 * self.clean_correct / n,
            "perturbed_accuracy": 100.0 * self.perturbed_correct / n,
        }


def attack(
    model: nn.Module, objective: Objective, samples: Iterable[Sample], how: Attack,
    autocast: Callable[[], ContextManager[object]] = nullcontext,
) -> Robustness:  # fmt: skip
    """Attacks every mini-batch once and measures the loss before and after.

    The model is put into evaluation mode (no dropout), and its parameters are frozen during the attack.

    Args:
        samples: mini-batches with labels, on the model's device.
        autocast: makes a context for a forward pass, which sets its precision.

    Raises:
        DataError: ``how`` raises the margin, and the task has no classes.
    """
    ascended: Callable[[Tensor, Sample], Tensor] = objective.loss
    if how.loss == "margin":
        ascended = partial(margin, objective)
        try:
            objective.classes()
        except ValueError as error:
            task = type(objective.task).__name__
            raise DataError(f"--loss margin: {task} has no classes. Use --loss cross-entropy.") from error
    least, most = USEFUL_RATIOS
    if how.relative and not least <= how.epsilon <= most:
        logger.warning(
            f"{how.radius}: outside of the useful {least:g} to {most:g}. Less has no effect, more drowns out "
            "the text"
        )
    was_training = model.training
    model.eval()
    use_differentiable_layers(model)
    result = Robustness()
    try:
        with frozen_parameters(model.parameters()):
            for sample in samples:
                _attack_batch(model, objective, sample, how, ascended, result, autocast)
    finally:
        model.train(was_training)
    return result


def attack_checkpoint(
    path: str, how: Attack, data: str | None = None, split: str = "valid", batch_size: int = 32,
    cpu: bool = False, batches: int | None = None, precision: str = "fp32",
) -> dict[str, float]:  # fmt: skip
    """Attacks the examples of a split; returns mean losses (nats) and accuracies (x 100) before and after.

    For a masked LM the means are over the masked positions, and the attack's ball is per row.

    Args:
        data: data folder; ``None``: the one in the checkpoint.
        batches: attack only this many mini-batches, of all lengths; ``None``: all.
        precision: ``fp32`` or ``bf16``; the perturbation is fp32 in both.

    Raises:
        DataError: there is no such checkpoint, its task has no registered objective, or the split is missing
            or has no labels.
    """
    trained = load(path, data, [split], cpu, precision)
    samples = trained.batches(split, batch_size, batches, f"attacking {split}")
    fewer = f"fairseq-adv attack --batch-size takes fewer than {batch_size} rows at once"
    with memory_error_named(fewer), trained.fast_products():
        result = attack(trained.model, trained.objective, samples, how, trained.autocast)
    if not result.examples:
        raise DataError(
            f"{trained.task.cfg.data}: the split {split!r} has no labels, so there is nothing to attack"
        )
    return result.means()


def margin(objective: Objective, predictions: Tensor, sample: Sample) -> Tensor:
    """The highest log-probability of a wrong class minus that of the right one, summed: a scalar in fp32.
    Rows without a label don't count.

    The same as the difference of the logits (Carlini and Wagner, 2017, f_6 without its bound).
    """
    right = sample["target"].view(-1)
    known = right >= 0
    scores, right = objective.log_probabilities(predictions)[known], right[known].unsqueeze(1)
    others = scores.scatter(1, right, -math.inf).amax(dim=1)
    return (others - scores.gather(1, right).squeeze(1)).sum()


def _attack_batch(
    model: nn.Module, objective: Objective, sample: Sample, how: Attack,
    ascended: Callable[[Tensor, Sample], Tensor], result: Robustness,
    autocast: Callable[[], ContextManager[object]],
) -> None:  # fmt: skip
    def passed(measure: Callable[[Tensor, Sample], Tensor]) -> tuple[Tensor, Tensor]:
        with autocast():
            predictions = objective.predict(model, sample)
            return predictions, measure(predictions, sample)

    seeds = geometry.row_seeds(how.seed, 0, objective.row_ids(sample), objective.groups(sample))
    with as_data_error():
        embedding = find_token_embedding(model)
    perturbation = Perturbation(
        embedding,
        objective.padding_idx,
        partial(geometry.uniform_start, magnitude=how.start, seeds=seeds, groups=objective.groups(sample)),
        radius=how.epsilon,
        groups=objective.groups(sample),
        relative=how.relative,
    )
    with torch.no_grad():
        predictions, loss = passed(objective.loss)
        result.clean += loss.item()
        result.clean_correct += _correct(objective, predictions, sample)
    for _ in range(how.steps):
        with perturbation.applied():
            _, loss = passed(ascended)
        loss.backward()  # type: ignore[no-untyped-call]
        perturbation.ascend(how.step_size)
    with torch.no_grad(), perturbation.applied(differentiable=False):
        predictions, loss = passed(objective.loss)
        result.perturbed += loss.item()
        result.perturbed_correct += _correct(objective, predictions, sample)
    result.examples += objective.sample_size(sample)


def _correct(objective: Objective, predictions: Tensor, sample: Sample) -> float:
    counts: dict[str, Any] = objective.logging_output(predictions, sample, gather=False)
    is_known = "ncorrect" in counts and not counts.get("nnan")  # the arg max of NaNs is not a class
    return int(counts["ncorrect"]) if is_known else math.nan
