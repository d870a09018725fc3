"""Finds and reads the file of a split, in the layouts in which multiple-choice data sets are distributed."""

from __future__ import annotations

from pathlib import Path

from fairseq_adv.data.choices.questions import Question, read_questions
from fairseq_adv.data.choices.race import LEVELS, read_race
from fairseq_adv.data.choices.regents import read_regents
from fairseq_adv.data.errors import DataError

# fairseq's name of a split -> the names used in data sets.
_SPLITS = {"train": ("train",), "valid": ("valid", "dev", "val"), "test": ("test",)}
# CommonsenseQA's official names.
_OFFICIAL = {"train": "train_rand_split", "valid": "dev_rand_split", "test": "test_rand_split_no_answers"}
_ENDINGS = (".jsonl", ".csv")


def read_split(data: Path, split: str) -> list[Question]:
    """Reads the questions of a split from a jsonl, CSV (Regents) or folder of articles (RACE) in ``data``.

    Args:
        data: folder of the data set.
        split: train, valid or test; for RACE also valid-middle, test-high and so on.

    Raises:
        DataError: the split is missing, ambiguous or can't be read.
    """
    path = find_split(data, split)
    if path.is_dir():
        return read_race(path)
    return read_regents(path) if path.suffix == ".csv" else read_questions(path)


def has_split(data: Path, split: str) -> bool:
    """Whether a data set has a split; :func:`find_split` checks whether it can be used.

    Raises:
        DataError: there is no such folder.
    """
    if not data.is_dir():
        raise DataError(f"{data}: no such folder")
    return bool(_candidates(data, split))


def find_split(data: Path, split: str) -> Path:
    """The file, or RACE's folder, of a split.

    Raises:
        DataError: it is missing or ambiguous.
    """
    found = [path for path in _candidates(data, split) if path.exists()]
    # Prefer jsonl to CSV: its choices need not be parsed from the question.
    kinds = {path.suffix for path in found}
    if {".jsonl", ".csv"} <= kinds:
        found = [path for path in found if path.suffix == ".jsonl"]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(
            f"{data}: several files for the split {split!r}: {', '.join(path.name for path in found)}. "
            "Put each data set into its own folder."
        )
    if not data.is_dir():
        raise DataError(f"{data}: no such folder")
    wanted = ", ".join(f"{name}.jsonl" for name in _names(split))
    raise DataError(
        f"{data}: no split {split!r}. Looked for {wanted}, for names that end similarly "
        "(ARC-Easy-Dev.jsonl), the same with .csv, and for a folder of RACE's articles."
    )


def _names(split: str) -> list[str]:
    return [*_SPLITS.get(split, (split,)), *([_OFFICIAL[split]] if split in _OFFICIAL else [])]


def _candidates(data: Path, split: str) -> list[Path]:
    if not data.is_dir():
        return []
    plain = {f"{name}{ending}" for name in _names(split) for ending in _ENDINGS}
    # ARC's and AI2's names: ARC-Easy-Train.jsonl.
    ends = tuple(f"-{name.capitalize()}{ending}" for name in _names(split) for ending in _ENDINGS)
    files = [path for path in sorted(data.iterdir()) if path.name in plain or path.name.endswith(ends)]
    base, _, level = split.partition("-")
    if level in LEVELS:
        names = [f"{name}/{level}" for name in _SPLITS.get(base, (base,))]
    else:
        names = list(_SPLITS.get(split, (split,)))
    return files + [data / name for name in names if any((data / name).rglob("*.txt"))]
