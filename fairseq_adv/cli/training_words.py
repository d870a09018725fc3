"""Builds the ``fairseq-train`` command of ``fairseq-adv train``."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.errors import DataError

from .model_args import model_args
from .training_data import AT_TOKENS, CHOICES, CLASSES, MASKED, classes_of, score_of, task_of, words_of
from .training_rows import rows_of_an_epoch, updates_in
from .user_dir import find_user_dir

if TYPE_CHECKING:
    from fairseq_adv.criterions.method import Method

BATCH, QUESTIONS = "16", "8"  # rows per mini-batch; questions per mini-batch, each with several candidates
_ADAM = {"--adam-betas": "(0.9, 0.98)", "--adam-eps": "1e-06", "--weight-decay": "0.01"}
_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_ALIASES = {"--max-sentences": "--batch-size"}
_PRECISIONS = (
    "--fp16", "--memory-efficient-fp16", "--bf16", "--memory-efficient-bf16", "--amp", "--tpu",
)  # fmt: skip
OTHER_STARTS = (
    "--restore-file", "--continue-once", "--reset-optimizer", "--reset-lr-scheduler", "--reset-meters",
    "--reset-dataloader",
)  # fmt: skip


class Words:
    """Options for ``fairseq-train``; the user's override ours.

    Args:
        own: the user's arguments.

    Attributes:
        given: the user's options by name; "" for a flag.
        filled: ours, in the same form.
    """

    def __init__(self, own: Sequence[str]) -> None:
        self.given: dict[str, str] = {}
        self.filled: dict[str, str] = {}
        option = ""
        for word in own:
            if word.startswith("--"):
                option, _, value = word.partition("=")
                option = _ALIASES.get(option, option)
                self.given[option] = value
            elif option:
                self.given[option] = word

    def has(self, *options: str) -> bool:
        """Whether the user gave one of these."""
        return any(option in self.given for option in options)

    def value(self, option: str, default: str = "") -> str:
        """The value of an option: the user's, else ours, else ``default``."""
        return self.given.get(option, self.filled.get(option, default))

    def number(self, option: str, default: str = "") -> int:
        """The value of an option that must be a whole number of 0 or more.

        Raises:
            DataError: it is not.
        """
        text = self.value(option, default)
        if not text.isdecimal():
            raise DataError(f"{option} {text}: pass a whole number")
        return int(text)

    def fill(self, options: Mapping[str, str], unless: Sequence[str] = ()) -> None:
        """Fills in the options that the user has not passed; none of them if one of ``unless`` was passed."""
        if not self.has(*unless):
            self.filled.update({name: value for name, value in options.items() if not self.has(name)})

    def filled_in(self) -> list[str]:
        """Our options as command-line arguments."""
        return [word for option, value in self.filled.items() for word in (option, value) if word]


