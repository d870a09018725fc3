"""Finds training runs in folders, and puts those together that differ only in the seed."""

from __future__ import annotations

import glob
import math
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.summaries import BEST, LAST, LOG, Summary

# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom; that of 30 is a little too large beyond.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_SEED = re.compile(r"[-_./ ]*(seed)?[-_=.]*\d*$", re.IGNORECASE)


def find_runs(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The runs that the paths name, and what lies beside them and is none.

    Args:
        paths: folders of runs, folders of such folders, or glob patterns.

    Raises:
        DataError: there is nothing at a path, or no run at all.
    """
    runs: list[Path] = []
    others: list[Path] = []
    for path in paths:
        for found in _globbed(path):
            inside = [] if is_run(found) else [one for one in _sorted(found) if is_run(one)]
            if is_run(found):
                runs.append(found)
            elif inside:
                runs += inside
                others += [one for one in _sorted(found) if one not in inside]
            else:
                others.append(found)
    if not runs:
        raise DataError(
            f"{paths[0]}: neither {LOG} nor {BEST} nor {LAST} found, also not in its folders. Pass the "
            "--save-dir of a training run, or a folder of them."
        )
    return list(dict.fromkeys(runs)), others


def is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (LOG, BEST, LAST))


def _globbed(path: Path) -> list[Path]:
    if os.path.lexists(path):
        return [path]
    found = [Path(name) for name in sorted(glob.glob(str(path)), key=_natural)]
    if not found:
        raise DataError(
            f"{path}: no such folder. Pass the --save-dir of a training run, or a folder of them."
        )
    return found


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: _natural(path.name)) if folder.is_dir() else []


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``run2`` before ``run10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def join_seeds(rows: Sequence[Summary]) -> list[Summary]:
    """One row for the runs whose options differ only in the seed, in the place of the first: their means, and
    half the widths of the 95 % intervals of these.
    """
    groups: dict[object, list[Summary]] = {}
    for row in rows:
        groups.setdefault(row.setting or id(row), []).append(row)
    joined: list[Summary] = []
    for group in groups.values():
        is_repeated = len({row.seed for row in group}) < len(group)  # the same run twice
        joined += group if len(group) == 1 or is_repeated else [_mean(group)]
    return joined


def _mean(group: Sequence[Summary]) -> Summary:
    names = [row.name for row in group]
    common = os.path.commonprefix(names)  # noqa: RUF071 - of characters
    name = _SEED.sub("", common) or ", ".join(names)
    updates = sorted({row.updates or 0 for row in group})
    # One may be unfinished, or have stopped early.
    told = "" if len(updates) == 1 else f", {updates[0]} to {updates[-1]} updates"
    score, loss = _interval([row.score for row in group]), _interval([row.loss for row in group])
    pairs = zip(*(row.attacked for row in group))
    attacked = [[_interval([pair[k] for pair in row]) for k in (0, 1)] for row in pairs]
    return replace(
        group[0], name=f"{name} ({len(group)} seeds{told})", updates=None if told else group[0].updates,
        score=score[0], loss=loss[0], epoch=math.nan,
        seconds_per_update=_interval([row.seconds_per_update for row in group])[0],
        attacked=[(one[0], other[0]) for one, other in attacked],
        halves=[score[1], loss[1], *(half for pair in attacked for _, half in pair)],
    )  # fmt: skip


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval; NaN if one of the values is."""
    if any(map(math.isnan, values)):
        return math.nan, math.nan
    t = _T[min(len(values) - 1, len(_T)) - 1]
    return statistics.fmean(values), t * statistics.stdev(values) / len(values) ** 0.5
