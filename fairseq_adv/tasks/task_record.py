"""The record of a task: what the rest of the package needs to know of it.

A record stands beside its task, and holds for subclasses that have none of their own. Nothing else in the
package knows tasks by name. What stands above a task in the order of imports is named by its path, as text.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Union

from fairseq.tasks import TASK_REGISTRY

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.train_options import TrainOptions

ImportPath = Union[str, type]
"""A class, or ``package.module:Class``, which is imported when it is needed."""


@dataclass(frozen=True)
class ModelCard:
    """How an exported model is described and used.

    Attributes:
        model: which of transformers' models it becomes, without the encoder's name: ``ForMultipleChoice``.
        what: what it predicts, a sentence; ``{classes}`` stands for the names of the classes.
        use: Python code that uses it, from the name of the exported folder and the data folder.
        pipeline_tag: Hugging Face's name of such models.
        problem_type: their ``problem_type``; "": transformers finds it.
    """

    model: str
    what: str
    use: Callable[[str, Path], str]
    pipeline_tag: str = ""
    problem_type: str = ""


@dataclass(frozen=True)
class AnswerFile:
    """The file that a benchmark's evaluation reads.

    Attributes:
        name: of the file: ``WSC.jsonl``.
        text: its contents, from the names of the rows and an answer each.
    """

    name: str
    text: Callable[[Sequence[str], Sequence[str]], str]


@dataclass(frozen=True)
class TaskRecord:
    """What the rest of the package needs to know of a task.

    Attributes:
        data: what its data are, for messages.
        recognises: whether a data folder is one of this task, for ``fairseq-adv train`` without ``--task``.
            The task that was registered last is asked first. Subclasses don't inherit it.
        looks_for: the files by which it is recognised, for the message that no task recognises a folder.
        hint: what to pass instead of a folder that no task recognises; "": this task can't tell.
        takes_several: whether it reads several data folders together.
        draws_rows: whether rows are made while training, so that a GPU needs several processes for them.
        words: where a data folder has prepared words and their dictionary: ``input0``, with the classes or
            numbers in ``label`` beside it, or "", the folder itself; ``None``: the task tokenises text.
        check_split: raises DataError for a split that can't be scored, from the task's options and the
            split's name; ``None``: the task does so itself when it loads one.
        fill: fills in options of ``fairseq-adv train`` from the data folders and the encoder's folder. The
            last argument: whether the criterion is one of this project's.
        metric: the score whose highest value selects the best checkpoint; "": the loss, or what ``fill``
            says.
        batch_size: examples in a mini-batch, if nothing else is asked for.
        rows: the rows of an epoch of a split, a number for each shard; ``None`` if the files don't tell.
        objective: its :class:`~fairseq_adv.objectives.Objective`.
        predictor: answers rows, a :class:`~fairseq_adv.evaluation.predict.predictors.Predictor`.
        benchmarks: the values of ``fairseq-adv predict --task`` that its models can answer.
        answer_file: of those benchmarks that are not GLUE's; ``None``: rows of a name and an answer.
        answers_own_data: whether they answer other data than benchmarks.
        next_command: what to do after training, from the configuration, the checkpoint and the encoder.
        card: of an exported model; ``None``: it can't be exported.
        regression_card: the same if it predicts numbers.
        outputs: what the names of its model's outputs are, for messages.
    """

    data: str = ""
    recognises: Callable[[Path], bool] | None = None
    looks_for: str = ""
    hint: Callable[[Path], str] | None = None
    takes_several: bool = False
    draws_rows: bool = False
    words: str | None = None
    check_split: Callable[[Any, str], None] | None = None
    fill: Callable[[TrainOptions, Sequence[Path], Path | None, bool], None] | None = None
    metric: str = ""
    batch_size: int = 16
    rows: Callable[[TrainOptions, Sequence[Path], str], list[int] | None] | None = None
    objective: ImportPath = ""
    predictor: ImportPath = ""
    benchmarks: tuple[str, ...] = ()
    answer_file: AnswerFile | None = None
    answers_own_data: bool = True
    next_command: Callable[[Any, str, str], str] | None = None
    card: ModelCard | None = None
    regression_card: ModelCard | None = None
    outputs: str = "classes"


_RECORDS: dict[type, TaskRecord] = {}


def describe_task(task_class: type, record: TaskRecord) -> None:
    """Registers the record of a task, and of its subclasses without one of their own.

    Raises:
        ValueError: the task already has another record.
    """
    if _RECORDS.setdefault(task_class, record) is not record:
        raise ValueError(f"{task_class.__name__} already has a record")


def set_objective(task_class: type, objective: type) -> None:
    """Changes the objective of a task and of its subclasses without a record of their own.

    Raises:
        ValueError: the task's own record has another objective.
    """
    existing = _RECORDS.get(task_class)
    if existing is not None and existing.objective not in ("", objective):
        raise ValueError(f"{task_class.__name__} already has the objective {_name_of(existing.objective)}")
    record = existing or replace(record_of(task_class) or TaskRecord(), recognises=None)
    _RECORDS[task_class] = replace(record, objective=objective)


def record_of(task_class: type) -> TaskRecord | None:
    """The record of a task, or of the nearest of its base classes that has one."""
    return next((_RECORDS[base] for base in task_class.__mro__ if base in _RECORDS), None)


def record_named(name: Any) -> TaskRecord | None:
    """The record of the task that is registered by this name, which may be that of a checkpoint."""
    task_class = TASK_REGISTRY.get(name) if isinstance(name, str) else None
    return None if task_class is None else record_of(task_class)


def described_tasks() -> dict[str, TaskRecord]:
    """The records of registered tasks by the task's name, the last one first."""
    names = {task_class: name for name, task_class in TASK_REGISTRY.items()}
    return {names[one]: record for one, record in reversed(_RECORDS.items()) if one in names}


