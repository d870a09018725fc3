"""The numbers in a log written by fairseq-train with ``--log-format json``: its lines, and its epochs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import breaks_a_line, whole

INNER, TRAIN, VALID = "train_inner", "train", "valid"
# Logged by fairseq and the criterions in bits: log2(e) times the training loss.
IN_BITS = ("loss", "nll_loss", "task_loss")
_UPDATES = "num_updates"
_ANEW = (" | No existing checkpoint found ", " | loading pretrained model from ")  # a run that doesn't resume
_START = "{'_name': None, 'common'"  # how the configuration begins, in the first line of a start
# After a validation: a signal's checkpoint has no score.
_SAVED = re.compile(r"Saved checkpoint .* \(epoch \d+ @ (\d+) updates, score (?!None)")


class NoNumbers(DataError):
    """A log in which no update has left numbers, such as that of a run that has just begun."""


# Options that may differ between runs of one setting: 'seed': 1, seed=1.
_OWN = re.compile(
    r"\b(seed|no_seed_provided|save_dir|log_file|tensorboard_logdir|wandb_project|aim_\w+|device_id"
    r"|distributed_(init_method|port)|job_logging_cfg)'?(: |=)('[^']*'|[^,)}]*)"
)


@dataclass(frozen=True)
class LogLine:
    """One line of averages. fairseq writes a number with six significant digits."""

    # :data:`INNER` for lines of ``--log-interval``, :data:`TRAIN` for a training epoch's averages,
    # :data:`VALID` for a validation
    kind: str
    # fairseq's names and numbers, without a prefix; includes ``epoch`` and ``num_updates``
    values: dict[str, float]
    split: str = ""  # the validated split; "" for the other kinds

    @property
    def updates(self) -> int:
        """Number of updates made."""
        return int(self.values[_UPDATES])

    @property
    def loss_nats(self) -> float:
        """The mean loss in nats; fairseq logs ``loss`` in bits. NaN if the line has none."""
        return loss_nats(self.values)


def loss_nats(values: Mapping[str, float]) -> float:
    """The mean loss in nats among a line's values; NaN if there is none."""
    return values["loss_nats"] if "loss_nats" in values else values.get("loss", math.nan) * math.log(2)


def log_lines(path: Path) -> list[LogLine]:
    """The lines of numbers of a log file, in order. A line may occur several times.

    fairseq adds a log handler with every progress bar: later epochs' lines are repeated. A start that went
    back, to an earlier checkpoint or to none, replaces what earlier starts had logged from there on.

    Raises:
        FileNotFoundError: there is no such file.
        NoNumbers: there is no such line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such log. fairseq-train writes one with --log-file")
    try:
        text = whole(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not a text file. Pass the file that fairseq-train --log-file wrote"
        ) from error
    lines: list[LogLine] = []
    is_anew = False
    for line in text.splitlines():
        is_anew = is_anew or any(words in line for words in _ANEW)
        found = _log_line(line)
        if found is None:
            continue
        if is_anew:
            lines, is_anew = [], False
        if lines and found.updates < lines[-1].updates:
            while lines and lines[-1].updates >= found.updates:
                lines.pop()
        lines.append(found)
    if not lines:
        raise NoNumbers(
            f"{path}: no JSON lines of numbers. If the run has just begun, wait for its first validation. "
            "fairseq-train writes them with --log-format json and --log-file: pass that file"
        )
    return lines


def unsaved_updates(path: Path) -> set[int]:
    """The numbers of updates after which a run was validated, but no checkpoint was saved.

    A start that logs no checkpoint at all, as with fairseq-train's own ``--log-file``, may have saved any.
    """
    unsaved: set[int] = set()
    validated: set[int] = set()
    saved: set[int] = set()
    for line in [*whole(path).decode("utf-8", "replace").splitlines(), _START]:
        if _START in line:
            unsaved = (unsaved | validated) - (saved or validated)
            validated, saved = set(), set()
        elif any(words in line for words in _ANEW):
            unsaved = set()
        elif written := _SAVED.search(line):
            saved.add(int(float(f"{int(written[1]):.6g}")))  # as in lines of numbers
        elif (found := _log_line(line)) is not None and found.kind == VALID:
            validated.add(found.updates)
    return unsaved


def logged_options(path: Path, section: str) -> dict[str, str]:
    """The options in a section of the configuration, as printed in the log's first lines; may be empty.

    Args:
        section: such as "criterion"; its ``_name`` is included. If the run was started several times, the
            last start that trained is used.
    """
    value = r"""(?:'[^']*'|"[^"]*"|[^{}'"])*"""  # texts may have braces: 'optimizer_overrides': '{}'
    found = re.findall(rf"'{section}': \{{({value})\}}", "\n".join(_until_last_numbers(path)))
    pairs = re.findall(r"'(\w+)': ('[^']*'|\[[^\[\]]*\]|[^,]+)", found[-1]) if found else []
    return {name: value.strip("'") for name, value in pairs}


