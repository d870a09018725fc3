"""Runs side by side in a table; those that differ only in the seed are one row."""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace

from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import Summary

_SEED = re.compile(r"[-_./ ]*(seed)?[-_=.]*\d*$", re.IGNORECASE)  # at the end of a run's name
_OVERRIDE = re.compile(r",common\.seed=\d+|common\.seed=\d+,?")  # in the name of a job of hydra's


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
    without = {_OVERRIDE.sub("", name).rstrip("/") for name in names}
    common = without.pop() if len(without) == 1 else _SEED.sub("", os.path.commonprefix(names))  # noqa: RUF071
    name = common or ", ".join(names)
    updates = sorted({row.updates or 0 for row in group})
    # One may be unfinished, or have stopped early.
    shown = "" if len(updates) == 1 else f", {updates[0]} to {updates[-1]} updates"
    score, loss = _interval([row.score for row in group]), _interval([row.loss for row in group])
    pairs = zip(*(row.attacked for row in group))
    attacked = [[_interval([pair[k] for pair in row]) for k in (0, 1)] for row in pairs]
    return replace(
        group[0], name=f"{name} ({len(group)} seeds{shown})", updates=None if shown else group[0].updates,
        score=score[0], loss=loss[0], epoch=math.nan,
        seconds_per_update=_interval([row.seconds_per_update for row in group])[0],
        attacked=[(one[0], other[0]) for one, other in attacked],
        halves=[score[1], loss[1], *(half for pair in attacked for _, half in pair)],
    )  # fmt: skip


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval, by Student's t; NaN if one of the values is."""
    from scipy.special import stdtrit

    if any(map(math.isnan, values)):
        return math.nan, math.nan
    t = float(stdtrit(len(values) - 1, 0.975))
    return statistics.fmean(values), t * statistics.stdev(values) / len(values) ** 0.5


def table(rows: Sequence[Summary], attacks: Sequence[Attack] = ()) -> str:
    """The rows as a table for a terminal, with a line that explains what was measured."""
    metrics = {row.metric for row in rows if row.metric}
    one = metrics.pop() if len(metrics) == 1 else ""
    head = ["run", "criterion", "updates", f"dev {one or 'score'}", "epoch", "dev loss", "s/update", "sizes"]
    body = [
        [
            row.name, row.criterion or "–", "–" if row.updates is None else str(row.updates),
            _shown(row.score, 2, _half(row, 0)) + ("" if one else f" {row.metric}".rstrip()),
            _shown(row.epoch, 0), _shown(row.loss, 3, _half(row, 1)), _shown(row.seconds_per_update, 2),
            row.sizes or "–",
        ]
        for row in rows
    ]  # fmt: skip
    notes = [
        "Dev loss in nats, a regression's squared, from the validation with the best score; with the run's "
        "class weights and label smoothing. fairseq's own log lines are in bits; one bit is 0.693 nats."
    ]
    if attacks:
        first = attacks[0]
        head[6:6] = [f"{what}@{one.epsilon:g}" for one in attacks for what in ("loss", "acc")]
        for cells, row in zip(body, rows):
            shown = [
                (_shown(loss, 3, _half(row, 2 + 2 * k)), _shown(accuracy, 2, _half(row, 3 + 2 * k)))
                for k, (loss, accuracy) in enumerate(row.attacked)
            ]
            cells[6:6] = [cell for pair in shown for cell in pair]
        notes = [
            "Losses in nats, without class weights and label smoothing, of the best checkpoint; "
            f"@{first.epsilon:g}: under attack, after {first.steps} ascent steps within {first.radius}."
        ]
    if any(row.halves for row in rows):
        notes.append("±: half the width of the mean's 95 % interval over the seeds, by Student's t.")
    widths = [max(len(cells[k]) for cells in [head, *body]) for k in range(len(head))]
    left = (0, 1, len(head) - 1)
    lines = [
        "  ".join(c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths)))
        for cells in [head, *body]
    ]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(line.rstrip() for line in [*lines, *notes])


def _half(row: Summary, number: int) -> float:
    return row.halves[number] if row.halves else math.nan


def _shown(value: float, digits: int, half: float = math.nan) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if math.isnan(half) else f"{value:.{digits}f} ± {half:.{digits}f}"
