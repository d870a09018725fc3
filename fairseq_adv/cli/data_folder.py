"""Which task reads a data folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import whole


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
    """The name of the task that reads all folders, if there is one, else that of the first."""
    first = detect_task(folders[0])
    return first if len(folders) == 1 else next(_tasks_for(folders), first)


def _tasks_for(folders: Sequence[Path]) -> Iterator[str]:
    from fairseq_adv.tasks.task_record import described_tasks  # here, because --help doesn't need torch

    for name, record in described_tasks().items():
        if record.recognises is not None and all(map(record.recognises, folders)):
            yield name


def read_symbols(dictionary: Path) -> list[str]:
    """The symbols of a dict.txt."""
    text = whole(dictionary).decode("utf-8", "replace")
    return [line.rsplit(" ", 1)[0] for line in text.splitlines()]
