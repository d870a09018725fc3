"""Writes texts with classes or numbers to the folder that ``sentence_prediction`` and ``text_classification``
read: ``input0``, optionally ``input1``, ``label``, and the tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from fairseq.data import Dictionary
from tqdm import tqdm

from fairseq_adv.data.text.binarize import write_indexed
from fairseq_adv.data.tokenizers.saved_tokenizer import FOLDER, save_tokenizer, saved_files
from fairseq_adv.data.tokenizers.text_to_ids import Ids, TokenToIds
from fairseq_adv.data.workspace import Workspace

_CHUNK_ROWS = 1000


@dataclass(frozen=True)
class LabelledRows:
    """A split.

    Attributes:
        name: the split's name in fairseq.
        inputs: for each input, the list of its texts.
        labels: one label per row, as written; empty if there are none.
    """

    name: str
    inputs: Tuple[List[str], ...]
    labels: List[str]


@dataclass
class Prepared:
    """What was done to make a folder.

    Attributes:
        task: what was prepared, for messages.
        out: the folder.
        reused: nothing was done, because ``out`` was complete and made from the same input.
        rows: the number of examples of each split; empty if reused.
        tokens: number of ids written, including ``</s>``.
        unknown_tokens: number of ``<unk>`` among them.
        notes: messages for the user: missing test files, rows left out, tokens that are ``<unk>``.
    """

    task: str
    out: Path
    reused: bool = False
    rows: Dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    unknown_tokens: int = 0
    notes: List[str] = field(default_factory=list)


def write_folder(
    space: Workspace,
    splits: Sequence[LabelledRows],
    classes: Optional[Dictionary],
    tokenizer: TokenToIds,
    result: Prepared,
    progress: bool,
) -> None:
    """Writes all parts.

    Args:
        space: the folder.
        splits: all with the same number of inputs.
        classes: has every label; ``None``: the labels are numbers, which are written unchanged.
        tokenizer: gives the dictionary ids.
        result: records what was done.
        progress: show a progress bar.
    """
    result.rows.update((split.name, len(split.inputs[0])) for split in splits)
    _write_labels(space, splits, classes)
    _write_inputs(space, splits, tokenizer, result, progress)
    files = [f"{FOLDER}/{name}" for name in saved_files(tokenizer)]
    space.write(files, partial(save_tokenizer, tokenizer=tokenizer))


def _write_labels(space: Workspace, splits: Sequence[LabelledRows], classes: Optional[Dictionary]) -> None:
    labelled = [split for split in splits if split.labels]
    if classes is None:
        for split in labelled:
            text = "".join(label + "\n" for label in split.labels)
            _part(space, f"label/{split.name}", [".label"], partial(_write_text, text=text))
        return
    _part(space, "label/dict", [".txt"], partial(_save_dictionary, dictionary=classes))
    for split in labelled:
        ids = np.array([[classes.index(label), classes.eos()] for label in split.labels], dtype=np.int64)
        chunks = [(ids.reshape(-1), np.full(len(ids), 2, dtype=np.int64))]
        writer = partial(write_indexed, chunks=chunks, vocabulary_size=len(classes))
        _part(space, f"label/{split.name}", [".bin", ".idx"], writer)


def _write_inputs(
    space: Workspace,
    splits: Sequence[LabelledRows],
    tokenizer: TokenToIds,
    result: Prepared,
    progress: bool,
) -> None:
    total = sum(len(rows) for split in splits for rows in split.inputs)
    with tqdm(total=total, desc=result.task, unit="row", disable=not progress) as bar:
        for number in range(len(splits[0].inputs)):
            save = partial(_save_dictionary, dictionary=tokenizer.dictionary)
            _part(space, f"input{number}/dict", [".txt"], save)
            for split in splits:
                rows = split.inputs[number]
                chunks = _encoded(rows, tokenizer, result, bar)
                writer = partial(write_indexed, chunks=chunks, vocabulary_size=len(tokenizer.dictionary))
                _part(space, f"input{number}/{split.name}", [".bin", ".idx"], writer)
    if result.unknown_tokens:
        result.notes.append(
            f"{result.unknown_tokens} of {result.tokens} tokens are <unk>: not in the vocabulary or dict.txt"
        )


def _encoded(
    rows: Sequence[str], tokenizer: TokenToIds, result: Prepared, bar: Any
) -> Iterator[Tuple[Ids, Ids]]:
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        ids, lengths = tokenizer.encode(chunk)
        result.tokens += len(ids)
        result.unknown_tokens += int((ids == tokenizer.dictionary.unk()).sum())
        yield ids, lengths
        bar.update(len(chunk))


def _part(space: Workspace, prefix: str, endings: Sequence[str], writer: Callable[[Path], None]) -> None:
    """Calls ``writer(path without ending)`` to write ``prefix + ending``."""
    files = [prefix + ending for ending in endings]
    space.write(files, lambda folder: writer(folder / Path(prefix).name))


def _save_dictionary(prefix: Path, dictionary: Dictionary) -> None:
    dictionary.save(f"{prefix}.txt")


def _write_text(prefix: Path, text: str) -> None:
    Path(f"{prefix}.label").write_bytes(text.encode("ascii"))
