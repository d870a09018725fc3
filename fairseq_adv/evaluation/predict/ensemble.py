"""A model's scores for each row: computed, stored in a file, and combined with those of other models."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fairseq.data import FairseqDataset
from scipy import special

from fairseq_adv.data.checked_json import parsed
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_open, breaks_a_line
from fairseq_adv.data.temperature import TEMPERATURE, THRESHOLDS
from fairseq_adv.evaluation.class_report import softmax
from fairseq_adv.evaluation.trained import Trained

FloatArray = npt.NDArray[np.float32]
StringArray = npt.NDArray[np.str_]

# The meaning of a row's columns: classes, a number (regression), choices, the query and its rivals, or labels
# of which any may hold.
KINDS = ("classes", "values", "choices", "phrases", "labels")
_ARRAYS = ("ids", "labels", "log_probs", "raw", "gold")
# What ``made_from`` may have of the rows before they were tokenised, so that members with different
# tokenizers can be compared: the manifest of prepared data tells.
TEXTS = ("rows (sha256)", "input file (sha256)")
_FORMAT = 1
_LARGEST = 2 << 30  # bytes of a file's arrays: those of QQP are some 30 MB


@dataclass(frozen=True)
class Scores:
    """n examples with up to C columns."""

    kind: str  # one of ``KINDS``
    task: str  # such as "RTE" or "arc"
    split: str  # fairseq's name of the split
    ids: StringArray  # (n,) the examples' names, which must be unique
    # (n, C) or, if all rows have the same, (1, C) names of the columns; "" for missing columns
    labels: StringArray
    log_probs: FloatArray  # (n, C) fp32, -inf for missing columns; for a regression the values
    raw: FloatArray  # (n, C) fp32, the model's output before normalisation
    gold: StringArray  # (n,) the right label, "" if unknown
    made_from: Mapping[str, Any] = field(default_factory=dict)  # the checkpoint, the data and the precision
    name: str = "scores"  # of the checkpoint or file, for messages
    temperature: float = 1.0  # of the model; it changes none of the above, but :meth:`shares`
    thresholds: Mapping[str, float] = field(
        default_factory=dict
    )  # of the labels that have one, if any may hold

    def __post_init__(self) -> None:
        if fault := self._fault():
            raise DataError(f"{self.name}: {fault}")

    def _fault(self) -> str:
        """What is wrong with the arrays, which may come from a file; "" if nothing is."""
        shape = self.log_probs.shape
        if not (
            len(shape) == 2
            and 0 not in shape
            and self.ids.shape == self.gold.shape == shape[:1]
            and self.raw.shape == shape
            and self.labels.shape in (shape, (1, shape[1]))
            and all(names.dtype.kind == "U" for names in (self.ids, self.labels, self.gold))
            and all(scores.dtype == np.float32 for scores in (self.log_probs, self.raw))
            and self.kind in KINDS
        ):
            return "its arrays don't match each other. Make the file again."
        present = np.isfinite(self.log_probs)
        bad = ~(present | np.isneginf(self.log_probs)) | (present & ~np.isfinite(self.raw))
        bad |= ~present.any(axis=1, keepdims=True)
        if bad.any():
            row = self.ids[int(bad.any(axis=1).argmax())]
            return f"the scores of row {row} are not finite. Did the training diverge?"
        names = np.concatenate([np.unique(names) for names in (self.ids, self.labels, self.gold)]).tolist()
        if odd := [name for name in names if breaks_a_line(name)]:
            return f"{odd[0]!r:.60} can't be written as a label. Rename it."
        repeated = [name for name, count in Counter(self.ids.tolist()).items() if count > 1]
        return f"two examples have the id {repeated[0]}. Ids must be unique." if repeated else ""

    def shares(self) -> FloatArray:
        """(n, C) fp32 probabilities at the model's temperature."""
        if self.kind == "labels":
            return special.expit(self.raw)  # type: ignore[no-any-return]
        return softmax(self.log_probs / np.float32(self.temperature)).astype(np.float32)

    @property
    def labels_of_rows(self) -> StringArray:
        """(n, C) the columns' names, row by row."""
        return np.broadcast_to(self.labels, self.log_probs.shape)

    def save(self, path: Path) -> None:
        """Writes a file for :meth:`load`, atomically; it contains no pickle."""
        about = {
            "format": _FORMAT,
            "kind": self.kind,
            "task": self.task,
            "split": self.split,
            "made_from": dict(self.made_from),
            "temperature": self.temperature,
            "thresholds": dict(self.thresholds),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with atomic_open(path) as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)

    @staticmethod
    def load(path: Path) -> Scores:
        """Reads a file written by :meth:`save`."""
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > _LARGEST:
                    raise ValueError(f"larger than {_LARGEST >> 20} MiB when unpacked")
            with np.load(path, allow_pickle=False) as file:
                about = parsed(str(file["about"]))
                arrays = {name: file[name] for name in _ARRAYS}
            kind, task, split = (about[key] for key in ("kind", "task", "split"))
            made_from, thresholds = dict(about["made_from"]), about.get("thresholds", {})
            temperature = about.get("temperature", 1.0)  # 0.3 wrote none
            if about["format"] != _FORMAT or not (TEMPERATURE[1](temperature) and THRESHOLDS[1](thresholds)):
                raise ValueError(f"format {about['format']}, temperature {temperature}")
        except (
            ValueError, KeyError, TypeError, OSError, EOFError, MemoryError, zlib.error,
            zipfile.BadZipFile,
        ) as error:  # fmt: skip
            raise DataError(
                f"{path}: not a file of scores ({error}). Pass an .npz written by fairseq-adv predict."
            ) from error
        return Scores(
            kind, task, split, **arrays, made_from=made_from, name=str(path), temperature=float(temperature),
            thresholds=thresholds,
        )  # fmt: skip


