"""The one place that fills in what the user of ``fairseq-adv train`` has not passed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.processes import loaders
from fairseq_adv.data.tokenizers import is_hugging_face
from fairseq_adv.data.train_options import TrainOptions, whole_number

from .check_options import check_choices
from .train_folders import check_dictionary, detect_task, hugging_face_args, model_args, task_of
from .user_dir import find_user_dir, load_user_dir

if TYPE_CHECKING:
    from fairseq_adv.criterions.method import Method
    from fairseq_adv.tasks.task_record import TaskRecord

_ADAM = {"--adam-betas": "(0.9, 0.98)", "--adam-eps": "1e-06", "--weight-decay": "0.01"}
# How scores begin.
_HIGHER = (
    "acc", "best_", "exact", "f1", "macro_f1", "mcc", "micro_f1", "pearson", "precision", "recall",
    "spearman",
)  # fmt: skip
_MULTIPLE = "--required-batch-size-multiple"
_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_PRECISIONS = (
    "--fp16", "--memory-efficient-fp16", "--bf16", "--memory-efficient-bf16", "--amp", "--tpu",
)  # fmt: skip
OTHER_STARTS = (
    "--restore-file", "--continue-once", "--reset-optimizer", "--reset-lr-scheduler", "--reset-meters",
    "--reset-dataloader",
)  # fmt: skip
# Workers on CPUs; fairseq's own choices need GPUs.
ON_CPUS = {"--distributed-backend": "gloo", "--ddp-backend": "legacy_ddp"}


def started_workers(environment: Mapping[str, str]) -> int:
    """How many workers torchrun started, or a script that sets the same variables; fairseq goes by them.
    0: none were."""
    return int(environment["WORLD_SIZE"]) if all(name in environment for name in _TORCHRUN) else 0


def filled_in(
    data: str, encoder: Path | None, words: Sequence[str], environment: Mapping[str, str] = os.environ
) -> TrainOptions:
    """The user's options, with those that they leave out filled in from the data and the encoder.

    Imports the ``--user-dir``.

    Args:
        encoder: a Hugging Face folder, or one that convert wrote; ``None``: the options define the model.
        words: the user's words.
        environment: gives the number of workers under torchrun.

    Raises:
        DataError: the data or the encoder can't be read, or a number that counts updates is wrong.
    """
    options, folders = TrainOptions(words), [Path(part) for part in data.split(":") if part] or [Path(data)]
    options.fill({"--user-dir": find_user_dir()})
    load_user_dir(options.value("--user-dir"))  # its tasks recognise their data
    options.fill({"--task": options.value("--task") or task_of(folders)})
    _fill_encoder(options, encoder, folders)
    options.fill({"--criterion": "freelb"})
    check_choices(options)
    from fairseq_adv.criterions import methods  # here, because --help doesn't need torch
    from fairseq_adv.tasks.task_record import record_named

    task, method = options.value("--task"), methods().get(options.value("--criterion"))
    record = record_named(task)
    if len(folders) > 1 and record is not None and not record.takes_several:
        raise DataError(f"{data}: {task} reads one folder. Several are for multiple choice and corpora")
    if method is not None:
        _fill_method(options, method)
    if record is not None:
        _fill_task(options, record, folders, encoder, method is not None)
    options.fill({"--optimizer": "torch_adamw"})
    if options.value("--optimizer") in ("adam", "torch_adamw"):
        options.fill(_ADAM)
    workers = started_workers(environment)
    if not workers:
        options.fill({"--distributed-world-size": "1"})  # fairseq's default is all GPUs: a larger batch
        workers = max(options.number("--distributed-world-size"), 1)
    if workers > 1 and options.value("--ddp-backend", "pytorch_ddp") in ("pytorch_ddp", "c10d"):
        # RoBERTa's LM head, which most tasks don't use, ended the second update.
        options.fill({"--find-unused-parameters": ""})
    if record is not None and record.draws_rows:
        options.fill({"--num-workers": str(loaders(workers, environment))})
    _fill_schedule(options, record, folders, workers, method)
    options.fill({"--clip-norm": "1.0"})
    options.fill({"--no-epoch-checkpoints": ""}, unless=("--save-interval", "--keep-last-epochs"))
    options.fill({"--save-dir": "checkpoints"})
    options.fill({"--log-file": os.path.join(options.value("--save-dir"), "train.log")})
    repeats = max(1, _updates_per_batch(options, method))
    options.fill({"--log-format": "json", "--log-interval": str(math.ceil(20 / repeats) * repeats)})
    return options


def _fill_encoder(options: TrainOptions, encoder: Path | None, folders: Sequence[Path]) -> None:
    if encoder is None:
        if not options.has("--arch"):
            raise DataError(
                "--encoder is missing: pass a Hugging Face folder, or one that convert wrote, or --arch"
            )
        return
    if is_hugging_face(encoder):
        options.fill(hugging_face_args(folders, encoder))
        return
    weights, sizes = encoder / "model.pt", encoder / "model_args.txt"
    if not weights.is_file():
        raise DataError(f"{weights}: no such file. Pass a Hugging Face folder, or one that convert wrote")
    if sizes.is_file():
        options.fill(TrainOptions(model_args(encoder)).given)
    elif not options.has("--arch"):
        raise DataError(
            f"{sizes}: no such file. For fairseq's own RoBERTa pass --arch roberta_base or roberta_large"
        )
    check_dictionary(folders[0], encoder)
    _check_start(options, weights)
    options.fill({"--finetune-from-model": str(weights)}, unless=OTHER_STARTS)


def _check_start(options: TrainOptions, weights: Path) -> None:
    last = Path(options.value("--save-dir", "checkpoints")) / "checkpoint_last.pt"
    names = options.has("--finetune-from-model", "--continue-once")
    if names or options.value("--restore-file", last.name) != last.name or last.is_file():
        return
    for option in filter(options.has, OTHER_STARTS):
        raise DataError(
            f"{option}: there is no {last} yet, so fairseq would begin with random weights, not with "
            f"{weights}. Leave the option out"
        )


def _fill_method(options: TrainOptions, method: type[Method]) -> None:
    sizes = TrainOptions(method.suggested_options.split()).given
    relative = [size for size in sizes if size.endswith("-relative")]
    lengths = () if options.has(*relative) else sizes.keys() - relative  # if one is, all are
    options.fill(sizes, unless=(*lengths, "--adv-norm-type"))
    options.fill(TrainOptions(method.further_options.split()).given)
    options.fill({"--precision": "auto"}, unless=_PRECISIONS)  # fairseq's own criterions don't have it


def _has_small_encoder(options: TrainOptions) -> bool:
    """Whether the encoder is narrower than a base one, as that of examples/evidence is."""
    if folder := options.value("--hf-model"):
        width = json_object(Path(folder) / "config.json").get("hidden_size")
    else:
        text = options.value("--encoder-embed-dim")
        width = int(text) if text.isdecimal() else None
    return type(width) is int and width < 768


def _fill_task(
    options: TrainOptions, record: TaskRecord, folders: Sequence[Path], encoder: Path | None, is_ours: bool
) -> None:
    if record.fill is not None:
        record.fill(options, folders, encoder, is_ours)
    if record.metric:
        options.fill({"--best-checkpoint-metric": record.metric})
    metric = options.value("--best-checkpoint-metric")
    is_the_tasks = bool(record.metric) and options.filled.get("--best-checkpoint-metric") == record.metric
    if is_the_tasks or metric.startswith(_HIGHER) or metric in ("em", "map"):
        options.fill({"--maximize-best-checkpoint-metric": ""})


def _fill_schedule(
    options: TrainOptions, record: TaskRecord | None, folders: Sequence[Path], workers: int,
    method: type[Method] | None,
) -> None:  # fmt: skip
    """Batch size and learning rate: warm-up over 6 % of the updates, then decay to 0 at the last."""
    size = 16 if record is None else record.batch_size
    options.fill({"--batch-size": str(size)}, unless=("--max-tokens",))
    options.fill({_MULTIPLE: "1"})
    options.fill({"--max-epoch": "3"}, unless=("--max-update",))
    if _updates_per_batch(options, method) > 1 and "--max-epoch" in options.filled:
        # So that it costs as much as the three epochs of another method.
        options.fill({"--max-update": str(_updates(options, record, folders, workers, None))})
    chosen = method.small_encoder_lr if method is not None and _has_small_encoder(options) else ""
    options.fill({"--lr": chosen or "5e-05"})
    if options.value("--lr-scheduler", "polynomial_decay") != "polynomial_decay":
        return
    if not options.has("--total-num-update"):
        options.fill({"--total-num-update": str(_updates(options, record, folders, workers, method))})
    warm_up = str(options.number("--total-num-update", least=1) * 6 // 100)
    options.fill({"--lr-scheduler": "polynomial_decay", "--warmup-updates": warm_up})


def with_repeats(groups: int, repeats: int, options: Mapping[str, str]) -> int:
    """The updates of so many groups of mini-batches, each repeated from ``--adv-start-update`` on."""
    start = options.get("--adv-start-update") or "0"
    plain = min(groups, int(start)) if start.isdecimal() else 0
    return plain + (groups - plain) * repeats


def _updates_per_batch(options: TrainOptions, method: type[Method] | None) -> int:
    return 1 if method is None else method.updates_per_batch({**options.filled, **options.given})


def _updates(
    options: TrainOptions, record: TaskRecord | None, folders: Sequence[Path], workers: int,
    method: type[Method] | None,
) -> int:  # fmt: skip
    most, epochs = options.number("--max-update", "0"), options.number("--max-epoch", "0")
    rows = None
    if epochs and not options.has("--max-tokens") and record is not None:
        if record.rows is not None:
            rows = record.rows(options, folders, options.value("--train-subset", "train"))
        if rows is None and not most:
            _check_fits(options.value("--task"), record, folders[0])
    if rows is None:
        if most:
            return most
        raise DataError(
            "the number of updates is not known before training (--max-tokens, --max-epoch 0, or rows that "
            "are made during training). Pass --max-update, or --total-num-update to set only the schedule"
        )
    parts = options.value("--update-freq", "1").strip("[]").split(",")
    update_freq = [whole_number("--update-freq", part.strip(), 1) for part in parts]
    size, multiple = (options.number(name, least=1) for name in ("--batch-size", _MULTIPLE))
    skips = options.has("--skip-remainder-batch")
    total = count_updates(rows, epochs, size, workers, update_freq, multiple, skips)
    if skips and not total:
        raise DataError(
            "--skip-remainder-batch: no epoch has enough rows for one update. Leave the option out, or pass "
            "a smaller --batch-size or --update-freq"
        )
    total = with_repeats(total, _updates_per_batch(options, method), {**options.filled, **options.given})
    return min(total, most) if most else total


def _check_fits(task: str, record: TaskRecord, folder: Path) -> None:
    """Raises DataError if a folder is recognised as another kind of data than that of the task."""
    from fairseq_adv.tasks.task_record import record_named

    detected = task
    with suppress(DataError):
        detected = detect_task(folder)
    other = record_named(detected)
    if record.data and other is not None and other.data != record.data:
        raise DataError(f"{folder}: not data of --task {task}, but of {detected}. Leave --task out")


def count_updates(
    rows: Sequence[int], epochs: int, batch_size: int, workers: int, update_freq: Sequence[int],
    multiple: int = 1, skips_rest: bool = False,
) -> int:  # fmt: skip
    """How many updates a training run makes.

    Args:
        rows: number of rows of each shard; epochs take the shards in turn.
        workers: number of workers, which share an epoch's mini-batches; the last round is filled up.
        update_freq: mini-batches per update and worker, one number per epoch; the last applies to all later
            ones.
        multiple: ``--required-batch-size-multiple``; the rest of an epoch is split if it is no multiple.
        skips_rest: ``--skip-remainder-batch``: without an epoch's last mini-batch, and then without the rest
            of the last update.
    """
    from fairseq_adv.training.restart import whole_multiple  # here, because --help doesn't need torch

    total, size = 0, whole_multiple(batch_size, multiple)
    for epoch in range(epochs):
        batches, rest = divmod(rows[epoch % len(rows)], size)
        batches += (rest >= multiple) + (rest % multiple > 0)
        rounds, of_update = math.ceil(batches / workers), update_freq[min(epoch, len(update_freq) - 1)]
        total += (rounds - 1) // of_update if skips_rest else math.ceil(rounds / of_update)
    return total
