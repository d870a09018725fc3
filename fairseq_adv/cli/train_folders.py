"""What the folders of the data, and of the encoder, say of a training: its task, its sizes, its tokenizer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import whole
from fairseq_adv.data.tokenizers import check_same_tokenizer

if TYPE_CHECKING:
    from fairseq_adv.tasks.task_record import TaskRecord

_SIZES = (
    "--arch", "--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim",
    "--encoder-attention-heads", "--max-positions", "--activation-fn",
)  # fmt: skip
_FLAGS = ("--untie-weights-roberta",)
# Kinds that count positions from their padding token's row, which is 1: they never use the first two rows.
_FROM_PADDING = re.compile(r".*roberta.*|camembert|data2vec-text|ibert|longformer|luke|mpnet|xmod")
_VALUE = re.compile(r"\w[\w-]*", re.ASCII)


def detect_task(folder: Path) -> str:
    """The name of the task that reads a folder."""
    if folder.is_file():
        raise DataError(
            f"{folder}: a file, not a folder. Make a data folder from it with fairseq-adv prepare. For words "
            "with tags, or SQuAD's json, pass the folder that contains the file"
        )
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass the data folder as the first argument")
    for name in _tasks_for([folder]):
        return name
    records = _records().values()
    if hint := next(filter(None, (record.hint(folder) for record in records if record.hint)), ""):
        raise DataError(f"{folder}: {hint}")
    looked_for = dict.fromkeys(record.looks_for for record in records if record.looks_for)
    names = sorted(path.name for path in folder.iterdir())
    raise DataError(
        f"{folder}: no training data recognised. Looked for {'; '.join(looked_for)}. It has "
        f"{', '.join(names[:8]) or 'no files'}{', …' * (len(names) > 8)}. Prepare it with fairseq-adv "
        "prepare, or pass --task"
    )


def task_of(folders: Sequence[Path]) -> str:
    """The name of the task that reads all folders, if there is one, else that of the first."""
    first = detect_task(folders[0])
    return first if len(folders) == 1 else next(_tasks_for(folders), first)


def _records() -> Mapping[str, TaskRecord]:
    from fairseq_adv.tasks.task_record import described_tasks  # here, because --help doesn't need torch

    return described_tasks()


def _tasks_for(folders: Sequence[Path]) -> Iterator[str]:
    for name, record in _records().items():
        if record.recognises is not None and all(map(record.recognises, folders)):
            yield name


def read_symbols(dictionary: Path) -> list[str]:
    """The symbols of a dict.txt."""
    text = whole(dictionary).decode("utf-8", "replace")
    return [line.rsplit(" ", 1)[0] for line in text.splitlines()]


def model_args(encoder: Path) -> list[str]:
    """The sizes of the encoder, as arguments for ``fairseq-train``, from its model_args.txt.

    The encoder may come from anyone, and other options of fairseq, such as ``--user-dir``, could run code.
    """
    path = encoder / "model_args.txt"
    try:
        words = shlex.split(whole(path).decode("utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not a line of options ({error}). Convert the encoder again") from error
    rest = iter(words)
    for word in rest:
        value = next(rest, "") if word in _SIZES else word
        if word not in (*_SIZES, *_FLAGS) or (word in _SIZES and not _VALUE.fullmatch(value)):
            shown = f"{word!r:.60} {value!r:.60}" if word in _SIZES else f"{word!r:.60}"
            raise DataError(f"{path}: {shown} is not an encoder's size. Convert the encoder again")
    return words


def check_dictionary(data: Path, encoder: Path) -> None:
    """Raises DataError if a binarised folder has other word ids than the encoder."""
    mine, theirs = data / "input0" / "dict.txt", encoder / "dict.txt"
    if mine.is_file() and theirs.is_file() and read_symbols(mine) != read_symbols(theirs):
        raise DataError(
            f"{data} was prepared with a different dictionary than {theirs}: the word ids would be wrong. "
            f"Prepare it again with --encoder {encoder}"
        )


def hugging_face_args(folders: Sequence[Path], encoder: Path) -> dict[str, str]:
    """The arguments for ``fairseq-train`` that name a Hugging Face folder.

    Raises:
        DataError: the data was prepared with another tokenizer.
    """
    check_same_tokenizer(folders, encoder)
    longest = [512]
    for name, key in (
        ("config.json", "max_position_embeddings"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        about = json_object(encoder / name) if (encoder / name).is_file() else {}
        limit, unused = about.get(key), 2 * bool(_FROM_PADDING.fullmatch(str(about.get("model_type"))))
        longest += [limit - unused] if type(limit) is int and limit > unused else []
    return {"--arch": "hf_encoder", "--hf-model": str(encoder), "--max-positions": str(min(longest))}
