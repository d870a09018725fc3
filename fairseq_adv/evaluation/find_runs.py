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
    half = student_t(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return statistics.fmean(values), half


def student_t(freedom: int) -> float:
    """The t that bounds 95 % of Student's distribution, two-sided, with this many degrees of freedom.

    The share within ±t is a finite sum in t = √freedom tan θ (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # bisects to the last bit
        angle = (low + high) / 2
        odd, cosine = freedom % 2, math.cos(angle)
        term, total = (cosine, 0.0) if odd else (1.0, 0.0)
        for k in range(odd, freedom - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        share = math.sin(angle) * total
        share = (angle + share) * 2 / math.pi if odd else share
        low, high = (angle, high) if share < 0.95 else (low, angle)
    return math.sqrt(freedom) * math.tan(low)
