"""A checkpoint's scores for every example of a split."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.tasks.fairseq_task import FairseqTask
from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.evaluation.predict.ensemble import FloatArray, Scores
from fairseq_adv.evaluation.predict.examples import Examples, examples_of
from fairseq_adv.evaluation.predict.kinds import TASK_NAMES, PredictionTask
from fairseq_adv.evaluation.trained import objective_options
from fairseq_adv.objectives import Objective, build_objective

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    """How a model is run.

    Attributes:
        batch_size: most examples of a mini-batch; ``None``: as ``max_tokens`` allows.
        max_tokens: most tokens of a mini-batch; ``None``: as ``batch_size`` allows.
        cpu: don't use a GPU.
        fp16: half precision, on a GPU.
        tokenizer_dir: instead of the one in the checkpoint.
    """

    batch_size: int | None = None
    max_tokens: int | None = None
    cpu: bool = False
    fp16: bool = False
    tokenizer_dir: Path | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"--{name.replace('_', '-')} {value}: pass 1 or more")
        if self.fp16 and self.device.type != "cuda":
            raise DataError("--fp16: needs a GPU, and none is used. Leave it out.")

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return torch.device("cuda" if torch.cuda.is_available() and not self.cpu else "cpu")


def predict_checkpoint(
    path: Path, task: PredictionTask, data: Path, split: str, how: Running, kept: Path
) -> Scores:
    """Runs a checkpoint over a split, or reuses the scores of an earlier run.

    Args:
        path: a checkpoint that fairseq-train wrote, with a stock criterion or one of this project.
        task: what is to be answered.
        data: the data folder, or several joined by colons.
        split: fairseq's name of the split.
        how: batches, device, precision.
        kept: the folder for files of scores.

    Raises:
        DataError: the checkpoint or the data can't be used, or don't belong together.
    """
    state, digest = _load(path)
    cfg = state["cfg"]
    trained_on = str(getattr(cfg.task, "data", "") or "")
    _adapt(cfg, data, how)
    fairseq_task = _set_up(path, cfg, task)
    with _reported_as_data_error(path):
        examples = examples_of(fairseq_task, task, split, Path(trained_on))
    made_from = {"checkpoint": digest, "data": examples.digest, "fp16": how.fp16}
    file = kept / f"{task.name}-{split}-{digest[:12]}{'-fp16' if how.fp16 else ''}.npz"
    if file.is_file():
        scores = Scores.load(file)
        if dict(scores.made_from) == made_from:
            logger.info("%s: %s has its scores already", path, file)
            return scores
    objective, model = _model(path, state, cfg, fairseq_task, how)
    log_probs, raw = _run(path, objective, model, examples, how)
    scores = Scores(
        examples.kind, task.name, split, examples.ids, examples.labels, log_probs, raw, examples.gold,
        made_from, str(path),
    )  # fmt: skip
    scores.save(file)
    return scores


def _load(path: Path) -> tuple[dict[str, Any], str]:
    """The checkpoint's content and its SHA-256."""
    if not path.is_file():
        raise DataError(f"{path}: no such checkpoint")
    digest = sha256_of(path)
    try:
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        for name in ("task", "criterion", "model"):
            if state["cfg"][name] is None or not state["model"]:
                raise KeyError(name)
    except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: is not a checkpoint written by fairseq-train ({error})") from error
    # What an old checkpoint has as "args" fairseq would take instead of the cfg, which is changed below.
    state["args"] = None
    return state, digest


def _adapt(cfg: Any, data: Path, how: Running) -> None:
    """The configuration for this data.

    GLUE's sentences are cut where they are too long, so that every row gets an answer; the other tasks cut
    documents, and name a row whose question is too long.
    """
    overrides: dict[str, Any] = {
        "data": str(data),
        "no_shuffle": True,
        "sampling_weights": None,
        "shorten_method": "truncate",
        "shorten_data_split_list": "",
    }
    if how.tokenizer_dir is not None:
        overrides["tokenizer_dir"] = str(how.tokenizer_dir)
    overwrite_args_by_name(cfg, overrides)


