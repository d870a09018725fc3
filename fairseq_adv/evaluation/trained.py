"""Opens checkpoints written by fairseq-train, with any criterion, and runs their models."""

from __future__ import annotations

import pickle
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ContextManager

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn
from tqdm import tqdm

import fairseq_adv.registration  # noqa: F401 - what checkpoints name
from fairseq_adv.criterions.method_options import ObjectiveConfig
from fairseq_adv.data.choices.ranking_dataset import RankingDataset
from fairseq_adv.data.class_rows import order_classes, rows_for_data
from fairseq_adv.data.errors import DataError, no_checkpoint
from fairseq_adv.data.temperature import read_thresholds
from fairseq_adv.data.text.labelled_folder import check_class_order, class_names, known_labels
from fairseq_adv.data.text.long_texts import HEAD_AND_END
from fairseq_adv.data.text.rows_dataset import check_lengths
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.tokenizers.saved_tokenizer import check_same_words
from fairseq_adv.evaluation.inference import InferenceConfig, memory_error_named
from fairseq_adv.fairseq_patches.mixed_precision import fast_bf16_products
from fairseq_adv.hub.classifier_folder import checkpoint_of
from fairseq_adv.objectives import Objective, build_objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation.passes import use_differentiable_layers
from fairseq_adv.tasks.task_record import record_named, record_of
from fairseq_adv_compat import checkpoints

