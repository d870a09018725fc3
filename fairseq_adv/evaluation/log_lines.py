"""The lines of numbers in a log that fairseq-train wrote, with any ``--log-format``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INNER, TRAIN, VALID = "train_inner", "train", "valid"

_NUMBER = r"(-?(?:\d[\d.]*(?:e[+-]?\d+)?|nan|inf))"
# A score of one of several data sets has the data set's name in its own: accuracy_ARC-Easy.
_PIPES = re.compile(rf"\| ([\w./-]+) {_NUMBER}(?= |$)")
_COMMAS = re.compile(rf"[ ,]([\w./-]+)={_NUMBER}(?=,|$)")
# Before it: nothing in a --log-file, fairseq's time, level and name in what it prints.
_EPOCH = re.compile(r"(?:^|\| )epoch (?P<epoch>\d+)(?P<rest>:? .*)$")
_VALID = re.compile(r"^ \| valid on '([^']*)' subset \|")
_UPDATES = "num_updates"


@dataclass(frozen=True)
class LogLine:
    """One line of averages.

    Attributes:
        kind: :data:`INNER` for what ``--log-interval`` makes, :data:`TRAIN` for a training epoch's averages,
            :data:`VALID` for a validation.
        values: fairseq's names and numbers, without a prefix; ``epoch`` and ``num_updates`` are among them.
        split: which one was validated; "" in the other kinds.
    """

    kind: str
    values: dict[str, float]
    split: str = ""

    @property
    def updates(self) -> int:
        """Number of updates made."""
        return int(self.values[_UPDATES])

    @property
    def loss_nats(self) -> float:
        """The mean loss in nats; fairseq logs ``loss`` in bits. NaN where the line has none."""
        values = self.values
        return values["loss_nats"] if "loss_nats" in values else values.get("loss", math.nan) * math.log(2)


def read_lines(path: Path) -> list[str]:
    """The lines of a log file.

    Raises:
        ValueError: the file is not text.
        FileNotFoundError: there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such log; fairseq-train writes one with --log-file")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: is not a text file; give the file that fairseq-train --log-file wrote"
        ) from error


def log_lines(lines: list[str]) -> Iterator[LogLine]:
    """The lines of numbers among those of a log, in order. A line may come several times.

    fairseq adds a log handler with every progress bar: later epochs' lines are repeated.
    """
    for line in lines:
        if _UPDATES not in line:
            continue
        found = _json_line(line) if line.rstrip().endswith("}") else _plain_line(line)
        if found is not None and _UPDATES in found.values:
            yield found


def _plain_line(line: str) -> LogLine | None:
    match = _EPOCH.search(line)
    if match is None:
        return None
    epoch, rest = float(match["epoch"]), match["rest"]
    if rest.startswith(":"):
        return LogLine(INNER, {"epoch": epoch, **_numbers(_COMMAS, rest)})
    valid = _VALID.match(rest)
    values = {"epoch": epoch, **_numbers(_PIPES, rest)}
    return LogLine(VALID, values, valid[1]) if valid else LogLine(TRAIN, values)


def _numbers(pattern: re.Pattern[str], text: str) -> dict[str, float]:
    return {name: float(value) for name, value in pattern.findall(text)}


def _json_line(line: str) -> LogLine | None:
    values = json_object(line)
    key = next((key for key in values if key.endswith(_UPDATES)), _UPDATES)
    prefix = key[: -len(_UPDATES)]  # "", "train_", or the split's name and "_"
    numbers = {"epoch": _number(values.get("epoch"))}
    numbers.update((name[len(prefix) :], _number(v)) for name, v in values.items() if name.startswith(prefix))
    kept = {name: value for name, value in numbers.items() if value is not None}
    if prefix in ("", "train_"):
        return LogLine(TRAIN if prefix else INNER, kept)
    return LogLine(VALID, kept, prefix[:-1])


def _number(value: Any) -> float | None:
    """fairseq writes its averages as strings."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def json_object(line: str) -> dict[str, Any]:
    """The json object that a line ends in; empty if there is none."""
    try:
        found = json.loads(line[line.index("{") :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
