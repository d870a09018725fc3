"""Measures a checkpoint that fairseq-train wrote, with any criterion."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from fairseq import checkpoint_utils, utils
from fairseq.tasks.fairseq_task import FairseqTask
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
) -> dict[str, float]:
    """Attacks every example of a split; returns mean losses (nats) and accuracies (x 100) before and after.

    Args:
        path: the checkpoint.
        how: the attack.
        data: data folder; ``None``: the one in the checkpoint.
        split: a labelled split.
        batch_size: sentences in a mini-batch.
        cpu: don't use a GPU.

    Raises:
        ValueError: the checkpoint's task has no objective here, or the split is not there.
        FileNotFoundError: there is no such checkpoint.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such checkpoint")
    overrides = {} if data is None else {"data": data}
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=overrides)
    folder = cfg.task.data
    binarised = isinstance(task, SentencePredictionTask)  # the other tasks say themselves what is missing
    if binarised and not os.path.isfile(os.path.join(folder, "input0", f"{split}.idx")):
        raise ValueError(f"{folder}: has no split {split!r} (input0/{split}.idx); pass --data or --split")
    task.load_dataset(split)
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    model = models[0].to(device)
    objective = build_objective(objective_options(cfg), task)
    batches = _batches(task, model, split, batch_size, device)
    return attack(model, objective, batches, how).means()


def _batches(
    task: FairseqTask, model: torch.nn.Module, split: str, batch_size: int, device: torch.device
) -> Iterator[Sample]:
    iterator = task.get_batch_iterator(
        dataset=task.dataset(split),
        max_sentences=batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),  # type: ignore[operator]
    ).next_epoch_itr(shuffle=False)
    for sample in tqdm(iterator, desc=f"attacking {split}", unit="batch"):
        yield utils.move_to_cuda(sample) if device.type == "cuda" else sample
