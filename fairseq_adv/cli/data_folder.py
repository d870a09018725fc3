"""What a data folder says of the training on it: the task, the classes, the metric, the number of rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.choices.question_layouts import is_regents, is_swag, read_split
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import whole
from fairseq_adv.data.spans.squad import find_squad, read_squad, squad_files
from fairseq_adv.data.tables.split_files import find_split_file, split_files
from fairseq_adv.data.tags.columns import ENDINGS, cells_of, first_word, read_rows
from fairseq_adv.data.tags.schemes import is_tag
from fairseq_adv.data.workspace import read_manifest

if TYPE_CHECKING:
    from .train_options import TrainOptions


def detect_task(folder: Path) -> str:
    """The task that reads a folder."""
    if folder.is_file():
        raise DataError(
            f"{folder}: a file, not a folder. Make a data folder from it with fairseq-adv prepare. For words "
            "with tags, or SQuAD's json, pass the folder that contains the file"
        )
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass the data folder as the first argument")
    if (folder / "input0").is_dir() and (folder / "label").is_dir():
        return "text_classification"
    if (folder / "train.idx").is_file():
        return "masked_lm"
    if (folder / "report.json").is_file() and (folder / "train.jsonl").is_file():
        return "qnli_ranking"
    row = _first_row(_find_questions(folder))
    if "target" in row:
        return "wsc"
    question = row.get("question")
    if isinstance(question, dict) and "question_concept" in question and '"para"' not in json.dumps(row):
        return "commonsense_qa"  # its layout has no place for documents
    if row or (folder / "train").is_dir() or _has_table_of_questions(folder):
        return "arc_retrieval"
    if squad_files(folder):
        return "span_qa"
    if _find_tagged(folder):
        return "tagging"
    if shards := sorted(folder.glob("shard[0-9]*/train.idx"), key=lambda path: (len(str(path)), path)):
        raise DataError(f"{folder}: shards of a corpus. Pass {':'.join(str(path.parent) for path in shards)}")
    there = sorted(path.name for path in folder.iterdir())
    raise DataError(
        f"{folder}: no training data recognised. Looked for input0/ and label/ (from fairseq-adv prepare), "
        "train.idx (from fairseq-adv corpus), questions with choices (train.jsonl, SWAG's train.csv, RACE's "
        "folder train), any .json in SQuAD's layout, and words with tags in columns (train.tsv, .txt, "
        f".conll, .iob, .bio, eng.train). It has {', '.join(there[:8]) or 'no files'}"
        f"{', …' * (len(there) > 8)}. Prepare it with fairseq-adv prepare, or pass --task"
    )


def task_of(folders: Sequence[Path]) -> str:
    """The task that reads all folders, if there is one, else that of the first."""
    tasks = [detect_task(folders[0])]
    if tasks == ["commonsense_qa"]:  # other questions have documents, or may have
        tasks += map(detect_task, folders[1:])
    return "arc_retrieval" if "arc_retrieval" in tasks else tasks[0]


def kind_of(task: str) -> str:
    """The kind of a registered task, ours or another that derives from it: "classes" for labelled texts,
    "corpus", "questions", or "tokens" for tags and spans; "" for any other.
    """
    from fairseq.tasks import TASK_REGISTRY
    from fairseq.tasks.masked_lm import MaskedLMTask
    from fairseq.tasks.sentence_prediction import SentencePredictionTask

    from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask
    from fairseq_adv.tasks.token_task import TokenTask
    from fairseq_adv.tasks.wsc import WSCTask

    kinds = {
        SentencePredictionTask: "classes", MaskedLMTask: "corpus", MultipleChoiceTask: "questions",
        WSCTask: "questions", TokenTask: "tokens",
    }  # fmt: skip
    bases = TASK_REGISTRY[task].__mro__ if task in TASK_REGISTRY else ()
    return next((kinds[base] for base in bases if base in kinds), "")


def count_classes(folder: Path) -> int | None:
    """How many classes a folder's labels have; ``None`` for a regression."""
    path = folder / "label" / "dict.txt"
    if _made_from(folder, "regression") or (
        not path.is_file() and (folder / "label" / "train.label").is_file()
    ):
        return None
    if not path.is_file():
        raise DataError(f"{path}: no such file. Prepare the data again, with labels")
    return len([word for word in read_symbols(path) if not word.startswith("madeupword")])


def read_symbols(dictionary: Path) -> list[str]:
    """The symbols of a dict.txt."""
    text = whole(dictionary).decode("utf-8", "replace")
    return [line.rsplit(" ", 1)[0] for line in text.splitlines()]


def find_metric(folder: Path) -> str:
    """The metric that selects a classifier's best checkpoint: Matthews correlation for CoLA, else
    accuracy."""
    return "mcc" if _made_from(folder, "task") == "CoLA" else "accuracy"


