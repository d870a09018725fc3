"""Writes and checks the folder of labelled texts: ``input0``, optionally ``input1``, ``label``, and the
tokenizer.

fairseq reads it without checks. A truncated file causes an error deep in numpy, or wrong rows. A split
without an index of labels has no labels, which only shows in the first update.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from fairseq.data import Dictionary
from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tables.labelled_rows import LabelledRows, is_float32
from fairseq_adv.data.tables.several_labels import labels_in
from fairseq_adv.data.text.indexed import check_indexed, parts_of, read_index, write_indexed
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer
from fairseq_adv.data.tokenizers.text_to_ids import Ids, TokenToIds, digest_of_entries, load_dictionary
from fairseq_adv.data.workspace import Prepared

SEVERAL = "labels"
"""``kind`` in the manifest of a folder whose rows may have several labels, or none."""

_CHUNK_ROWS = 1000
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
_AGAIN = "Was the folder copied only in part? Prepare it again."


# ---- writing


def write_folder(
    folder: Path,
    splits: Sequence[LabelledRows],
    classes: Optional[Dictionary],
    tokenizer: TokenToIds,
    result: Prepared,
    progress: bool,
    several: bool = False,
) -> None:
    """Writes all parts into an empty folder.

    Args:
        classes: has every label; ``None``: the labels are numbers, which are written unchanged.
        several: the labels of a row are :func:`~fairseq_adv.data.tables.several_labels.joined_labels`.
    """
    result.rows.update((split.name, len(split.inputs[0])) for split in splits)
    _write_labels(folder / "label", splits, classes, several)
    total = sum(len(rows) for split in splits for rows in split.inputs)
    with tqdm(total=total, desc=result.task, unit="text", disable=not progress) as bar:
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


def _write_labels(
    folder: Path, splits: Sequence[LabelledRows], classes: Optional[Dictionary], several: bool
) -> None:
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
            names = [labels_in(label) if several else [label] for label in split.labels]
            rows = [[*sorted(map(classes.index, row)), classes.eos()] for row in names]
            lengths = np.array([len(row) for row in rows], dtype=np.int64)
            ids = np.array(list(chain(*rows)), dtype=np.int64)
            write_indexed(folder / split.name, [(ids, lengths)], len(classes))


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


def class_dictionary(labels: Sequence[str], names: Sequence[str] = ()) -> Dictionary:
    """A dictionary of the classes in :func:`class_order`, or in that of their ``names``, without padding.

    fairseq splits a line of such a file at the last space, so class names may contain spaces.
    """
    counts = Counter(labels)
    dictionary = Dictionary()
    for name in names or class_order(counts):
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


def known_labels(cfg: Any, extra: Any) -> List[str]:
    """The names of a checkpoint's classes in the model's order; empty if they are unknown, or there are none.

    Our task stores them in the checkpoint; with fairseq's own they come from the training data, if it
    still exists.

    Args:
        cfg: the configuration in the checkpoint.
        extra: its ``extra_state``; ``None``: the user says that the folder has its classes.

    Raises:
        DataError: the training data now has other classes, or another order of them.
    """
    names = getattr(cfg.task, "class_names", None)
    if names:
        return [str(name) for name in names]
    has_numbers = getattr(cfg.task, "regression_target", False)  # the digest is then of the words
    return labels_of_data(str(getattr(cfg.task, "data", "") or ""), None if has_numbers else extra)


def labels_of_data(folder: str, extra: Any) -> List[str]:
    """:func:`known_labels` of a checkpoint of fairseq's own task, from the folder that it was trained on."""
    file = Path(folder) / "label" / "dict.txt"
    if not folder or not file.is_file():
        return []
    dictionary = load_dictionary(file)
    check_class_order(dictionary, extra, file)
    return class_names(dictionary)


def digest_of_classes(extra: Any) -> str | None:
    """What a checkpoint's ``extra_state`` tells of its classes and their order; before 0.4 nothing."""
    kept = (extra or {}).get("data")
    digest = kept.get("classes") if isinstance(kept, dict) else None
    return digest if isinstance(digest, str) else None


def check_class_order(dictionary: Dictionary, extra: Any, file: Path) -> None:
    """Raises DataError if a checkpoint was trained on other classes, or on these in another order.

    Args:
        dictionary: the classes of data that it is about to read; gets ``<mask>``, as in fairseq's task.
        extra: the checkpoint's ``extra_state``, which has the digest of its own.
        file: where they stand.
    """
    dictionary.add_symbol("<mask>")
    names = class_names(dictionary)
    before, others = digest_of_classes(extra), map(partial(_digest_in_fairseq, names), (1, 8))
    if before is not None and before not in {digest_of_entries(dictionary), *others}:
        raise DataError(
            f"{file}: has other classes, or another order of them, than when the checkpoint was trained. "
            "Prepare the folder from the same rows again"
        )


def _digest_in_fairseq(names: Sequence[str], multiple: int) -> str:
    """That of the dictionary in fairseq's task; fairseq-preprocess pads it to a multiple of 8."""
    dictionary = Dictionary()
    for name in names:
        dictionary.add_symbol(name)
    dictionary.pad_to_multiple_(multiple)
    dictionary.add_symbol("<mask>")
    return digest_of_entries(dictionary)


