"""Texts with classes or numbers, their label dictionaries, and the folder that ``sentence_prediction`` and
``text_classification`` read: ``input0``, optionally ``input1``, ``label``, and the tokenizer.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from fairseq.data import Dictionary
from tqdm import tqdm

from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer
from fairseq_adv.data.tokenizers.text_to_ids import Ids, TokenToIds
from fairseq_adv.data.workspace import Prepared

_CHUNK_ROWS = 1000
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class LabelledRows:
    """A split."""

    name: str  # the split's name in fairseq
    inputs: Tuple[List[str], ...]  # for each input, the list of its texts
    labels: List[str]  # one label per row, as written; empty if there are none
    where: List[str]  # the place of each row, "file:line"
    dropped: int = 0  # number of rows of the file that were left out

    def picked(self, name: str, rows: Sequence[int]) -> LabelledRows:
        """These rows, as a split with another name."""
        inputs = tuple([texts[row] for row in rows] for texts in self.inputs)
        labels = [self.labels[row] for row in rows] if self.labels else []
        return LabelledRows(name, inputs, labels, [self.where[row] for row in rows])


def write_folder(
    folder: Path,
    splits: Sequence[LabelledRows],
    classes: Optional[Dictionary],
    tokenizer: TokenToIds,
    result: Prepared,
    progress: bool,
) -> None:
    """Writes all parts.

    Args:
        classes: has every label; ``None``: the labels are numbers, which are written unchanged.
    """
    result.rows.update((split.name, len(split.inputs[0])) for split in splits)
    _write_labels(folder / "label", splits, classes)
    total = sum(len(rows) for split in splits for rows in split.inputs)
    with tqdm(total=total, desc=result.task, unit="row", disable=not progress) as bar:
        for number in range(len(splits[0].inputs)):
            part = folder / f"input{number}"
            part.mkdir()
            tokenizer.dictionary.save(str(part / "dict.txt"))
            for split in splits:
                rows = _encoded(split.inputs[number], tokenizer, result, bar)
                write_indexed(part / split.name, rows, len(tokenizer.dictionary))
    if result.unknown_tokens:
        result.notes.append(
            f"{result.unknown_tokens} of {result.tokens} tokens are <unk>: not in the vocabulary or dict.txt"
        )
    (folder / FOLDER).mkdir()
    save_tokenizer(folder / FOLDER, tokenizer)


def _write_labels(folder: Path, splits: Sequence[LabelledRows], classes: Optional[Dictionary]) -> None:
    folder.mkdir()
    if classes is not None:
        classes.save(str(folder / "dict.txt"))
    for split in splits:
        if not split.labels:
            continue
        if classes is None:
            text = "".join(label + "\n" for label in split.labels)
            (folder / f"{split.name}.label").write_bytes(text.encode("ascii"))
        else:
            ids = np.array([[classes.index(label), classes.eos()] for label in split.labels], dtype=np.int64)
            lengths = np.full(len(ids), 2, dtype=np.int64)
            write_indexed(folder / split.name, [(ids.reshape(-1), lengths)], len(classes))


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


def label_dictionary(labels: Sequence[str]) -> Dictionary:
    """The dictionary that ``fairseq-preprocess`` builds from a label file: most frequent first, then by name.

    It is padded with "madeupword" entries to a multiple of 8 types, fairseq's default.
    """
    dictionary = Dictionary()
    for label, count in Counter(labels).items():
        dictionary.add_symbol(label, n=count)
    dictionary.finalize(padding_factor=8)
    return dictionary


def class_dictionary(labels: Sequence[str]) -> Dictionary:
    """A dictionary of the classes in :func:`class_order`, without padding.

    fairseq splits a line of such a file at the last space, so class names may contain spaces.
    """
    counts = Counter(labels)
    dictionary = Dictionary()
    for name in class_order(counts):
        dictionary.add_symbol(name, n=counts[name])
    return dictionary


def class_order(names: Iterable[str]) -> List[str]:
    """Orders classes by value if all are numbers, else by name."""
    names = sorted(names)
    return sorted(names, key=float) if all(map(_NUMBER.fullmatch, names)) else names


def class_names(dictionary: Dictionary) -> List[str]:
    """The classes in a label dictionary, without the special and padding symbols that fairseq adds."""
    symbols = [str(dictionary[i]) for i in range(dictionary.nspecial, len(dictionary))]
    return [one for one in symbols if one != "<mask>" and not one.startswith("madeupword")]
