"""A checkpoint as a model that scores examples: read safely, built, run in mini-batches of similar length."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor
from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.inference import InferenceConfig, autocast, let_autocast
from fairseq_adv.evaluation.predict.ensemble import FloatArray
from fairseq_adv.evaluation.predict.examples import Examples
from fairseq_adv.evaluation.trained import objective_options, reported_as_data_error
from fairseq_adv.objectives import Objective, build_objective
from fairseq_adv.objectives.base import Sample

# Most tokens per mini-batch, if neither rows nor tokens are given. On a CPU smaller batches stay in the
# caches: MiniLM-L6 takes 10 ms per movie review in mini-batches of 1024 tokens, and 14 ms in mini-batches of
# 16384.
MAX_TOKENS, MAX_TOKENS_OF_CPU = 16384, 1024


def load_model(
    path: Path, state: dict[str, Any], task: FairseqTask, how: InferenceConfig
) -> tuple[Objective, torch.nn.Module]:
    """The model in a checkpoint, in evaluation mode on its device, and its objective.

    Args:
        path: for messages.
        state: from :func:`fairseq_adv.evaluation.trained.read_checkpoint`.
        task: with the dictionaries that belong to the model.
        how: device and precision.

    Raises:
        DataError: the model doesn't fit the task.
    """
    with reported_as_data_error(path):
        models, _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task, state=state)
        objective = build_objective(objective_options(state["cfg"]), task)
        model: torch.nn.Module = models[0]
        objective.check_model(model)
    model.eval()
    let_autocast(model, how.precision)
    return objective, (model.half() if how.fp16 else model).to(how.device)


def run_model(
    path: Path,
    objective: Objective,
    model: torch.nn.Module,
    examples: Examples,
    how: InferenceConfig,
    progress: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """The scores of all examples: log-probabilities (n, C) fp32, and the model's output (n, C) fp32.

    Args:
        path: for messages.
        objective: predicts.
        model: from :func:`load_model`.
        examples: at least one.
        how: sizes of the mini-batches.
        progress: show a progress bar.

    Raises:
        DataError: an example has more tokens than a mini-batch, memory runs out, or a score is not finite.
    """
    n, columns = len(examples.ids), examples.columns
    log_probs = np.full((n, columns), -np.inf, dtype=np.float32)
    raw = log_probs.copy()
    seen = np.zeros(n, dtype=np.int64)
    for sample, predictions in predicted(
        path, objective, model, examples.dataset, examples.ids.tolist(), how, progress
    ):
        rows = sample["id"].cpu().numpy()
        found = predictions.shape[1]
        log_probs[rows, :found] = objective.log_probabilities(predictions).cpu().numpy()
        raw[rows, :found] = predictions.float().cpu().numpy()
        seen[rows] += 1
    if (seen != 1).any():
        raise DataError(f"{path}: row {examples.ids[int((seen != 1).argmax())]} was not predicted once")
    bad = ~np.isfinite(np.where(examples.present, log_probs, 0)).all(axis=1)
    if bad.any():
        raise DataError(
            f"{path}: row {examples.ids[int(bad.argmax())]}: the model's scores are not finite."
            + (" Run without --fp16." if how.fp16 else " Did the training diverge?")
        )
    return log_probs, raw


def predicted(
    path: Path, objective: Objective, model: torch.nn.Module, dataset: Any, names: Sequence[str],
    how: InferenceConfig, progress: bool = True,
) -> Iterator[tuple[Sample, Tensor]]:  # fmt: skip
    """The mini-batches of a data set, and the model's predictions for each.

    Args:
        path: for messages.
        objective: predicts.
        model: from :func:`load_model`.
        dataset: at least one example.
        names: of its examples, for messages.
        how: sizes of the mini-batches.
        progress: show a progress bar.

    Raises:
        DataError: an example has more tokens than a mini-batch, or memory runs out.
    """
    with torch.no_grad(), tqdm(total=len(names), desc=path.name, unit="row", disable=not progress) as bar:
        for batch in _batches(dataset, names, how):
            sample = dataset.collater([dataset[int(i)] for i in batch])
            try:
                sample = utils.move_to_cuda(sample, how.device) if how.device.type == "cuda" else sample
                with autocast(how.device, how.precision):
                    predictions = objective.predict(model, sample)
            except torch.cuda.OutOfMemoryError as error:
                raise DataError("the GPU is out of memory. Pass a smaller --max-tokens.") from error
            yield sample, predictions.float()
            bar.update(len(batch))


def _batches(dataset: Any, names: Sequence[str], how: InferenceConfig) -> list[Any]:
    """Groups rows of similar length, longest first: if memory runs out, it does so at once."""
    tokens = np.array([dataset.num_tokens(i) for i in range(len(dataset))])
    max_tokens = how.max_tokens
    if not (max_tokens or how.batch_size):
        max_tokens = max(MAX_TOKENS_OF_CPU, int(tokens.max())) if how.device.type == "cpu" else MAX_TOKENS
    if max_tokens and tokens.max() > max_tokens:
        raise DataError(
            f"row {names[int(tokens.argmax())]} has {tokens.max()} tokens with all its choices, more "
            f"than --max-tokens {max_tokens}. Pass {tokens.max()} or more."
        )
    sizes = np.array([dataset.size(i) for i in range(len(dataset))])
    order = np.argsort(sizes, kind="stable")[::-1]
    return list(dataset.batch_by_size(order, max_tokens=max_tokens, max_sentences=how.batch_size))


def __getattr__(name: str) -> Any:
    """The name of version 0.2 of the configuration; it goes in 0.4."""
    if name != "Running":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "Running is fairseq_adv.evaluation.inference.InferenceConfig now, and will be gone in version 0.4",
        DeprecationWarning,
        2,
    )
    return InferenceConfig
