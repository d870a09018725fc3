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
from fairseq_adv.data.tokenizers import FOLDER, HF_VOCABULARY, is_hugging_face

from .check_options import check_choices
from .data_folder import count_classes, detect_task, find_metric, kind_of, rows_of_an_epoch, task_of
from .encoder_folder import check_dictionary, hugging_face_args, model_args
from .train_options import TrainOptions, whole_number
from .user_dir import find_user_dir, load_user_dir

if TYPE_CHECKING:
    from fairseq_adv.criterions.method import Method

_ADAM = {"--adam-betas": "(0.9, 0.98)", "--adam-eps": "1e-06", "--weight-decay": "0.01"}
# How scores begin.
_HIGHER = ("acc", "best_", "exact", "f1", "mcc", "pearson", "precision", "recall", "spearman")
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


def filled_in(
    data: str, encoder: Path | None, own: Sequence[str], environment: Mapping[str, str] = os.environ
) -> TrainOptions:
    """The user's options, with those that they leave out filled in from the data and the encoder.

    Imports the ``--user-dir``.

    Args:
        encoder: a Hugging Face folder, or one that convert wrote; ``None``: the options define the model.
        own: the user's words.
        environment: gives the number of workers under torchrun.

    Raises:
        DataError: the data or the encoder can't be read, or a number that counts updates is wrong.
    """
    options, folders = TrainOptions(own), [Path(part) for part in data.split(":") if part]
    if not folders:
        raise DataError("DATA is empty: pass a data folder")
    options.fill({"--user-dir": find_user_dir()})
    options.fill({"--task": options.value("--task") or task_of(folders)})
    _fill_encoder(options, encoder, folders)
    options.fill({"--criterion": "freelb"})
    load_user_dir(options.value("--user-dir"))
    check_choices(options)
    from fairseq_adv.criterions import methods  # here, because --help doesn't need torch

    task, method = options.value("--task"), methods().get(options.value("--criterion"))
    kind = kind_of(task)
    if len(folders) > 1 and (kind in ("classes", "tokens") or task == "wsc"):
        raise DataError(f"{data}: {task} reads one folder. Several are for multiple choice and corpora")
    if method is not None:
        _fill_method(options, method)
    _fill_task(options, kind, folders, encoder, method is not None)
    options.fill({"--optimizer": "torch_adamw"})
    if options.value("--optimizer") in ("adam", "torch_adamw"):
        options.fill(_ADAM)
    if all(name in environment for name in _TORCHRUN):
        workers = int(environment["WORLD_SIZE"])
    else:
        options.fill({"--distributed-world-size": "1"})  # fairseq's default is all GPUs: a larger batch
        workers = max(options.number("--distributed-world-size"), 1)
    if workers > 1 and options.value("--ddp-backend", "pytorch_ddp") in ("pytorch_ddp", "c10d"):
        # RoBERTa's LM head, which most tasks don't use, ended the second update.
        options.fill({"--find-unused-parameters": ""})
    _fill_schedule(options, kind, folders, workers, method)
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
        read = TrainOptions(model_args(encoder)).given
        given, longest = options.value("--max-positions"), read.get("--max-positions")
        is_its_own = not options.has("--finetune-from-model", *OTHER_STARTS)
        if given and longest and given != longest and is_its_own:
            raise DataError(
                f"--max-positions {given}: {encoder} reads {longest} tokens. Leave the option out"
            )
        options.fill(read)
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
    given = [size for size in sizes if not size.endswith("-relative")]
    options.fill(sizes, unless=(*given, "--adv-norm-type"))
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
    options: TrainOptions, kind: str, folders: Sequence[Path], encoder: Path | None, is_ours: bool
) -> None:
    score = ""
    if kind == "classes":
        score = _fill_classes(options, folders[0], is_ours)
    elif kind in ("questions", "tokens"):
        score, saved = "accuracy" if kind == "questions" else "f1", folders[0] / "tokenizer"
        if encoder is not None or saved.is_dir():
            options.fill({"--tokenizer-dir": str(encoder or saved)})
    elif kind == "corpus":
        longest = options.value("--max-positions", "512")
        options.fill({"--tokens-per-sample": str(min(512, int(longest))) if longest.isdecimal() else "512"})
        options.fill({"--skip-invalid-size-inputs-valid-test": ""})  # as of the rows to train on
        if not any((folders[0] / name).is_file() for name in ("valid.idx", "valid")):  # or raw text
            options.fill(_no_validation(options), unless=("--valid-subset",))
    if score:
        options.fill({"--best-checkpoint-metric": score})
    metric = options.value("--best-checkpoint-metric")
    if kind and (metric.startswith(_HIGHER) or metric == "em"):
        options.fill({"--maximize-best-checkpoint-metric": ""})