def logged_configuration(path: Path) -> str:
    """The line with all options; of several starts, the last one's that trained. "" if there is none."""
    lines = reversed(_until_last_numbers(path))
    return next((line[line.index("{'_name'") :] for line in lines if _START in line), "")


def _until_last_numbers(path: Path) -> list[str]:
    """A log without what follows its last numbers, such as a start that was refused for its options."""
    lines = whole(path).decode("utf-8", "replace").splitlines()
    ends = (k for k in range(len(lines), 0, -1) if _log_line(lines[k - 1]) is not None)
    return lines[: next(ends, len(lines))]


def seed_and_setting(configuration: str) -> tuple[str, str]:
    """The seed in fairseq's configuration, and all of it but the seed and the run's own places.

    Args:
        configuration: as text.
    """
    seed = re.search(r"\bseed'?(?:: |=)(\d+)", configuration)
    return ("", "") if seed is None else (seed[1], _OWN.sub("", configuration))


def _log_line(line: str) -> LogLine | None:
    values = json_at_end(line)
    key = next((key for key in values if key.endswith(_UPDATES)), None)
    if key is None:
        return None
    updates = _number(values[key])
    if updates is None or not 0 <= updates < math.inf or any(map(breaks_a_line, values)):
        return None  # not a line of fairseq's
    prefix = key[: -len(_UPDATES)]  # "", "train_", or the split's name and "_"
    names = {name: name[len(prefix) :] for name in values if name.startswith(prefix)}
    numbers = {short: _number(values.get(name)) for name, short in {"epoch": "epoch", **names}.items()}
    kept = {name: value for name, value in numbers.items() if value is not None}
    if prefix in ("", "train_"):
        return LogLine(TRAIN if prefix else INNER, kept)
    return LogLine(VALID, kept, prefix[:-1])


def _number(value: Any) -> float | None:
    """fairseq writes its averages as strings."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def json_at_end(line: str) -> dict[str, Any]:
    """The JSON object at the end of a line; empty if there is none."""
    try:
        found = json.loads(line[line.index("{") :])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass
class RunLog:
    """The epochs of one run."""

    # fairseq's averages over each training epoch, by name (loss, adv_ratio, ups, …)
    train: list[dict[str, float]]
    valid: list[dict[str, float]]  # fairseq's scores on the first validation set after each epoch
    # fairseq's averages since the previous line, for each line of ``--log-interval``
    inner: list[dict[str, float]]


def read_log(path: Path, is_validated: bool = True, is_trained: bool = True) -> RunLog:
    """Reads a log written by ``fairseq-train --log-format json --log-file``.

    Args:
        is_validated: refuse a log without a validation.
        is_trained: refuse a log without a finished epoch.

    Raises:
        FileNotFoundError: there is no such file.
    """
    lines = log_lines(path)
    valid = [line for line in lines if line.kind == VALID]
    log = RunLog(
        _by_update(line for line in lines if line.kind == TRAIN),
        _by_update(line for line in valid if line.split == valid[0].split),
        _by_update(line for line in lines if line.kind == INNER),
    )
    if (is_trained and not log.train) or (is_validated and not log.valid):
        raise DataError(f"{path}: no finished epoch in this log. Was it written by fairseq-train --log-file?")
    return log


def _by_update(lines: Iterable[LogLine]) -> list[dict[str, float]]:
    """If an update has several lines, the last is used."""
    return list({line.updates: line.values for line in lines}.values())