@dataclass(frozen=True)
class ScoredRows:
    """Rows of input whose columns a model scores.

    Attributes:
        kind, ids, labels, gold: as in :class:`Scores`.
    """

    dataset: FairseqDataset  # item i is row i of the arrays, and ``sample["id"]`` contains such positions
    kind: str
    ids: StringArray
    labels: StringArray
    gold: StringArray
    digest: str = ""  # SHA-256 of everything that determines the model's input; "" if it isn't known
    texts: Mapping[str, str] = field(default_factory=dict)  # what is known of ``TEXTS``

    def decode(self, trained: Trained, progress: bool) -> Scores:
        """Runs a model over the rows."""
        n, columns = len(self.ids), self.labels.shape[1]
        log_probs = np.full((n, columns), -np.inf, dtype=np.float32)
        raw = log_probs.copy()
        for sample, predictions in trained.predictions(self.dataset, self.ids.tolist(), progress):
            at, width = sample["id"].cpu().numpy(), predictions.shape[1]
            log_probs[at, :width] = trained.objective.log_probabilities(predictions).cpu().numpy()
            raw[at, :width] = predictions.cpu().numpy()
        bad = ~np.isfinite(np.where(self.labels != "", log_probs, 0)).all(axis=1)
        if bad.any():
            raise trained.not_finite(f"row {self.ids[int(bad.argmax())]}: ")
        return Scores(
            self.kind, "texts", "", self.ids, self.labels, log_probs, raw, self.gold, name=str(trained.path)
        )


def join(members: Sequence[Scores]) -> Scores:
    """The means over the members, whose rows and columns are reordered to match the first."""
    first = members[0]
    aligned = [first] + [_aligned(first, member) for member in members[1:]]
    gold = first.gold
    for member in aligned[1:]:
        gold = np.where(gold == "", member.gold, gold)
    return replace(
        first,
        log_probs=_mean([member.log_probs for member in aligned]),
        raw=_mean([member.raw for member in aligned]),
        gold=gold,
        temperature=1.0 if len(members) > 1 else first.temperature,  # they are those of single models
        thresholds={} if len(members) > 1 else first.thresholds,
    )


