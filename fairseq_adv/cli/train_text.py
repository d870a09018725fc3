"""The lines that ``fairseq-adv train`` prints about a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.run_metrics import loss_nats
from fairseq_adv.data.spans.squad import find_squad
from fairseq_adv.data.tables.split_files import find_split_file
from fairseq_adv.data.tags.columns import ENDINGS

from .data_folder import kind_of
from .train_command import count_updates

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
    total = count_updates([batches], epochs, 1, 1, update_freq, skips_rest=skips) * repeats
    return min(total, most) if most else total


def describe(trainer: Trainer, encoder: str, total: int | None) -> str:
    """What is trained on what, in one line."""
    from fairseq_adv.evaluation.summaries import sizes

    cfg = trainer.cfg
    options = _criterion_of(trainer)
    method, found = options.get("_name", ""), sizes(options)
    split = trainer.task.datasets.get(cfg.dataset.train_subset)
    rows = "" if split is None else f": {len(split):,} rows{_classes(cfg.task)}"
    workers = trainer.data_parallel_world_size
    return "; ".join(
        [
            f"training with {method}{f' ({found})' if found else ''} on {cfg.task.data}{rows}",
            f"encoder {encoder}",
            f"{'' if total is None else f'{total:,} '}updates, learning rate {cfg.optimization.lr[0]:g}",
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
    more = [f"{len(names) - _MOST_CLASSES} more"] if len(names) > _MOST_CLASSES else []
    return f", {len(names)} classes ({', '.join([*names[:_MOST_CLASSES], *more])})"


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
    kind, path = kind_of(cfg.task._name), shlex.quote(checkpoint)
    if kind == "corpus":
        same = f"{'--encoder' if Path(encoder).is_dir() else '--arch'} {shlex.quote(encoder)}"
        return f"fairseq-adv train DATA {same} --finetune-from-model {path} --save-dir OUT"
    if kind == "questions":
        split = cfg.dataset.train_subset if cfg.dataset.disable_validation else cfg.dataset.valid_subset
        data = shlex.quote(str(cfg.task.data).split(":")[0])
        task = " --task wsc" if cfg.task._name == "wsc" else ""  # the answers have a form of their own
        return f"fairseq-adv predict {path}{task} --data {data} --split {split.split(',')[0]} --out OUT"
    if kind != "classes":
        file = _file_of_tokens(cfg) if kind == "tokens" else "FILE"
        return f"fairseq-adv predict {path} --input {file}"
    is_pair = (Path(str(cfg.task.data).split(":")[0]) / "input1").is_dir()
    text = r"printf 'a text\tits partner\n'" if is_pair else "echo 'a text'"
    return f"{text} | fairseq-adv predict {path} --stdin"


def _file_of_tokens(cfg: Any) -> str:
    """A file of tags or spans that predict reads: that of the first validation split, or of training."""
    folder, of = Path(cfg.task.data), cfg.dataset
    for split in (of.valid_subset.split(",")[0], of.train_subset):
        with suppress(DataError):
            is_squad = cfg.task._name == "span_qa"
            path = find_squad(folder, split) if is_squad else find_split_file(folder, split, ENDINGS)
            return shlex.quote(str(path))
    return "FILE"


def score_of(stats: Mapping[str, Any], metric: str) -> float:
    """The score that selects the best checkpoint; a loss in nats."""
    return loss_nats({"loss": float(stats["loss"])}) if metric == "loss" else float(stats[metric])


def shown_score(metric: str, score: float) -> str:
    return f"{metric} {score:.{4 if 'loss' in metric else 2}f}"


def shown_time(seconds: float) -> str:
    """Roughly: ``40 s``, ``12 min``, ``3 h 20 min``."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
