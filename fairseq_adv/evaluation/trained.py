"""Measures a checkpoint written by fairseq-train, with any criterion."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ContextManager

import torch
from fairseq import checkpoint_utils, utils
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from torch import nn
from tqdm import tqdm

import fairseq_adv.registration  # noqa: F401 - what checkpoints name
from fairseq_adv.criterions.method_options import ObjectiveConfig
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.folder_check import check_labels
from fairseq_adv.evaluation.attack import Attack, attack
from fairseq_adv.evaluation.inference import autocast, check_precision, let_autocast
from fairseq_adv.objectives import Objective, build_objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv_compat import checkpoints


def attack_checkpoint(
    path: str,
    how: Attack,
    data: str | None = None,
    split: str = "valid",
    batch_size: int = 32,
    cpu: bool = False,
    batches: int | None = None,
    precision: str = "fp32",
) -> dict[str, float]:
    """Attacks the examples of a split; returns mean losses (nats) and accuracies (x 100) before and after.

    For a masked LM the means are over the masked positions, and the attack's ball is per row.

    Args:
        path: the checkpoint.
        how: the attack.
        data: data folder; ``None``: the one in the checkpoint.
        split: a labelled split.
        batch_size: examples per mini-batch.
        cpu: don't use a GPU.
        batches: attack only this many mini-batches, in fairseq's validation order; ``None``: all.
        precision: ``fp32`` or ``bf16``; the perturbation is fp32 in both.

    Raises:
        DataError: the checkpoint's task has no registered objective, the split is missing, or ``batches``
            is less than 1.
        FileNotFoundError: there is no such checkpoint.
    """
    if batches is not None and batches < 1:
        raise DataError(f"--batches {batches}: pass 1 or more")
    trained = load(path, data, [split], cpu, precision)
    samples = trained.batches(split, batch_size, batches, f"attacking {split}")
    return attack(trained.model, trained.objective, samples, how, trained.autocast).means()


@dataclass(frozen=True)
class Trained:
    """A checkpoint that can be measured.

    Attributes:
        model: on its device.
        objective: what it learned.
        task: with the splits loaded.
        updates: number of updates it was trained for.
        skips_too_long: whether rows that are too long for the model are left out, as in validation.
        cfg: the checkpoint's complete configuration.
        precision: ``fp32`` or ``bf16``, of :meth:`autocast`.
    """

    model: nn.Module
    objective: Objective
    task: FairseqTask
    updates: int
    skips_too_long: bool
    cfg: Any
    precision: str = "fp32"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def autocast(self) -> ContextManager[object]:
        """Forward passes in this context use the precision."""
        return autocast(self.device, self.precision)

    @property
    def longest(self) -> Any:
        """The maximum number of tokens in a row, or of each of its parts if it has several."""
        return utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())  # type: ignore[operator]

    def batches(
        self, split: str, batch_size: int, most: int | None = None, doing: str = ""
    ) -> Iterator[Sample]:
        """The mini-batches of a loaded split on the model's device, in fairseq's validation order.

        Args:
            split: its name.
            batch_size: examples per mini-batch.
            most: number of mini-batches; ``None``: all.
            doing: text of the progress bar.
        """
        iterator = self.task.get_batch_iterator(
            dataset=self.task.dataset(split),
            max_sentences=batch_size,
            max_positions=self.longest,
            ignore_invalid_inputs=self.skips_too_long,
        ).next_epoch_itr(shuffle=False)
        total = len(iterator) if most is None else min(most, len(iterator))
        on_gpu = self.device.type == "cuda"
        for sample in tqdm(islice(iterator, total), desc=doing, unit="batch", total=total):
            yield utils.move_to_cuda(sample) if on_gpu else sample


def read_checkpoint(path: Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The contents of a checkpoint, to build a model from; no code in it is run.

    Args:
        path: the file.
        overrides: options that replace those in it.

    Raises:
        DataError: the file is missing, is not a checkpoint of fairseq-train, or may run code.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such checkpoint")
    try:
        with checkpoints.to_build_from():
            state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)
        for name in ("task", "criterion", "model"):
            if state["cfg"][name] is None or not state["model"]:
                raise KeyError(name)
    except pickle.UnpicklingError as error:
        raise DataError(str(error)) from error  # the message names the file
    except (RuntimeError, EOFError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: not a checkpoint written by fairseq-train ({error})") from error
    # fairseq would use the "args" of an old checkpoint instead of the cfg, which callers change.
    state["args"] = None
    return state


@contextmanager
def reported_as_data_error(path: Path) -> Iterator[None]:
    """Raises DataError instead of what fairseq raises for user errors, and for a checkpoint that is none."""
    try:
        yield
    except DataError:
        raise
    except (RuntimeError, AssertionError, ValueError, LookupError, TypeError, AttributeError) as error:
        text = str(error).strip().replace("\n", " ")
        if "size mismatch" in text:
            text = (
                "its weights don't match the data's dictionary or number of labels. Prepare the data with "
                f"the encoder's own dict.txt. fairseq's message: {text[:300]}"
            )
        raise DataError(f"{path}: {text}") from error


def load(
    path: str, data: str | None, splits: Sequence[str], cpu: bool = False, precision: str = "fp32"
) -> Trained:
    """Loads a checkpoint written by fairseq-train, and splits of its data.

    Args:
        path: the checkpoint.
        data: data folder; ``None``: the one in the checkpoint.
        splits: to load.
        cpu: don't use a GPU.
        precision: to compute in, ``fp32`` or ``bf16``.

    Raises:
        DataError: it is not a checkpoint, its task has no registered objective, or a split is missing.
        FileNotFoundError: there is no such checkpoint.
    """
    check_precision(precision)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such checkpoint")
    overrides = {} if data is None else {"data": data}
    state = read_checkpoint(Path(path), overrides)
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates", 0)
    with reported_as_data_error(Path(path)):
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path], state=state)
        objective = build_objective(objective_options(cfg), task)
        objective.check_model(models[0])
    objective.check_files()
    for split in splits:
        _check_split(task, cfg.task.data, split)
        task.load_dataset(split)
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    skips_too_long = bool(cfg.dataset.skip_invalid_size_inputs_valid_test)
    let_autocast(models[0], precision)
    return Trained(models[0].to(device), objective, task, int(updates), skips_too_long, cfg, precision)


def objective_options(cfg: Any) -> SimpleNamespace:
    """The objective's options in a checkpoint; options that a stock criterion lacks have their defaults.

    Args:
        cfg: the checkpoint's complete configuration.
    """
    saved = cfg.criterion
    names = {field.name: field.default for field in fields(ObjectiveConfig) if not field.name.startswith("_")}
    found = {name: getattr(saved, name, None) for name in names}
    return SimpleNamespace(**{n: names[n] if value is None else value for n, value in found.items()})


def _check_split(task: FairseqTask, data: str, split: str) -> None:
    """Checks that the split exists. Only fairseq's own tasks need it: ours report what is missing."""
    if isinstance(task, SentencePredictionTask):
        folder, index = data, os.path.join("input0", f"{split}.idx")
        check_labels(Path(data), [split], bool(task.cfg.regression_target))
    elif isinstance(task, MaskedLMTask):
        folder, index = utils.split_paths(data)[0], f"{split}.idx"
    else:
        return
    if not os.path.isfile(os.path.join(folder, index)):
        raise DataError(f"{folder}: no split {split!r} ({index}). Choose another data folder or split")