def _mean(members: Sequence[FloatArray]) -> FloatArray:
    mean: FloatArray = np.stack(members).astype(np.float64).mean(axis=0).astype(np.float32)
    return mean


def _aligned(first: Scores, other: Scores) -> Scores:
    """The other's rows and columns in the order of the first."""
    if difference := _difference(first, other):
        raise _mismatch(other, difference)
    row_of = {name: row for row, name in enumerate(other.ids.tolist())}
    rows = [row_of[name] for name in first.ids.tolist()]
    other = replace(
        other,
        ids=other.ids[rows],
        labels=other.labels[rows] if len(other.labels) > 1 else other.labels,
        log_probs=other.log_probs[rows],
        raw=other.raw[rows],
        gold=other.gold[rows],
    )
    other = _with_columns_of(first, other)
    differ = (first.gold != other.gold) & (first.gold != "") & (other.gold != "")
    if differ.any():
        row = int(differ.argmax())
        right = f"the right answer is {other.gold[row]}, but in {first.name} it is {first.gold[row]}"
        raise _mismatch(other, f"row {first.ids[row]}: {right}")
    return other


def _difference(first: Scores, other: Scores) -> str:
    """What tells the data of one from those of the other; "" if they may be the same."""
    for what in ("kind", "task", "split"):
        ours, theirs = getattr(first, what), getattr(other, what)
        if ours != theirs:
            return f"its {what} is {theirs!r}, but that of {first.name} is {ours!r}"
    # Rows of texts are named by number alone: other texts have the same ids. The labels are among what was
    # hashed, so that rows with and without them can't be compared.
    hashed = set(TEXTS) & set(first.made_from) & set(other.made_from)
    if any(first.made_from[name] != other.made_from[name] for name in hashed) and (
        (first.gold != "").any() == (other.gold != "").any()
    ):
        return f"has scores of other rows than {first.name}"
    if odd := sorted({*first.ids.tolist()} ^ {*other.ids.tolist()}):
        return f"has other rows than {first.name}: {len(odd)} are in one of them only, such as {odd[0]}"
    return ""


def _mismatch(other: Scores, difference: str) -> DataError:
    return DataError(f"{other.name}: {difference}. Predict with all members of an ensemble on the same data.")


def _with_columns_of(first: Scores, other: Scores) -> Scores:
    """Reorders the columns to match the first; label dictionaries, or the choices of a question, may
    differ."""
    if first.labels.shape == other.labels.shape and (first.labels == other.labels).all():
        return other
    log_probs = np.full(first.log_probs.shape, -np.inf, dtype=np.float32)
    raw = log_probs.copy()
    for row in range(len(first.ids)):
        at = _order(first, other, row)
        log_probs[row, : len(at)], raw[row, : len(at)] = other.log_probs[row, at], other.raw[row, at]
    return replace(other, labels=first.labels, log_probs=log_probs, raw=raw)


def _order(first: Scores, other: Scores, row: int) -> list[int]:
    """Finds, for each column of the first, the column of the other with the same label."""
    wanted, names = _names(first, row), _names(other, row)
    # A query and its rivals are phrases: the same phrase may occur twice, and the first is the query.
    if wanted != names and (first.kind == "phrases" or sorted(wanted) != sorted(names)):
        difference = f"has the choices {', '.join(names)}, but in {first.name} it has {', '.join(wanted)}"
        raise _mismatch(other, f"row {first.ids[row]} {difference}")
    return list(range(len(wanted))) if wanted == names else [names.index(label) for label in wanted]


def _names(scores: Scores, row: int) -> list[str]:
    """A row's labels without the padding after them."""
    names: list[str] = scores.labels_of_rows[row].tolist()
    while names and not names[-1]:
        names.pop()
    return names