def training_command(
    data: str, encoder: Path | None, own: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """The arguments of ``fairseq-train``: the data, our options, then the user's, which override ours.

    Args:
        data: folder, or several joined by colons.
        encoder: a folder written by ``fairseq-adv convert``; ``None``: the user's options define the model.
        own: the user's options.
        environment: gives the number of workers under torchrun.

    Raises:
        DataError: something is missing or wrong; the message names it and the fix.
    """
    words, folders = Words(own), [Path(part) for part in data.split(":") if part]
    words.fill({"--user-dir": find_user_dir()})
    words.fill({"--task": words.value("--task") or task_of(folders[0])})
    task = words.value("--task")
    _fill_encoder(words, encoder, folders[0] if task in CLASSES else None)
    words.fill({"--criterion": "freelb"})
    method = _method(words)
    if method is not None:
        _fill_method(words, method)
    _fill_task(words, task, folders, encoder, method is not None)
    words.fill({"--optimizer": "torch_adamw"})
    if words.value("--optimizer") in ("adam", "torch_adamw"):
        words.fill(_ADAM)
    if all(name in environment for name in _TORCHRUN):
        workers = int(environment["WORLD_SIZE"])
    else:
        words.fill({"--distributed-world-size": "1"})  # fairseq's default is all GPUs, and so a larger batch
        workers = max(words.number("--distributed-world-size"), 1)
    _fill_schedule(words, task, folders, workers, method)
    words.fill({"--clip-norm": "1.0"})
    words.fill({"--no-epoch-checkpoints": ""}, unless=("--save-interval", "--keep-last-epochs"))
    words.fill({"--save-dir": "checkpoints"})
    words.fill({"--log-file": os.path.join(words.value("--save-dir"), "train.log")})
    words.fill({"--log-format": "json", "--log-interval": "20"})
    return [data, *words.filled_in(), *own]


def _fill_encoder(words: Words, encoder: Path | None, data: Path | None) -> None:
    if encoder is None:
        if not words.has("--arch"):
            raise DataError("--encoder is missing: pass a folder written by fairseq-adv convert, or --arch")
        return
    weights, sizes, dictionary = (encoder / name for name in ("model.pt", "model_args.txt", "dict.txt"))
    if not weights.is_file():
        raise DataError(f"{weights}: no such file. Pass a folder written by fairseq-adv convert")
    if sizes.is_file():
        words.fill(Words(model_args(encoder)).given)
    elif not words.has("--arch"):
        raise DataError(
            f"{sizes}: no such file. For fairseq's own RoBERTa pass --arch roberta_base or roberta_large"
        )
    mine = None if data is None else data / "input0" / "dict.txt"
    if mine and mine.is_file() and dictionary.is_file() and words_of(mine) != words_of(dictionary):
        raise DataError(
            f"{data} was prepared with a different dictionary than {dictionary}: the word ids would be "
            f"wrong. Prepare it again with --encoder {encoder}"
        )
    words.fill({"--finetune-from-model": str(weights)}, unless=OTHER_STARTS)


def _method(words: Words) -> type[Method] | None:
    """The class of ``--criterion``, ours or of the user's ``--user-dir``; ``None`` if it is no method."""
    from fairseq.utils import import_user_module  # here, because --help doesn't need torch

    from fairseq_adv.criterions import methods

    folder = words.value("--user-dir")
    if os.path.realpath(folder) != os.path.realpath(find_user_dir()):
        try:
            import_user_module(Namespace(user_dir=folder))
        except FileNotFoundError as error:
            told = f"--user-dir {folder}: no such folder. Pass the folder of your methods, or leave it out"
            raise DataError(told) from error
    return methods().get(words.value("--criterion"))


def _fill_method(words: Words, method: type[Method]) -> None:
    sizes = Words(method.train_sizes.split()).given
    words.fill(sizes, unless=(*sizes, "--adv-norm-type"))
    words.fill(Words(method.train_options.split()).given)
    words.fill({"--precision": "auto"}, unless=_PRECISIONS)  # fairseq's own criterions don't have it


def _fill_task(words: Words, task: str, folders: Sequence[Path], encoder: Path | None, is_ours: bool) -> None:
    score = ""
    if task in CLASSES:
        score = _fill_classes(words, folders[0], is_ours)
    elif task in (*CHOICES, *AT_TOKENS):
        score, kept = "f1" if task in AT_TOKENS else "accuracy", folders[0] / "tokenizer"
        if encoder is not None or kept.is_dir():
            words.fill({"--tokenizer-dir": str(encoder or kept)})
    elif task in MASKED:
        longest = words.value("--max-positions", "512")
        words.fill({"--tokens-per-sample": str(min(512, int(longest))) if longest.isdecimal() else "512"})
    best = {"--best-checkpoint-metric": score, "--maximize-best-checkpoint-metric": ""}
    if score:
        words.fill(best, unless=tuple(best))


def _fill_classes(words: Words, folder: Path, is_ours: bool) -> str:
    """Returns the metric that selects the best checkpoint; "" for the loss."""
    classes = None if words.has("--regression-target") else classes_of(folder)
    words.fill({"--num-classes": str(classes or 1), "--init-token": "0", "--separator-token": "2"})
    words.fill({"--shorten-method": "truncate"})
    splits = [name for name in ("valid", "valid1") if (folder / "input0" / f"{name}.idx").is_file()]
    words.fill({"--valid-subset": ",".join(splits)} if splits else {"--disable-validation": ""})
    if classes is None:
        words.fill({"--regression-target": ""})
        return "pearson" if is_ours else ""
    return score_of(folder) if is_ours else "accuracy"


def _fill_schedule(
    words: Words, task: str, folders: Sequence[Path], workers: int, method: type[Method] | None
) -> None:
    """Batch size and learning rate: warm-up over 6 % of the updates, then decay to 0 at the last."""
    words.fill({"--batch-size": QUESTIONS if task in CHOICES else BATCH}, unless=("--max-tokens",))
    words.fill({"--required-batch-size-multiple": "1"})
    words.fill({"--max-epoch": "3"}, unless=("--max-update",))
    words.fill({"--lr": "5e-05"})
    if words.value("--lr-scheduler", "polynomial_decay") != "polynomial_decay":
        return
    if not words.has("--total-num-update"):
        words.fill({"--total-num-update": str(_updates(words, task, folders, workers, method))})
    warm_up = str(words.number("--total-num-update") * 6 // 100)
    words.fill({"--lr-scheduler": "polynomial_decay", "--warmup-updates": warm_up})


def _updates(
    words: Words, task: str, folders: Sequence[Path], workers: int, method: type[Method] | None
) -> int:
    most, epochs = words.number("--max-update", "0"), words.number("--max-epoch", "0")
    rows = None
    if epochs and not words.has("--max-tokens"):
        rows = rows_of_an_epoch(words, task, folders)
    if rows is None:
        if most:
            return most
        raise DataError(
            "the number of updates is not known before training (--max-tokens, --max-epoch 0, or rows that "
            "are made during training). Pass --max-update, or --total-num-update to set only the schedule"
        )
    update_freq = [int(part) for part in words.value("--update-freq", "1").strip("[]").split(",")]
    total = updates_in(rows, epochs, words.number("--batch-size"), workers, update_freq)
    if method is not None:
        total *= method.updates_per_batch({**words.filled, **words.given})
    return min(total, most) if most else total
