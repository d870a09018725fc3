"""Gradient accordance of a run together with its losses (Flooding-X, Figure 3), and the b that it
suggests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fairseq_adv.data.tables.table_text import number_cell, table_text
from fairseq_adv.flooding_x import Crossing, crossings

_MOST_SHOWN = 5  # a noisy curve may cross zero many times


@dataclass(frozen=True)
class Measurement:
    """The gradient accordance after a number of updates.

    Attributes:
        update: number of updates made.
        train_loss: mean training loss in nats, since the previous measurement or on the probe batches
            (:attr:`Curve.train_loss_of`); NaN if unknown.
        cosine: mean cosine of each group of parameters, from -1 to 1; NaN if no two batches could be
            compared.
    """

    update: int
    train_loss: float
    cosine: dict[str, float]


@dataclass(frozen=True)
class FloodStart:
    """Where ``--flood-level auto`` started flooding: the update, and b in nats."""

    update: int
    level: float


@dataclass(frozen=True)
class Suggestion:
    """A crossing and the training losses before and after it; the paper takes b from between them.

    Attributes:
        crossing: where the accordance crosses zero.
        before: mean training loss in nats of the sub-epoch that ends where the crossing begins.
        after: mean training loss in nats of the sub-epoch of the crossing; ``--flood-level auto`` uses it.
    """

    crossing: Crossing
    before: float
    after: float

    def __str__(self) -> str:
        one = self.crossing
        words = {"up": "up, from negative to positive", "down": "down, from positive to negative"}
        return (
            f"updates {one.start} to {one.update}: {words[one.direction]} ({one.before:+.4f} to "
            f"{one.after:+.4f}); training loss {self.before:.4f} and {self.after:.4f} nats"
        )

    @property
    def range(self) -> tuple[float, float] | None:
        """The smaller and the larger of the two losses; ``None`` if one is unknown."""
        low, high = sorted((self.before, self.after))
        return None if math.isnan(low + high) else (low, high)


@dataclass(frozen=True)
class Curve:
    """The accordance measured during one run.

    Attributes:
        name: of the run.
        measurements: in the order of their updates, at least one.
        dev_loss: (updates made, mean dev loss in nats), in order.
        train_loss_of: what the training loss is averaged over, for the figure.
        start: where ``--flood-level auto`` started; ``None``: it didn't, or b was given.
        missing: number of measurements without a line in the log.
    """

    name: str
    measurements: Sequence[Measurement]
    dev_loss: Sequence[tuple[int, float]]
    train_loss_of: str
    start: FloodStart | None = None
    missing: int = 0
    groups: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.measurements[0].cosine))

    def cosines(self, group: str) -> list[tuple[int, float]]:
        """(updates made, mean cosine) of each measurement.

        Raises:
            ValueError: this group was not measured.
        """
        if group not in self.groups:
            raise ValueError(f"--group {group}: not measured. Pass one of {', '.join(self.groups)}")
        return [(one.update, one.cosine[group]) for one in self.measurements]

    def suggestions(self, group: str = "all", direction: str = "any") -> list[Suggestion]:
        """The changes of sign of a group's accordance, in order, with the losses before and after.

        Raises:
            ValueError: this group was not measured.
        """
        losses = {one.update: one.train_loss for one in self.measurements}
        return [
            Suggestion(one, losses[one.start], losses[one.update])
            for one in crossings(self.cosines(group), direction)
        ]


def report(curve: Curve, group: str = "all", direction: str = "any") -> str:
    """A summary of a curve for a terminal: its crossings, or that there are none.

    Args:
        curve: what was measured.
        group: the parameters whose first crossing is shown in the figure.
        direction: of the crossings.
    """
    updates = [one.update for one in curve.measurements]
    lines = [f"{curve.name}: {len(updates)} measurements, updates {updates[0]} to {updates[-1]}"]
    if curve.missing:
        lines.append(
            f"  {curve.missing} more measurements have no line in the log, so a crossing may be earlier than "
            "it seems. Run fairseq-train with a --log-interval no longer than --accordance-interval"
        )
    for name in curve.groups:
        found = curve.suggestions(name, direction)
        lines += [f"  {name}: {one}" for one in found[:_MOST_SHOWN]]
        if len(found) > _MOST_SHOWN:
            lines.append(f"  {name}: and {len(found) - _MOST_SHOWN} more crossings; see the csv file")
        if not found:
            which = "" if direction == "any" else f" {direction}"
            lines.append(f"  {name}: no crossing{which}; {_range(curve.cosines(name))}")
    lines.append(_suggested(curve.suggestions(group, direction), group))
    if curve.start is not None:
        lines.append(
            f"this run flooded from update {curve.start.update} on, b = {curve.start.level:.4f} nats"
        )
    return "\n".join(lines)


def _suggested(found: Sequence[Suggestion], group: str) -> str:
    if not found:
        return f"no crossing in group {group}: the accordance suggests no flood level"
    at = f"at the first crossing in group {group}, update {found[0].crossing.update}"
    if found[0].range is None:
        return f"no range for b: the training loss is unknown on one side, {at}"
    low, high = found[0].range
    return f"suggested range for b: {low:.4f} to {high:.4f} nats, {at}"


def _range(points: Iterable[tuple[int, float]]) -> str:
    values = [value for _, value in points if not math.isnan(value)]
    if not values:
        return "no two probe batches could be compared"
    early = " (did it cross before the first measurement?)" if values[0] > 0 else ""
    return f"the mean cosine is between {min(values):+.4f} and {max(values):+.4f}{early}"


def as_csv(curve: Curve) -> str:
    """A row for each update with a measurement or a validation; unknown values are empty.

    ``eq13_GROUP`` is half the cosine, as in the paper's eq. 13.
    ``crossing_GROUP`` is ``up`` or ``down`` at the measurement after a change of sign.
    """
    groups = curve.groups
    header = [
        "update", *(f"cosine_{g}" for g in groups), *(f"eq13_{g}" for g in groups), "train_loss_nats",
        "dev_loss_nats", *(f"crossing_{g}" for g in groups),
    ]  # fmt: skip
    measured = {one.update: one for one in curve.measurements}
    dev = dict(curve.dev_loss)
    crossed = {g: {s.crossing.update: s.crossing.direction for s in curve.suggestions(g)} for g in groups}
    rows: list[list[object]] = []
    for update in sorted({*measured, *dev}):
        one = measured.get(update)
        cosines = [one.cosine[g] if one else math.nan for g in groups]
        numbers = [*cosines, *(c / 2 for c in cosines), one.train_loss if one else math.nan]
        rows.append([
            update, *map(number_cell, numbers), number_cell(dev.get(update, math.nan)),
            *(crossed[g].get(update, "") for g in groups),
        ])  # fmt: skip
    return table_text([header, *rows])
