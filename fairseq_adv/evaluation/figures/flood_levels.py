"""Scores of a sweep's runs against their flood levels (Flooding-X, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_adv.data.tables.table_text import table_text
from fairseq_adv.evaluation.figures.accordance_log import log_of, name_of
from fairseq_adv.evaluation.runs import read_log

WHICH = ("last", "best")


@dataclass(frozen=True)
class FloodedRun:
    """A finished run.

    Attributes:
        name: of the run.
        level: b in nats; 0: trained without flooding.
        is_auto: b was found by ``--flood-level auto``, or was searched for but not found (then ``level`` is
            0).
        score: on the dev set.
    """

    name: str
    level: float
    is_auto: bool
    score: float


@dataclass(frozen=True)
class LevelScores:
    """The runs of one level, or one run of ``--flood-level auto``.

    Attributes:
        level: b in nats.
        is_auto: see :class:`FloodedRun`.
        scores: of the runs, in the order given.
        names: of the runs.
    """

    level: float
    is_auto: bool
    scores: tuple[float, ...]
    names: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean score."""
        return sum(self.scores) / len(self.scores)


def read_run(run: Path, metric: str, which: str = "last") -> FloodedRun:
    """A run's flood level and score, from its log.

    Args:
        run: a log, or a folder with a ``train.log``.
        metric: a validation metric; for a loss the lowest value is best.
        which: ``last`` for the last epoch, as in the paper, or ``best``.

    Raises:
        ValueError: no epoch has finished, or the metric was not logged.
        FileNotFoundError: there is no such log.
    """
    path = log_of(run)
    log = read_log(path)
    valid, train = log.valid, log.train[-1]
    if metric not in valid[-1]:
        raise ValueError(
            f"{path}: no validation metric {metric!r}. Pass --metric with one of "
            f"{', '.join(sorted(valid[-1]))}"
        )
    scores = [epoch[metric] for epoch in valid]
    best = min if "loss" in metric else max
    score = best(scores) if which == "best" else scores[-1]
    # Only a search logs where flooding started; only a run that flooded has a level.
    return FloodedRun(name_of(run), train.get("flood_level", 0.0), "flood_start" in train, score)


def by_level(runs: Iterable[FloodedRun]) -> list[LevelScores]:
    """Groups the runs by level; a run whose level was found is a group of its own.

    Raises:
        ValueError: there are fewer than two levels to compare.
    """
    groups: dict[tuple[bool, float, str], list[FloodedRun]] = {}
    for run in runs:
        groups.setdefault((run.is_auto, run.level, run.name if run.is_auto else ""), []).append(run)
    found = [
        LevelScores(level, is_auto, tuple(r.score for r in members), tuple(r.name for r in members))
        for (is_auto, level, _), members in sorted(groups.items())
    ]
    distinct = {scores.level for scores in found}
    if len(distinct) < 2:
        levels = ", ".join(f"{level:g}" for level in distinct) or "none"
        raise ValueError(
            f"a figure needs two or more flood levels, but these runs have: {levels}. Pass more runs"
        )
    return found


def levels_csv(levels: Sequence[LevelScores], metric: str, which: str) -> str:
    """A row for each level, with the mean, lowest and highest score of its runs."""
    header = ["flood_level_nats", "found_by", "runs", f"{which}_{metric}_mean", "lowest", "highest", "names"]
    rows = [
        [f"{one.level:g}", "auto" if one.is_auto else "option", len(one.scores), f"{one.mean:.6g}",
         f"{min(one.scores):g}", f"{max(one.scores):g}", " ".join(one.names)]
        for one in levels
    ]  # fmt: skip
    return table_text([header, *rows])


def levels_table(levels: Sequence[LevelScores], metric: str, which: str) -> str:
    """The same for a terminal."""
    lines = [f"{'b (nats)':>9}  {'':4}  {which + ' ' + metric:>14}  {'lowest':>8}  {'highest':>8}  runs"]
    lines += [
        f"{one.level:9.4g}  {'auto' if one.is_auto else '':4}  {one.mean:14.4g}  {min(one.scores):8.4g}  "
        f"{max(one.scores):8.4g}  {len(one.scores)}"
        for one in levels
    ]
    return "\n".join(lines)