def _fill_classes(options: TrainOptions, folder: Path, is_ours: bool) -> str:
    """Returns the metric that selects the best checkpoint; "" for the loss."""
    classes = None if options.has("--regression-target") else count_classes(folder)
    options.fill({"--num-classes": str(classes or 1), "--init-token": "0"})
    vocabulary = folder / FOLDER / HF_VOCABULARY
    if not vocabulary.is_file() or json_object(vocabulary).get("separators") != 1:
        options.fill({"--separator-token": "2"})  # a second </s> between two texts, as in RoBERTa
    options.fill({"--shorten-method": "truncate"})
    names = ("valid",) if options.has("--combine-valid-subsets") else ("valid", "valid1")
    splits = [name for name in names if (folder / "input0" / f"{name}.idx").is_file()]
    found = {"--valid-subset": ",".join(splits)} if splits else _no_validation(options)
    options.fill(found, unless=("--valid-subset",))
    if classes is None:
        options.fill({"--regression-target": ""})
        return "pearson" if is_ours else ""
    return find_metric(folder) if is_ours else "accuracy"


def _no_validation(options: TrainOptions) -> dict[str, str]:
    # fairseq loads the split to validate on in any case.
    return {"--disable-validation": "", "--valid-subset": options.value("--train-subset", "train")}


def _fill_schedule(
    options: TrainOptions, kind: str, folders: Sequence[Path], workers: int, method: type[Method] | None
) -> None:
    """Batch size and learning rate: warm-up over 6 % of the updates, then decay to 0 at the last."""
    options.fill({"--batch-size": "8" if kind == "questions" else "16"}, unless=("--max-tokens",))
    options.fill({_MULTIPLE: "1"})
    options.fill({"--max-epoch": "3"}, unless=("--max-update",))
    if _updates_per_batch(options, method) > 1 and "--max-epoch" in options.filled:
        # So that it costs as much as the three epochs of another method.
        options.fill({"--max-update": str(_updates(options, kind, folders, workers, None))})
    chosen = method.small_encoder_lr if method is not None and _has_small_encoder(options) else ""
    options.fill({"--lr": chosen or "5e-05"})
    if options.value("--lr-scheduler", "polynomial_decay") != "polynomial_decay":
        return
    if not options.has("--total-num-update"):
        options.fill({"--total-num-update": str(_updates(options, kind, folders, workers, method))})
    warm_up = str(options.number("--total-num-update", least=1) * 6 // 100)
    options.fill({"--lr-scheduler": "polynomial_decay", "--warmup-updates": warm_up})


def _updates_per_batch(options: TrainOptions, method: type[Method] | None) -> int:
    return 1 if method is None else method.updates_per_batch({**options.filled, **options.given})


def _updates(
    options: TrainOptions, kind: str, folders: Sequence[Path], workers: int, method: type[Method] | None
) -> int:
    most, epochs = options.number("--max-update", "0"), options.number("--max-epoch", "0")
    rows = None
    if epochs and not options.has("--max-tokens"):
        rows = rows_of_an_epoch(options, kind, folders)
        if rows is None and not most:
            _check_fits(options.value("--task"), kind, folders[0])
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
    total *= _updates_per_batch(options, method)
    return min(total, most) if most else total


def _check_fits(task: str, kind: str, folder: Path) -> None:
    """Raises DataError if a folder is recognised as the data of another kind of task."""
    detected = task
    with suppress(DataError):
        detected = detect_task(folder)
    if kind and kind_of(detected) != kind:
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