def count_classes(folder: Path, split: str) -> List[int]:
    """How many rows of a split, and of ``SPLIT1``, ``SPLIT2``, … which fairseq adds to a training split, have
    each of the classes of ``label/dict.txt``.

    Raises:
        DataError: the labels are missing or damaged.
    """
    classes = load_dictionary(folder / "label" / "dict.txt")
    counts: Counter[int] = Counter()
    for index in parts_of(folder / "label" / split, True):
        _check_classes(index, classes)
        counts.update(read_index(index, _AGAIN).ids().reshape(-1, 2)[:, 0].tolist())
    return [counts[classes.index(name)] for name in class_names(classes)]


# ---- checking


def check_split(
    folder: Path, split: str, is_regression: bool, combine: bool = False, several: bool = False
) -> None:
    """Checks a split, with or without labels, as every command does when it opens one.

    Args:
        folder: with ``input0``, optionally ``input1``, and ``label``.
        combine: check ``SPLIT1``, ``SPLIT2``, … too, which fairseq adds to a training split.
        several: a row may have several labels, or none.

    Raises:
        DataError: a file is missing or damaged, the files don't belong together, or a row is not one that
            training can read: without tokens, or with another label than one class; names the row.
    """
    parts = [folder / "input0", *(part for part in [folder / "input1"] if part.is_dir())]
    words = {part: len(load_dictionary(part / "dict.txt")) for part in parts}
    classes = None if is_regression else load_dictionary(folder / "label" / "dict.txt")
    for index in parts_of(folder / "input0" / split, combine):
        rows = {
            part / index.name: check_indexed(part / index.name, size, _AGAIN).rows
            for part, size in words.items()
        }
        labels = _labels_of(folder, index.stem, is_regression)
        if labels.is_file():
            rows[labels] = (
                _check_numbers(labels) if classes is None else _check_classes(labels, classes, several)
            )
        for file, count in rows.items():
            if count != rows[index]:
                raise DataError(f"{file}: has {count} rows, but {index} has {rows[index]}. {_AGAIN}")


def _check_classes(index: Path, classes: Dictionary, several: bool = False) -> int:
    """The number of rows of an index of labels, each a class and ``</s>``; or several, ascending, or none."""
    head = read_index(index, _AGAIN)
    head.check_rows(_AGAIN)
    lengths, first = head.lengths(), classes.nspecial
    is_odd = np.asarray(lengths != 2)
    if several:
        is_odd = _odd_sets(head.ids(), lengths, first + len(class_names(classes)), classes)
    elif not is_odd.any():
        labels, ends = head.ids().reshape(-1, 2).T
        is_odd = (labels < first) | (labels >= first + len(class_names(classes))) | (ends != classes.eos())
    if is_odd.any():
        row = int(is_odd.argmax())
        start = int(lengths[:row].sum(dtype=np.int64))
        ids = head.ids()[start : start + lengths[row]][:4].tolist()
        label = " ".join(str(classes[one]) if one < len(classes) else str(one) for one in ids)
        wanted = "different labels of dict.txt, in its order," if several else "a class of dict.txt"
        raise DataError(
            f"{index.with_suffix('.bin')}: the label of row {row + 1} is {label!r}, not {wanted} and </s>. "
            f"{_AGAIN}"
        )
    return head.rows


def _odd_sets(ids: Ids, lengths: Any, end: int, classes: Dictionary) -> Any:
    """(rows,) bool: whether a row is other than ascending ids of labels, below ``end``, and one ``</s>``."""
    owner, last = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths) - 1
    is_last = np.zeros(len(ids), dtype=bool)
    is_last[last[lengths > 0]] = True
    is_label = (ids >= classes.nspecial) & (ids < end)
    is_label[1:] &= (ids[1:] > ids[:-1]) | is_last[:-1]
    good = np.where(is_last, ids == classes.eos(), is_label)
    return (np.bincount(owner, ~good, len(lengths)) > 0) | (lengths == 0)


def check_labels(folder: Path, splits: Iterable[str], is_regression: bool) -> None:
    """Checks that existing splits have labels, for training and evaluation."""
    for split in splits:
        labels = _labels_of(folder, split, is_regression)
        if (folder / "input0" / f"{split}.idx").is_file() and not labels.is_file():
            raise DataError(
                f"{labels}: no such file: the split {split!r} has no labels. {_AGAIN} Or choose another "
                "split."
            )


def _check_numbers(labels: Path) -> int:
    """The number of rows of a regression's labels, one or more numbers in each."""
    lines = text_lines(labels)
    for number, line in enumerate(lines, 1):
        try:
            is_good = bool(line.split()) and all(is_float32(float(word)) for word in line.split())
        except ValueError:
            is_good = False
        if not is_good:
            raise DataError(f"{labels}:{number}: {line!r:.40} is not a finite number of float32. Correct it.")
    return len(lines)


def _labels_of(folder: Path, split: str, is_regression: bool) -> Path:
    """The file whose existence shows whether a split has labels."""
    return folder / "label" / (f"{split}.label" if is_regression else f"{split}.idx")
