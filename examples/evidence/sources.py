"""The data of the evidence run: fixed splits of public files, binarised for fairseq.

A data folder has the splits train, valid (on which candidates are chosen), test, and attack (the first 200
rows of test).
"""

from __future__ import annotations

import csv
import hashlib
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from grid import ATTACKED_TASK
from word_attacks import NEIGHBOURS, attacked_file

ATTACKED = 200
NEEDED = ["sentence/rt-polarity.all", NEIGHBOURS] + [
    f"glue/{name}/{split}.tsv" for name in ("CoLA", "MRPC") for split in ("train", "dev")
]
Rows = list[list[str]]
# The header of GLUE's own file.
_SST_2 = ["sentence", "label"]


def by_hash(rows: Iterable[Sequence[str]]) -> Rows:
    """The rows in an order that depends only on their text."""
    return sorted(
        (list(row) for row in rows), key=lambda row: hashlib.sha256("\t".join(row).encode()).digest()
    )


def movie_reviews(path: Path) -> dict[str, Rows]:
    """Splits the reviews 80/10/10 into train, valid and test by a hash of the text, so that equal texts stay
    together.

    Raises:
        ValueError: a line does not have the form ``LABEL TEXT``.
    """
    parts: dict[str, Rows] = {"train": [], "valid": [], "test": []}
    for number, line in enumerate(path.read_text(encoding="latin-1").rstrip("\n").split("\n"), 1):
        label, _, text = line.partition(" ")
        if label not in ("0", "1") or not text.strip():
            raise ValueError(f"{path}:{number}: not '0 TEXT' or '1 TEXT'")
        tenth = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % 10
        split = {8: "valid", 9: "test"}.get(tenth, "train")
        parts[split].append([" ".join(text.split()), label])
    return {split: by_hash(rows) for split, rows in parts.items()}


def glue(folder: Path, has_head: bool) -> tuple[list[str], dict[str, Rows]]:
    """The header of a GLUE task's files (empty if they have none) and its rows; dev is halved by a hash."""
    found: dict[str, Rows] = {}
    head: list[str] = []
    for split in ("train", "dev"):
        with (folder / f"{split}.tsv").open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        if has_head:
            head, *rows = rows
        found[split] = by_hash(rows)
    return head, {"train": found["train"], "valid": found["dev"][::2], "test": found["dev"][1::2]}


def prepare(data: Path, out: Path, task: str, rows: int) -> None:
    """Makes OUT/data/TASK-ROWS, unless it is there.

    Args:
        data: contains :data:`NEEDED`.
        out: the run's output folder, with the encoder in it.
        task: its name in the grid.
        rows: how many training rows.

    Raises:
        ValueError: a file is damaged, or has fewer rows.
    """
    from fairseq_adv.data.io import whole_folder, write_whole

    folder = (out / "data" / f"{task}-{rows}").resolve()
    if folder.is_dir() and (task != ATTACKED_TASK or (out / attacked_file(task)).is_file()):
        return
    name, head, parts = _read(data, task, rows)
    if task == ATTACKED_TASK:
        write_whole(out / attacked_file(task), _tsv([["text", "label"], *parts["attack"]]))
    if folder.is_dir():
        return
    with whole_folder(folder) as scratch:
        for split in ("valid", "test", "attack"):
            _binarise(scratch / "parts" / split, name, head, parts["train"], parts[split], out)
            _take(scratch / "parts" / split / "bin", scratch, split)
        shutil.rmtree(scratch / "parts")


def _read(data: Path, task: str, rows: int) -> tuple[str, list[str], dict[str, Rows]]:
    """The GLUE task whose layout the files have, their header, and the rows of each split."""
    if task == "movie-reviews":
        name, head, parts = "SST-2", _SST_2, movie_reviews(data / "sentence" / "rt-polarity.all")
    else:
        name = task
        small.check_glue(data / "glue" / task, task)
        head, parts = glue(data / "glue" / task, has_head=task != "CoLA")
    if len(parts["train"]) < rows:
        raise ValueError(f"{data}: {task} has {len(parts['train'])} rows for training, not {rows}")
    return name, head, {**parts, "train": parts["train"][:rows], "attack": parts["test"][:ATTACKED]}


def _tsv(rows: Rows) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def _binarise(part: Path, name: str, head: list[str], train: Rows, dev: Rows, out: Path) -> None:
    """A folder from fairseq-adv prepare glue whose valid split is ``dev``."""
    source = part / "source" / name
    source.mkdir(parents=True)
    for split, rows in (("train", train), ("dev", dev)):
        lines = [head, *rows] if head else rows
        (source / f"{split}.tsv").write_text(_tsv(lines), encoding="utf-8")
    small.run_verb("prepare glue", part / "source", name, part / "bin", "--encoder", out / "encoder")


def _take(binarised: Path, folder: Path, split: str) -> None:
    """Moves the files of the valid split into ``folder`` as those of ``split``; for valid, all others too."""
    for source in sorted(path for path in binarised.rglob("*") if path.is_file()):
        target = folder / source.relative_to(binarised)
        is_first = split == "valid"
        if source.name.startswith("valid."):
            target = target.with_name(split + source.suffix)
        elif not is_first:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