def names_of_tasks(has: Callable[[TaskRecord], bool]) -> list[str]:
    """The names of the tasks whose own record has something, for messages."""
    return [name for name, record in reversed(described_tasks().items()) if has(record)]


def names_with_objective() -> list[str]:
    """The names of the classes of tasks whose own record has an objective, for messages."""
    return sorted(one.__name__ for one, record in _RECORDS.items() if record.objective)


def load(path: ImportPath) -> Any:
    """The class that a record names."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _name_of(path: ImportPath) -> str:
    return path.rpartition(":")[2] if isinstance(path, str) else path.__name__


# ---- what records share


def fill_tokenizer(
    options: TrainOptions, folders: Sequence[Path], encoder: Path | None, is_ours: bool
) -> None:
    """``fill`` of a task that tokenises text itself: the encoder's tokenizer, or that of the data."""
    from fairseq_adv.data.tokenizers import FOLDER

    saved = folders[0] / FOLDER
    if encoder is not None or saved.is_dir():
        options.fill({"--tokenizer-dir": str(encoder or saved)})


def check_index(folder: str, index: str) -> None:
    """Raises DataError if a data folder does not have the index of a split."""
    path = Path(folder, index)
    if not path.is_file():
        raise DataError(f"{folder}: no split {path.stem!r} ({index}). Choose another data folder or split")


def no_validation(options: TrainOptions) -> dict[str, str]:
    """The options without a split to validate on, which fairseq loads in any case."""
    return {"--disable-validation": "", "--valid-subset": options.value("--train-subset", "train")}


def answer_split(cfg: Any, checkpoint: str, encoder: str, benchmark: str = "") -> str:
    """``next_command`` of a task whose models answer a split."""
    split = cfg.dataset.train_subset if cfg.dataset.disable_validation else cfg.dataset.valid_subset
    data, task = shlex.quote(str(cfg.task.data).split(":")[0]), f" --task {benchmark}" * bool(benchmark)
    path = shlex.quote(checkpoint)
    return f"fairseq-adv predict {path}{task} --data {data} --split {split.split(',')[0]} --out OUT"


def answer_file(checkpoint: str, file: str = "FILE") -> str:
    """The command that answers the rows of a file."""
    return f"fairseq-adv predict {shlex.quote(checkpoint)} --input {file}"


def answer_file_of_split(find: Callable[[Path, str], Path], cfg: Any, checkpoint: str, encoder: str) -> str:
    """``next_command`` that answers the file of the first validation split, or of training."""
    for split in (cfg.dataset.valid_subset.split(",")[0], cfg.dataset.train_subset):
        with suppress(DataError):
            return answer_file(checkpoint, shlex.quote(str(find(Path(cfg.task.data), split))))
    return answer_file(checkpoint)


def pipeline_use(pipeline: str, folder: str, call: str) -> str:
    """``use`` of a model that one of transformers' pipelines runs."""
    return (
        f'from transformers import pipeline\nmodel = pipeline("{pipeline}", model="{folder}")\n'
        f"print(model({call}))"
    )


def _use_mask(folder: str, data: Path) -> str:
    return pipeline_use("fill-mask", folder, '"The sky is " + model.tokenizer.mask_token + "."')


MASKED_WORDS = ModelCard("ForMaskedLM", "It is a masked language model.", _use_mask, "fill-mask")
"""The card of a model that predicts masked words."""
