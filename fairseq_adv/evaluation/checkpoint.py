"""Measures a checkpoint that fairseq-train wrote, with any criterion."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import torch
from fairseq import checkpoint_utils, utils
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from tqdm import tqdm

from fairseq_adv.evaluation.attack import Attack, attack
from fairseq_adv.objectives import build_objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.prediction.checkpoint import objective_options


def attack_checkpoint(
    path: str,
    how: Attack,
    data: str | None = None,
    split: str = "valid",
    batch_size: int = 32,
    cpu: bool = False,
    batches: int | None = None,
) -> dict[str, float]:
    """Attacks the examples of a split; returns mean losses (nats) and accuracies (x 100) before and after.

    For a masked LM the means are over the masked positions, and the attack's ball is one of a row.

    Args:
        path: the checkpoint.
        how: the attack.
        data: data folder; ``None``: the one in the checkpoint.
        split: a labelled split.
        batch_size: sentences in a mini-batch.
        cpu: don't use a GPU.
        batches: only so many mini-batches, the first in fairseq's order of validation; ``None``: all.

    Raises:
        ValueError: the checkpoint's task has no objective here, the split is not there, or ``batches`` < 1.
        FileNotFoundError: there is no such checkpoint.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such checkpoint")
    if batches is not None and batches < 1:
        raise ValueError(f"--batches {batches}: pass 1 or more")
    overrides = {} if data is None else {"data": data}
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=overrides)
    _check_split(task, cfg.task.data, split)
    task.load_dataset(split)
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    model = models[0].to(device)
    objective = build_objective(objective_options(cfg), task)
    samples = _batches(task, model, split, batch_size, device, batches)
    return attack(model, objective, samples, how).means()


def _check_split(task: FairseqTask, data: str, split: str) -> None:
    """The tasks of this project say themselves what is missing; fairseq's do not."""
    if isinstance(task, SentencePredictionTask):
        folder, index = data, os.path.join("input0", f"{split}.idx")
    elif isinstance(task, MaskedLMTask):
        folder, index = utils.split_paths(data)[0], f"{split}.idx"
    else:
        return
    if not os.path.isfile(os.path.join(folder, index)):
        raise ValueError(f"{folder}: has no split {split!r} ({index}); pass --data or --split")


def _batches(
    task: FairseqTask,
    model: torch.nn.Module,
    split: str,
    batch_size: int,
    device: torch.device,
    most: int | None,
) -> Iterator[Sample]:
    iterator = task.get_batch_iterator(
        dataset=task.dataset(split),
        max_sentences=batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),  # type: ignore[operator]
    ).next_epoch_itr(shuffle=False)
    total = len(iterator) if most is None else min(most, len(iterator))
    for sample in tqdm(islice(iterator, total), desc=f"attacking {split}", unit="batch", total=total):
        yield utils.move_to_cuda(sample) if device.type == "cuda" else sample