# Most tokens per mini-batch, if neither rows nor tokens are given. On a CPU smaller batches stay in the
# caches: MiniLM-L6 takes 10 ms per movie review in mini-batches of 1024 tokens, and 14 ms in mini-batches of
# 16384.
MAX_TOKENS, MAX_TOKENS_OF_CPU = 16384, 1024
# What fairseq raises for a user's mistake, and for a file that is no checkpoint.
_OF_FAIRSEQ = (
    RuntimeError, AssertionError, ValueError, LookupError, TypeError, AttributeError, EOFError,
    pickle.UnpicklingError,
)  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """An opened checkpoint."""

    path: Path
    cfg: Any
    task: FairseqTask  # set up with the model's dictionaries
    model: nn.Module  # in evaluation mode, on its device
    objective: Objective
    updates: int
    inference: InferenceConfig  # device, precision, and sizes of mini-batches

    def autocast(self) -> ContextManager[object]:
        """Forward passes in this context use the precision; weights stay in fp32."""
        is_bf16, both = self.inference.precision == "bf16", ExitStack()
        both.enter_context(self.fast_products())
        both.enter_context(torch.autocast(self.inference.device.type, torch.bfloat16, enabled=is_bf16))
        return both

    def fast_products(self) -> ContextManager[object]:
        """Makes a context for backward passes as well, which autocast is not for."""
        return fast_bf16_products(self.inference.device, self.inference.precision == "bf16")

    @property
    def longest(self) -> Any:
        """The maximum number of tokens in a row, or of each of its parts if it has several."""
        return utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())  # type: ignore[operator]

    def batches(
        self, split: str, batch_size: int, most: int | None = None, doing: str = ""
    ) -> Iterator[Sample]:
        """The mini-batches of a loaded split on the model's device, in fairseq's validation order.

        Args:
            most: only so many of them, at equal distances, since they are sorted by length.
        """
        # fairseq asks for pinned memory on machines without a GPU, too (fairseq/data/iterators.py, line 505).
        warnings.filterwarnings("ignore", "'pin_memory' argument is set as true", UserWarning)
        leaves_out = bool(self.cfg.dataset.skip_invalid_size_inputs_valid_test)
        if not leaves_out:
            check_lengths(split, self.task.dataset(split), self.longest)
        iterator = self.task.get_batch_iterator(
            dataset=self.task.dataset(split),
            max_sentences=batch_size,
            max_positions=self.longest,
            ignore_invalid_inputs=leaves_out,
        )
        if most is not None:
            batches, total = iterator.frozen_batches, min(most, len(iterator.frozen_batches))
            chosen = [batches[(2 * number + 1) * len(batches) // (2 * total)] for number in range(total)]
            iterator = EpochBatchIterator(iterator.dataset, iterator.collate_fn, chosen)
        for sample in tqdm(iterator.next_epoch_itr(shuffle=False), desc=doing, unit="batch"):
            yield self._on_device(sample)

    def predictions(
        self, dataset: Any, names: Sequence[str], progress: bool = True
    ) -> Iterator[tuple[Sample, Tensor]]:
        """The mini-batches of a data set and the objective's predictions for each, in fp32.

        Rows of similar length share a mini-batch, the longest first: if memory runs out, it does so at once.
        """
        with (
            torch.no_grad(),
            tqdm(total=len(names), desc=self.path.name, unit="row", disable=not progress) as bar,
        ):
            for batch in batches_by_length(dataset, names, self.inference):
                sample = dataset.collater([dataset[int(i)] for i in batch])
                with memory_error_named("Pass a smaller --max-tokens"):
                    sample = self._on_device(sample)
                    with self.autocast():
                        predictions = self.objective.predict(self.model, sample)
                yield sample, predictions.float()
                bar.update(len(batch))

    def not_finite(self, row: str = "") -> DataError:
        """The error for a model whose scores are not finite."""
        why = "Run without --fp16." if self.inference.fp16 else "Did the training diverge?"
        return DataError(f"{self.path}: {row}the model's scores are not finite. {why}")

    def _on_device(self, sample: Sample) -> Sample:
        on_gpu = self.inference.device.type == "cuda"
        moved: Sample = utils.move_to_cuda(sample, self.inference.device) if on_gpu else sample
        return moved


def batches_by_length(dataset: Any, names: Sequence[str], inference: InferenceConfig) -> list[Any]:
    """Groups rows of similar length, longest first: if memory runs out, it does so at once."""
    tokens = np.array([dataset.num_tokens(i) for i in range(len(dataset))])
    most, on_cpu = inference.max_tokens, inference.device.type == "cpu"
    if not (most or inference.batch_size):
        most = max(MAX_TOKENS_OF_CPU, int(tokens.max())) if on_cpu else MAX_TOKENS
    if most and tokens.max() > most:
        whole = " with all its choices" if isinstance(dataset, RankingDataset) else ""
        raise DataError(
            f"row {names[int(tokens.argmax())]} has {tokens.max()} tokens{whole}, more than --max-tokens "
            f"{most}. Pass {tokens.max()} or more."
        )
    order = np.argsort([dataset.size(i) for i in range(len(dataset))], kind="stable")[::-1]
    return list(dataset.batch_by_size(order, max_tokens=most, max_sentences=inference.batch_size))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint, to build a model from; no code in it is run.

    Args:
        path: may also be the folder of a model with classes, in Hugging Face's layout.
    """
    if (path / "config.json").is_file():
        of_folder = checkpoint_of(path)
        return {**of_folder, "cfg": OmegaConf.create(of_folder["cfg"])}
    if not path.is_file():
        raise no_checkpoint(path)
    with reported_as_data_error(path, "not a checkpoint written by fairseq-train: "):
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        checkpoints.check_to_build(state, path)
        for name in ("task", "criterion", "model", "dataset"):
            is_complete = name in state["cfg"] and isinstance(state["cfg"][name], (DictConfig, Namespace))
            if not is_complete or not state["model"]:
                raise KeyError(name)
    # fairseq would use the "args" of an old checkpoint instead of the cfg, which callers change.
    state["args"] = None
    return state


@contextmanager
def reported_as_data_error(path: Path, problem: str = "") -> Iterator[None]:
    """Raises DataError instead of what fairseq raises for user errors, and for a checkpoint that is none.

    Args:
        problem: what it means, before fairseq's message.
    """
    try:
        yield
    except DataError:
        raise
    except _OF_FAIRSEQ as error:
        text = str(error).strip().replace("\n", " ")
        if "size mismatch" in text:
            text = (
                "its weights don't match the data's dictionary or number of labels. Prepare the data with "
                f"the encoder's own dict.txt. fairseq's message: {text[:300]}"
            )
        names_it = isinstance(error, pickle.UnpicklingError)  # the message names the file
        raise DataError(text if names_it else f"{path}: {problem}{text}") from error


def load_model(
    path: Path, state: dict[str, Any], task: FairseqTask | None, inference: InferenceConfig,
    names: Sequence[str] = (),
) -> Trained:  # fmt: skip
    """Builds the model in a checkpoint, and its objective.

    Args:
        task: with the dictionaries that belong to the model; ``None``: as in training, from its data folder.
        names: of the classes in the checkpoint, in its order, from :func:`take_class_names`. The model gets
            the order of the task's. Empty: it has that order, or there are no classes.

    Raises:
        DataError: the checkpoint can't be used, or the task has other classes.
    """
    with reported_as_data_error(path):
        (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], task=task, state=state
        )
        cut_as_its_tokenizer_does(path, task)
        objective = build_objective(objective_options(cfg), task)
        objective.check_model(model)
    if names and not task.cfg.regression_target:
        file, classes = Path(task.cfg.data) / "label" / "dict.txt", class_names(task.label_dictionary)
        rows = rows_for_data(path, names, file, classes)
        order_classes(model, task.cfg.classification_head_name, rows)
    model.eval()
    if inference.precision == "bf16":
        # fairseq's fused inference layers, of encoders with relu, don't autocast.
        use_differentiable_layers(model)
    model = (model.half() if inference.fp16 else model).to(inference.device)
    return Trained(path, cfg, task, model, objective, _updates(state), inference)


def cut_as_its_tokenizer_does(path: Path, task: FairseqTask) -> None:
    """Lets the task of a Hugging Face folder cut long rows as transformers does, before ``</s>``."""
    if path.is_dir():
        task.cfg.long_texts = HEAD_AND_END


def take_class_names(state: dict[str, Any]) -> list[str]:
    """The classes of texts in a checkpoint, in its order; empty if they are unknown, or there are none.

    They are taken out of its configuration, so that the task has the order of its data.
    """
    cfg = state["cfg"]
    record = record_named(cfg.task._name)
    if record is None or not record.words:
        return []
    names = known_labels(cfg, state.get("extra_state"))
    if "class_names" in cfg.task:
        with open_dict(cfg.task):
            cfg.task.class_names = None
    return names


def check_unnamed_classes(state: dict[str, Any], task: FairseqTask) -> None:
    """Raises DataError if data has other classes than a checkpoint that doesn't name its own.

    Args:
        task: has read the data's dictionaries.
    """
    if isinstance(task, SentencePredictionTask) and not task.cfg.regression_target:
        file = Path(task.cfg.data) / "label" / "dict.txt"
        check_class_order(task.label_dictionary, state.get("extra_state"), file)


def _updates(state: dict[str, Any]) -> int:
    return int((state.get("optimizer_history") or [{}])[-1].get("num_updates", 0))


def load(
    path: str, data: str | None, splits: Sequence[str], cpu: bool = False, precision: str = "fp32"
) -> Trained:
    """Opens a checkpoint with splits of its data, to measure it."""
    inference = InferenceConfig(cpu=cpu, precision=precision)
    state = read_checkpoint(Path(path))
    trained_on = str(getattr(state["cfg"].task, "data", "") or "")
    if data is None and trained_on == "." and not _updates(state):
        raise DataError(
            f"{path}: an encoder written by fairseq-adv convert, not yet trained. Pass a checkpoint written "
            "by training, or a data folder with --data"
        )
    if data is None and Path(path).is_dir():
        raise DataError(
            f"{path}: a Hugging Face folder names no data. Prepare it with --encoder {path}, and pass it as "
            "--data"
        )
    names = take_class_names(state)
    changed = {} if data is None else {"data": data}
    # A copy, made by fairseq-adv train: the folder that it came from may be gone, or have another one by now.
    tokenizer = Path(path).parent / FOLDER
    if tokenizer.is_dir() and "tokenizer_dir" in state["cfg"].task:
        changed["tokenizer_dir"] = str(tokenizer)
    overwrite_args_by_name(state["cfg"], changed)
    trained = load_model(Path(path), state, None, inference, names)
    if not names:
        check_unnamed_classes(state, trained.task)
    record = record_of(type(trained.task))
    assert record is not None  # it names the objective
    if record.words is not None:
        before, now = trained_on, trained.task.cfg.data
        if record.takes_several:
            before, now = before.split(":")[0], now.split(":")[0]
        check_same_words(Path(path), before, Path(now), record.words)
    if thresholds := read_thresholds(trained.path):
        trained.objective.set_thresholds(thresholds)
    for split in splits:
        if record.check_split is not None:
            record.check_split(trained.task.cfg, split)
        trained.task.load_dataset(split)
    return trained


def objective_options(cfg: Any) -> SimpleNamespace:
    """The objective's options in a checkpoint; options that a stock criterion lacks have their defaults."""
    saved = cfg.criterion
    names = {field.name: field.default for field in fields(ObjectiveConfig) if not field.name.startswith("_")}
    given = {name: getattr(saved, name, None) for name in names}
    options = {n: names[n] if value is None else value for n, value in given.items()}
    # Files that training would read are not a checkpoint's to name.
    return SimpleNamespace(**{**options, "finetune_from_model": None, "restore_file": "checkpoint_last.pt"})