def _set_up(path: Path, cfg: Any, task: PredictionTask) -> FairseqTask:
    data = Path(str(cfg.task.data))
    if cfg.task._name == "sentence_prediction":
        needed = [data / "input0" / "dict.txt"]
        needed += [] if getattr(cfg.task, "regression_target", False) else [data / "label" / "dict.txt"]
        for file in needed:
            if not file.is_file():
                raise DataError(f"{file}: no such file. Make the folder with fairseq-adv prepare glue.")
    wanted = [TASK_NAMES[one] for one in task.trained_with]
    if cfg.task._name not in wanted:
        raise DataError(
            f"{path}: was trained with --task {cfg.task._name}; {task.name} is answered by "
            f"{' or '.join(wanted)}. Choose another checkpoint, or another --task here."
        )
    with _reported_as_data_error(path):
        return tasks.setup_task(cfg.task)


def _model(
    path: Path, state: dict[str, Any], cfg: Any, task: FairseqTask, how: Running
) -> tuple[Objective, torch.nn.Module]:
    with _reported_as_data_error(path):
        models, _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task, state=state)
        objective = build_objective(objective_options(cfg), task)
        model: torch.nn.Module = models[0]
        objective.check_model(model)
    model.eval()
    return objective, (model.half() if how.fp16 else model).to(how.device)


@contextmanager
def _reported_as_data_error(path: Path) -> Iterator[None]:
    """fairseq reports a user's mistakes by assertions and RuntimeErrors."""
    try:
        yield
    except DataError:
        raise
    except (RuntimeError, AssertionError, ValueError, KeyError) as error:
        text = str(error).strip().replace("\n", " ")
        if "size mismatch" in text:
            text = (
                "its weights don't fit the data's dictionary or number of labels. Prepare the data with the "
                f"encoder's own dict.txt. fairseq says: {text[:300]}"
            )
        raise DataError(f"{path}: {text}") from error


def _run(
    path: Path, objective: Objective, model: torch.nn.Module, examples: Examples, how: Running
) -> tuple[FloatArray, FloatArray]:
    n, columns = len(examples.ids), examples.columns
    log_probs = np.full((n, columns), -np.inf, dtype=np.float32)
    raw = log_probs.copy()
    seen = np.zeros(n, dtype=np.int64)
    batches = _batches(examples, how)
    with torch.no_grad(), tqdm(total=n, desc=path.name, unit="row") as bar:
        for batch in batches:
            sample = examples.dataset.collater([examples.dataset[int(i)] for i in batch])
            try:
                sample = utils.move_to_cuda(sample) if how.device.type == "cuda" else sample
                predictions = objective.predict(model, sample)
            except torch.cuda.OutOfMemoryError as error:
                raise DataError("the GPU is out of memory. Pass a smaller --max-tokens.") from error
            rows = sample["id"].cpu().numpy()
            found = predictions.shape[1]
            log_probs[rows, :found] = objective.log_probabilities(predictions).cpu().numpy()
            raw[rows, :found] = predictions.float().cpu().numpy()
            seen[rows] += 1
            bar.update(len(rows))
    if (seen != 1).any():
        raise DataError(f"{path}: row {examples.ids[int((seen != 1).argmax())]} was not predicted once")
    bad = ~np.isfinite(np.where(examples.present, log_probs, 0)).all(axis=1)
    if bad.any():
        raise DataError(
            f"{path}: row {examples.ids[int(bad.argmax())]}: the model's scores are not finite."
            + (" Run without --fp16." if how.fp16 else " Did the training diverge?")
        )
    return log_probs, raw


def _batches(examples: Examples, how: Running) -> list[Any]:
    """Rows of similar length together, longest first: if memory runs out, it does so at once."""
    dataset = examples.dataset
    tokens = np.array([dataset.num_tokens(i) for i in range(len(dataset))])
    max_tokens = how.max_tokens if how.max_tokens or how.batch_size else 16384
    if max_tokens and tokens.max() > max_tokens:
        raise DataError(
            f"row {examples.ids[int(tokens.argmax())]} has {tokens.max()} tokens with all its choices, more "
            f"than --max-tokens {max_tokens}. Pass {tokens.max()} or more."
        )
    sizes = np.array([dataset.size(i) for i in range(len(dataset))])
    order = np.argsort(sizes, kind="stable")[::-1]
    return list(dataset.batch_by_size(order, max_tokens=max_tokens, max_sentences=how.batch_size))