def rows_of_an_epoch(options: TrainOptions, kind: str, folders: Sequence[Path]) -> list[int] | None:
    """Rows per epoch, one number for each shard; ``None`` if the files don't determine it."""
    split = options.value("--train-subset", "train")
    if kind == "classes":
        return [_index_counts(folders[0] / "input0", split)[0]]
    if kind == "corpus":
        mode = "--sample-break-mode"
        if options.value(mode, "none") == "eos":
            longest = options.number("--max-positions", "512") - 1  # one less for <s>
            is_cut = options.value("--shorten-method", "none") != "none"
            if is_cut and options.number("--tokens-per-sample") <= longest:
                longest = 0  # none is left out
            return [_index_counts(folder, split, longest)[0] for folder in folders]
        shards = [_index_counts(folder, split) for folder in folders]
        length = options.number("--tokens-per-sample") - 1  # one less for <s>
        is_cut = options.value(mode, "none") == "none" and length > 0
        return [-(-tokens // length) for _, tokens in shards] if is_cut else None
    if kind == "tokens":
        if options.value("--task") == "span_qa":
            return [_count_windows(options, find_squad(folders[0], split))]
        tagged = _find_tagged(folders[0], split)
        return None if tagged is None else [len(read_rows(tagged, tell=False))]
    counts = []
    if kind == "questions":
        found = (_count_questions(options.value("--task"), folder, split) for folder in folders)
        counts = [count for count in found if count is not None]
    given = options.value("--sampling-weights") or ":".join("1" for _ in counts)
    with suppress(ValueError):  # not numbers, which the task refuses
        weights = [float(part) for part in given.split(":") if part]
        if counts and len(counts) == len(folders) == len(weights):
            return [sum(round(weight * count) for weight, count in zip(weights, counts))]
    return None


def _count_windows(options: TrainOptions, squad: Path) -> int:
    """Into how many windows the task cuts the contexts of a file."""
    from fairseq_adv.data.spans.spans_dataset import cut_into_windows
    from fairseq_adv.tasks.span_qa import SpanQAConfig, SpanQATask

    cfg = SpanQAConfig(data=str(squad.parent), tokenizer_dir=options.value("--tokenizer-dir") or None)
    for name in ("max_positions", "window_tokens", "window_overlap"):
        option = f"--{name.replace('_', '-')}"
        if options.value(option):
            setattr(cfg, name, options.number(option))
    task = SpanQATask.setup_task(cfg)
    return len(cut_into_windows(read_squad(squad), task.tokenizer, task.longest, cfg.window_overlap).question)


def _index_counts(folder: Path, split: str, longest: int = 0) -> tuple[int, int]:
    """The number of rows of a binarised split, and of their tokens, with those of ``train1``, ``train2``, …,
    which the trainer adds to ``train``.

    Args:
        longest: only rows of at most so many tokens are counted; 0: all.
    """
    from fairseq_adv.data.text.indexed import read_index  # needs numpy

    rows = tokens = 0
    for part in itertools.count():
        path = folder / f"{split}{part or ''}.idx"
        if part and not path.is_file():
            break
        index = read_index(path, "Prepare the data again, or pass --train-subset.")
        rows += index.count_rows(longest) if longest else index.rows
        tokens += path.with_suffix(".bin").stat().st_size // index.itemsize
    return rows, tokens


def _count_questions(task: str, folder: Path, split: str) -> int | None:
    from fairseq.tasks import TASK_REGISTRY

    from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask

    if issubclass(TASK_REGISTRY[task], MultipleChoiceTask):
        is_ours = TASK_REGISTRY[task].read is MultipleChoiceTask.read
        return len(read_split(folder, split)) if is_ours else None
    path = _find_questions(folder, split)  # of schemas
    if path is None:
        return None
    with open(path, "rb") as file:
        return sum(1 for line in file if line.strip())


def _find_questions(folder: Path, split: str = "train") -> Path | None:
    """A split's jsonl, or SWAG's csv; ``None`` if a folder has none, as with RACE, or several."""
    path = _split_file(folder, split, (".jsonl",)) or _split_file(folder, split, (".csv",))
    with suppress(DataError):  # not a table
        return path if path is None or path.suffix == ".jsonl" or is_swag(path) else None
    return None


def _find_tagged(folder: Path, split: str = "train") -> Path | None:
    """A split's file of tagged words in columns; ``None`` if a folder has none."""
    path = _split_file(folder, split, ENDINGS)
    if path is None:
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        cells = cells_of(first_word(line.rstrip("\n") for line in file))
    return path if len(cells) > 1 and is_tag(cells[-1]) else None


def _has_table_of_questions(folder: Path) -> bool:
    with suppress(DataError):  # not a table
        return any(is_swag(path) or is_regents(path) for path in split_files(folder, "train", (".csv",)))
    return False


def _split_file(folder: Path, split: str, endings: tuple[str, ...]) -> Path | None:
    with suppress(DataError):  # none, or several
        return find_split_file(folder, split, endings)
    return None


def _first_row(path: Path | None) -> dict[str, Any]:
    if path is not None:
        with suppress(DataError):
            return next((row for _, row in json_lines(path)), {})
    return {}


def _made_from(folder: Path, key: str) -> Any:
    """What the manifest of a prepared folder says of it; ``None`` if nothing."""
    return read_manifest(folder).get("made_from", {}).get(key)
