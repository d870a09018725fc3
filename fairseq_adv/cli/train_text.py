"""The lines that ``fairseq-adv train`` prints about a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairseq_adv.data.run_metrics import unit

from .train_command import count_updates, with_repeats
from .user_dir import find_user_dir

if TYPE_CHECKING:
    from fairseq.trainer import Trainer

_MOST_CLASSES = 8  # named in the first line


def count_all_updates(trainer: Trainer, epoch_itr: Any) -> int | None:
    """How many updates the run makes in all; ``None`` if that is not known before."""
    limits, epochs = trainer.cfg.optimization, trainer.cfg.optimization.max_epoch or 0
    most = limits.max_update or None
    try:
        batches = len(epoch_itr)
    except TypeError:
        return most
    # Each epoch takes another shard, and this is the first's.
    if not epochs or trainer.task.has_sharded_data(trainer.cfg.dataset.train_subset):
        return most
    criterion = trainer.get_criterion()
    options = {f"--{name.replace('_', '-')}": value for name, value in _criterion_of(trainer).items()}
    repeats = criterion.updates_per_batch(options) if hasattr(criterion, "updates_per_batch") else 1
    skips, update_freq = limits.skip_remainder_batch, list(limits.update_freq)
    groups = count_updates([batches], epochs, 1, 1, update_freq, skips_rest=skips)
    total = with_repeats(groups, repeats, options)
    return min(total, most) if most else total


def describe(trainer: Trainer, encoder: str, total: int | None) -> str:
    """What is trained on what, in one line."""
    from fairseq_adv.evaluation.summaries import sizes

    cfg = trainer.cfg
    options = _criterion_of(trainer)
    method, size = options.get("_name", ""), sizes(options)
    split = trainer.task.datasets.get(cfg.dataset.train_subset)
    rows = "" if split is None else f": {len(split):,} rows{_classes(cfg.task)}"
    workers = trainer.data_parallel_world_size
    return "; ".join(
        [
            f"training with {method}{f' ({size})' if size else ''} on {cfg.task.data}{rows}",
            f"encoder {encoder}",
            f"{'' if total is None else f'{total:,} updates, '}learning rate {cfg.optimization.lr[0]:g}",
            f"{_device(trainer)}{f', {workers} workers' if workers > 1 else ''}, {_precision(trainer)}",
        ]
    )


def _criterion_of(trainer: Trainer) -> dict[str, str]:
    from fairseq_adv.training.changed_options import options_of

    return {name: str(value) for name, value in options_of(trainer.cfg)["criterion"].items()}


def _classes(task: Any) -> str:
    names = getattr(task, "class_names", None)
    if not names:
        return ", a number each" if getattr(task, "regression_target", False) else ""
    from fairseq_adv.tasks.task_record import TaskRecord, record_named

    more = [f"{len(names) - _MOST_CLASSES} more"] if len(names) > _MOST_CLASSES else []
    outputs = (record_named(task._name) or TaskRecord()).outputs
    return f", {len(names)} {outputs} ({', '.join([*names[:_MOST_CLASSES], *more])})"


def _device(trainer: Trainer) -> str:
    import torch

    device = trainer.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def _precision(trainer: Trainer) -> str:
    common = trainer.cfg.common
    if common.amp:
        return "bf16 autocast" if trainer.device.type == "cpu" else "autocast"
    return "fp16" if common.fp16 else "bf16" if common.bf16 else "fp32"


def next_command(cfg: Any, checkpoint: str, encoder: str) -> str:
    """What to do with the trained model."""
    from omegaconf import OmegaConf

    from fairseq_adv.tasks.task_record import answer_file, record_named

    record = record_named(cfg.task._name)
    if record is not None and record.next_command is not None:
        command = record.next_command(cfg, checkpoint, encoder)
    elif record is None or not record.predictor:  # a task of the user's own
        command = f"fairseq-adv validate {shlex.quote(checkpoint)}"
    else:
        command = answer_file(checkpoint)
    user_dir = OmegaConf.select(cfg, "common.user_dir")
    is_own = user_dir and os.path.realpath(user_dir) != os.path.realpath(find_user_dir())
    return f"{command} --user-dir {shlex.quote(user_dir)}" if is_own else command


def score_of(stats: Mapping[str, Any], metric: str) -> float:
    """The score that selects the best checkpoint; a loss in nats."""
    return float(stats[metric]) * unit(metric)


def shown_score(metric: str, score: float) -> str:
    return f"{metric} {score:.{4 if 'loss' in metric else 2}f}"


def shown_time(seconds: float) -> str:
    """Roughly: ``40 s``, ``12 min``, ``3 h 20 min``."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
