#!/usr/bin/env python3
"""Where virtual adversarial training moves the embeddings of a trained encoder, by projection.

Makes one ascent step (K = 1) of --criterion alum_vat with each --vat-projection, from the same noise with the
same dropout masks. Does delta follow the gradient or the noise, how large is it, and how far do the
predictions move, compared with noise of the same norm, the start, and redrawn dropout? A second table shows
how much of delta survives half precision. Numbers are means over mini-batches of the training split;
divergences are symmetric KL in nats.

Example: benchmarks/vat_direction.py mrpc/checkpoint_best.pt pretraining/checkpoint_last.pt --batches 8
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
from collections import defaultdict
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
from fairseq import checkpoint_utils
from torch import Tensor, nn

from fairseq_adv.cli.number_types import count, not_negative, positive, whole
from fairseq_adv.cli.script import HelpFormatter, exit_status
from fairseq_adv.criterions.alum_vat import ALUMConfig, ALUMCriterion
from fairseq_adv.evaluation.trained import objective_options
from fairseq_adv.perturbation import DropoutReplay, Perturbation, find_token_embedding, float32_embedding
from fairseq_adv.perturbation.geometry import Groups, example_norm, gaussian_start, per_row, row_seeds
from fairseq_adv.perturbation.passes import use_differentiable_layers
from fairseq_adv.perturbation.steps import cosine, vat_step

# Each row's projection, and whether the divergence is a mean over the predictions (mt-dnn's code) or a sum
# (--criterion alum_vat). For smart and l2, which divide by the gradient's norm, this makes no difference.
ROWS = {
    "`clamp`": ("clamp", False),
    "`clamp`, mean divergence": ("clamp", True),
    "`unit`": ("unit", False),
    "`unit`, mean divergence": ("unit", True),
    "`smart`": ("smart", False),
    "`l2`": ("l2", False),
}
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
WAYS = {"embedding": "embedding", "input": "layer input", "kept": "layer input, sum in fp32"}
Means = dict[str, list[float]]


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="of any task with an objective")
    options.add_argument("--data", help="data folder (default: the one each was trained on)")
    options.add_argument("--batches", type=count, default=8, help="mini-batches of the training split")
    options.add_argument("--batch-size", type=count, default=16, help="sentences in a mini-batch")
    options.add_argument("--dropout", type=not_negative, default=0.1, help="dropout and attention dropout")
    options.add_argument("--step-size", type=positive, default=1e-3, help="eta")
    options.add_argument("--epsilon", type=positive, default=1e-5, help="epsilon")
    options.add_argument("--init-std", type=positive, default=1e-5, help="sigma")
    options.add_argument("--seed", type=whole, default=1, help="seed of batches, noise and dropout")
    return options


class Measured:
    """A checkpoint with its batches and the criterion whose steps are measured."""

    def __init__(self, path: str, options: argparse.Namespace) -> None:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{path}: no such checkpoint")
        changed = {"dropout": options.dropout, "attention_dropout": options.dropout}
        changed.update({} if options.data is None else {"data": options.data})
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=changed)
        given = {**vars(objective_options(cfg)), "seed": options.seed, "restore_file": "", "log_interval": 1}
        self.criterion = ALUMCriterion(ALUMConfig(**given), task)
        self.objective, self.model, self.options = self.criterion.objective, models[0], options
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        use_differentiable_layers(self.model)
        task.load_dataset("train")
        batches = task.get_batch_iterator(
            dataset=task.dataset("train"), max_sentences=options.batch_size, seed=options.seed
        ).next_epoch_itr(shuffle=True)
        self.samples = list(islice(batches, options.batches))

    def perturbation(self, sample: Any, model: nn.Module) -> Perturbation:
        """delta_0: noise with standard deviation sigma, seeded by the rows."""
        seeds = row_seeds(self.options.seed, 0, self.objective.row_ids(sample), self.objective.groups(sample))
        start = partial(gaussian_start, std=self.options.init_std, seeds=seeds)
        embedding = find_token_embedding(model)
        return Perturbation(
            embedding, self.objective.padding_idx, start, groups=self.objective.groups(sample)
        )

    def gradient(
        self, sample: Any, model: nn.Module, replay: DropoutReplay
    ) -> tuple[Tensor, Perturbation, Tensor]:
        """(clean predictions, the perturbation at delta_0, the gradient of the summed divergence there)."""
        moved = self.perturbation(sample, model)
        with torch.no_grad(), replay:
            clean = self.objective.predict(model, sample)
        with replay, moved.applied():
            predictions = self.objective.predict(model, sample)
        _, scale = self.criterion.backward_to_delta(clean, predictions, sample)
        return clean, moved, moved.gradient() / scale

    def step(self, row: str, start: Tensor, gradient: Tensor, sample: Any) -> Tensor:
        """delta_1 of a row of the table."""
        projection, mean = ROWS[row]
        scale = self.objective.sample_size(sample) if mean else 1
        groups, options = self.objective.groups(sample), self.options
        return vat_step(projection, options.step_size, options.epsilon, groups)(start, gradient / scale)

    def divergence(
        self, clean: Tensor, sample: Any, replay: DropoutReplay, moved: Perturbation | None = None
    ) -> float:
        """The divergence per example (masked LM: per masked position) at ``moved``, or at 0 without it."""
        with torch.no_grad(), replay:
            if moved is None:
                predictions = self.objective.predict(self.model, sample)
            else:
                with moved.applied(differentiable=False):
                    predictions = self.objective.predict(self.model, sample)
            total = self.objective.divergence(clean, predictions, sample, "symmetric-kl").item()
        return total / self.objective.sample_size(sample)


def measure_directions(measured: Measured) -> tuple[dict[str, Means], Means]:
    """(values by projection, values that are the same for all projections), one for each mini-batch."""
    rows: dict[str, Means] = {name: defaultdict(list) for name in ROWS}
    common: Means = defaultdict(list)
    objective, model = measured.objective, measured.model
    for sample in measured.samples:
        model.train()
        replay = DropoutReplay(torch.device("cpu"))
        clean, moved, gradient = measured.gradient(sample, model, replay)
        noise, groups = moved.value(), moved.groups
        assert moved.embedding_norm is not None  # for mypy: set together with delta
        common["embeddings"].append(moved.embedding_norm.mean().item())
        common["start"].append(measured.divergence(clean, sample, replay, moved))
        common["replayed"].append(measured.divergence(clean, sample, replay))
        for name, means in rows.items():
            delta = measured.step(name, noise, gradient, sample)
            _compare(means, delta, gradient, noise, groups)
            moved.move_to(delta)
            means["divergence"].append(measured.divergence(clean, sample, replay, moved))
            length = example_norm(delta, "l2", groups) / example_norm(noise, "l2", groups)
            moved.move_to(noise * per_row(length, groups))
            means["divergence_noise"].append(measured.divergence(clean, sample, replay, moved))
        fresh = DropoutReplay(torch.device("cpu"), enabled=False)
        common["redrawn"].append(measured.divergence(clean, sample, fresh))
        common["fp64"].append(_agreement_with_fp64(measured, sample, objective.groups(sample)))
    return rows, common


def _compare(means: Means, delta: Tensor, gradient: Tensor, noise: Tensor, groups: Groups | None) -> None:
    means["inf"].append(example_norm(delta, "linf", groups).mean().item())
    means["l2"].append(example_norm(delta, "l2", groups).mean().item())
    means["gradient"].append(cosine(delta, gradient, groups).mean().item())
    means["noise"].append(cosine(delta, noise, groups).mean().item())
    real = noise != 0  # leaves out padding (and any exact zero)
    means["sign"].append((delta.sign() == gradient.sign())[real].float().mean().item())


def _agreement_with_fp64(measured: Measured, sample: Any, groups: Groups | None) -> float:
    """Cosine of the gradients in fp32 and fp64, without dropout, whose masks depend on the dtype."""
    found = []
    for model in (measured.model, copy.deepcopy(measured.model).double()):
        model.eval()
        _, _, gradient = measured.gradient(sample, model, DropoutReplay(torch.device("cpu")))
        found.append(gradient)
    return cosine(found[0], found[1], groups).mean().item()


def measure_precision(measured: Measured, dtype: torch.dtype) -> dict[str, Means]:
    """By projection, the share of entries at real tokens that delta changes in half precision.

    ``embedding``: of the embeddings, if delta is added in half precision; ``input``: then of the first
    layer's input; ``kept``: of the first layer's input, if the sum stays in fp32 up to the layer norm, as in
    alum_vat.
    """
    found: dict[str, Means] = {name: defaultdict(list) for name in ROWS}
    model = copy.deepcopy(measured.model).eval().to(dtype)
    measured.model.eval()
    for sample in measured.samples:
        replay = DropoutReplay(torch.device("cpu"))
        _, start, gradient = measured.gradient(sample, measured.model, replay)
        for name, means in found.items():
            moved = measured.perturbation(sample, model)
            moved.move_to(measured.step(name, start.value(), gradient, sample))
            for way, share in _shares_changed(model, sample, moved).items():
                means[way].append(share)
    return found


def _shares_changed(model: nn.Module, sample: Any, moved: Perturbation) -> dict[str, float]:
    tokens = sample["net_input"]["src_tokens"]
    real = tokens.ne(moved.padding_idx)
    encoder: Any = next(m for m in model.modules() if getattr(m, "embed_tokens", None) is moved.embedding)

    def changed(call: Any, inside: Any) -> float:
        with torch.no_grad(), inside:
            clean = call(tokens)
            with moved.applied(differentiable=False):
                perturbed = call(tokens)
        return float((clean != perturbed)[real].float().mean())

    def layer_input(words: Tensor) -> Any:
        return encoder.forward_embedding(words)[0]

    return {
        "embedding": changed(encoder.embed_tokens, nullcontext()),
        "input": changed(layer_input, nullcontext()),
        "kept": changed(layer_input, float32_embedding(model, moved.embedding)),
    }


def print_tables(path: str, measured: Measured) -> None:
    """Prints both tables of one checkpoint in Markdown."""
    rows, common = measure_directions(measured)
    size = sum(measured.objective.sample_size(sample) for sample in measured.samples)
    print(f"\n{path}: {len(measured.samples)} mini-batches, {size} predictions\n")
    print(
        "| projection | cosine with gradient | with noise | same sign as gradient | largest entry | L2 norm "
        "| divergence at delta | at noise of that length |\n|---|---|---|---|---|---|---|---|"
    )
    for name, means in rows.items():
        m = {key: statistics.mean(values) for key, values in means.items()}
        print(
            f"| {name} | {m['gradient']:.3f} | {m['noise']:.3f} | {100 * m['sign']:.1f}% | {m['inf']:.2g} | "
            f"{m['l2']:.2g} | {m['divergence']:.2g} | {m['divergence_noise']:.2g} |"
        )
    m = {key: statistics.mean(values) for key, values in common.items()}
    print(
        f"\nL2 norm of the embeddings {m['embeddings']:.2g}. Divergence at delta_0 {m['start']:.2g}, at 0 "
        f"with the same masks {m['replayed']:.2g}, at 0 with redrawn dropout {m['redrawn']:.2g}. Cosine of "
        f"the gradient in fp32 with that in fp64: {m['fp64']:.3f}.\n"
    )
    print("| projection | " + " | ".join(f"{half}: {way}" for half in HALVES for way in WAYS.values()) + " |")
    print("|---|" + "---|" * len(HALVES) * len(WAYS))
    shares = [measure_precision(measured, dtype) for dtype in HALVES.values()]
    for name in ROWS:
        cells = [f"{100 * statistics.mean(share[name][way]):.1f}%" for share in shares for way in WAYS]
        print(f"| {name} | " + " | ".join(cells) + " |")


def measure(options: argparse.Namespace) -> None:
    for path in options.checkpoints:
        torch.manual_seed(options.seed)
        print_tables(path, Measured(path, options))


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: measure(options))


if __name__ == "__main__":
    sys.exit(main())
