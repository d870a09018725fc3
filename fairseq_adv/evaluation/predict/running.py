"""A checkpoint as a model that scores examples: read safely, built, run in mini-batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor
from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.autocast import autocast, check_precision, let_autocast
from fairseq_adv.evaluation.predict.ensemble import FloatArray
from fairseq_adv.evaluation.predict.examples import Examples
from fairseq_adv.evaluation.trained import objective_options, reported_as_data_error
from fairseq_adv.objectives import Objective, build_objective
from fairseq_adv.objectives.base import Sample

# Most tokens per mini-batch, if neither rows nor tokens are given. On a CPU smaller batches stay in the
# caches: MiniLM-L6 takes 10 ms per movie review in mini-batches of 1024 tokens, and 14 ms in mini-batches of
# 16384.
MAX_TOKENS, MAX_TOKENS_OF_CPU = 16384, 1024


@dataclass(frozen=True)
class Running:
    """How a model is run.

    Attributes:
        batch_size: most examples per mini-batch; ``None``: as ``max_tokens`` allows.
        max_tokens: maximum number of tokens per mini-batch; ``None``: as ``batch_size`` allows.
        cpu: don't use a GPU.
        fp16: compute in half precision; needs a GPU.
        tokenizer_dir: instead of the one in the checkpoint.
        device_name: such as "cuda:1"; ``None``: a GPU if there is one and ``cpu`` is false.
        precision: ``fp32`` or ``bf16``; scores are fp32 numbers in both.

    Raises:
        DataError: a number below 1, two precisions or an unknown one, or the device does not exist.
    """

    batch_size: int | None = None
    max_tokens: int | None = None
    cpu: bool = False
    fp16: bool = False
    tokenizer_dir: Path | None = None
    device_name: str | None = None
    precision: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"--{name.replace('_', '-')} {value}: pass 1 or more")
        check_precision(self.precision)
        if self.fp16 and self.precision != "fp32":
            raise DataError(f"--fp16 with --precision {self.precision}: pass only one of them")
        if self.device_name is not None:
            try:
                torch.empty(0, device=self.device_name)
            except (RuntimeError, AssertionError) as error:
                reason = str(error).splitlines()[0]
                raise DataError(f"device {self.device_name!r}: can't be used ({reason})") from error
        if self.fp16 and self.device.type != "cuda":
            raise DataError("--fp16: needs a GPU, and none is used. Leave it out.")

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        if self.device_name is not None:
            return torch.device(self.device_name)
        return torch.device("cuda" if torch.cuda.is_available() and not self.cpu else "cpu")

    @property
    def half(self) -> str:
        """``fp16``, ``bf16``, or "" for fp32."""
        return "fp16" if self.fp16 else "" if self.precision == "fp32" else self.precision


def load_model(
    path: Path, state: dict[str, Any], task: FairseqTask, how: Running
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
    how: Running,
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
    how: Running, progress: bool = True,
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


def _batches(dataset: Any, names: Sequence[str], how: Running) -> list[Any]:
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
