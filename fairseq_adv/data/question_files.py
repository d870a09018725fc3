"""Finds the file of a split in the layouts in which multiple-choice data sets are distributed, and reads it.

A data set is named by its folder, or by the first part of its files' names: ``arc/ARC-Easy`` stands for
``arc/ARC-Easy-Train.jsonl`` and the like.
"""

from __future__ import annotations

from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.multiple_choice import Question, read_questions
from fairseq_adv.data.race import LEVELS, read_race
from fairseq_adv.data.regents import read_regents

# fairseq's name of a split -> what data sets call it.
_SPLITS = {"train": ("train",), "valid": ("valid", "dev", "val"), "test": ("test",)}
# CommonsenseQA's official names.
_OFFICIAL = {"train": "train_rand_split", "valid": "dev_rand_split", "test": "test_rand_split_no_answers"}
_ENDINGS = (".jsonl", ".csv")


def read_split(data: Path, split: str) -> list[Question]:
    """The questions of a split, from ``data``'s jsonl, CSV (Regents) or folder of articles (RACE).

    Args:
        data: folder of the data set, or the first part of its files' names.
        split: train, valid or test; for RACE also valid-middle, test-high and so on.

    Raises:
        DataError: the split is not there, or twice, or can't be read.
    """
    path = find_split(data, split)
    if path.is_dir():
        return read_race(path)
    return read_regents(path) if path.suffix == ".csv" else read_questions(path)


def find_split(data: Path, split: str) -> Path:
    """The file, or RACE's folder, of a split.

    Raises:
        DataError: nothing there, or more than one.
    """
    found = [path for path in _candidates(data, split) if path.exists()]
    # A jsonl is preferred to the same questions as CSV: its choices need not be guessed from the text.
    kinds = {path.suffix for path in found}
    if {".jsonl", ".csv"} <= kinds:
        found = [path for path in found if path.suffix == ".jsonl"]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(
            f"{data}: the split {split!r} is there more than once: {', '.join(path.name for path in found)}. "
            "Name one data set by the first part of its files' names, such as arc/ARC-Easy."
        )
    wanted = ", ".join(f"{name}.jsonl" for name in _names(split))
    raise DataError(
        f"{data}: has no split {split!r}. Looked for {wanted}, the same with .csv, a folder of RACE's "
        "articles, and "
        f"files that begin with {data.name}- and end so."
    )


def _names(split: str) -> list[str]:
    names = list(_SPLITS.get(split, (split,)))
    return names + ([_OFFICIAL[split]] if split in _OFFICIAL else [])


def _candidates(data: Path, split: str) -> list[Path]:
    folder, prefix = (data, "") if data.is_dir() else (data.parent, f"{data.name}-")
    names = [f"{prefix}{name}" for name in _names(split)]
    names += [f"{prefix}{name.capitalize()}" for name in _names(split)]
    paths = {folder / f"{name}{ending}" for name in names for ending in _ENDINGS}
    if data.is_dir():
        # ARC's own folders: ARC-Easy/ARC-Easy-Train.jsonl. Only if the folder holds one such data set.
        ends = {f"-{name}{ending}" for name in (n.capitalize() for n in _names(split)) for ending in _ENDINGS}
        paths |= {path for path in folder.iterdir() if path.name.endswith(tuple(ends))}
        base, _, level = split.partition("-")
        race = [
            data / name / level if level in LEVELS else data / name for name in _SPLITS.get(base, (split,))
        ]
        paths |= {path for path in race if path.is_dir() and any(path.rglob("*.txt"))}
    existing: dict[tuple[int, int], Path] = {}
    for path in sorted(paths):
        if path.exists():
            status = path.stat()
            # On a file system that ignores case, Train and train are one file.
            existing.setdefault((status.st_dev, status.st_ino), path)
    return list(existing.values())
