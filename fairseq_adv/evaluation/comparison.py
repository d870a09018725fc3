"""Compares training runs side by side, in a table for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import Summary


def table(rows: Sequence[Summary], attacks: Sequence[Attack] = ()) -> str:
    """The rows as a table for a terminal, with a line that explains what was measured.

    Args:
        rows: one per run.
        attacks: the attacks whose results the rows contain, in the same order.
    """
    metrics = {row.metric for row in rows if row.metric}
    one = metrics.pop() if len(metrics) == 1 else ""
    head = ["run", "criterion", "updates", f"dev {one or 'score'}", "epoch", "dev loss", "s/update", "sizes"]
    body = [
        [
            row.name, row.criterion or "–", "–" if row.updates is None else str(row.updates),
            _shown(row.score, 2) + ("" if one else f" {row.metric}".rstrip()),
            _shown(row.epoch, 0), _shown(row.loss, 3), _shown(row.seconds_per_update, 2), row.sizes or "–",
        ]
        for row in rows
    ]  # fmt: skip
    notes = [
        "Dev loss in nats, from the validation with the best score. fairseq's own log lines are in bits; one "
        "bit is 0.693 nats."
    ]
    if attacks:
        how = attacks[0]
        head[6:6] = [f"{what}@{one.epsilon:g}" for one in attacks for what in ("loss", "acc")]
        for cells, row in zip(body, rows):
            shown = [(_shown(loss, 3), _shown(accuracy, 2)) for loss, accuracy in row.attacked]
            cells[6:6] = [cell for pair in shown for cell in pair]
        unit = ", a share of the norm of a text's embeddings" if how.relative else ""
        notes = [
            f"Losses in nats, of the best checkpoint; @{how.epsilon:g}: under attack, after {how.steps} "
            f"ascent steps within that radius{unit}."
        ]
    widths = [max(len(cells[k]) for cells in [head, *body]) for k in range(len(head))]
    left = (0, 1, len(head) - 1)
    lines = [
        "  ".join(c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths)))
        for cells in [head, *body]
    ]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(line.rstrip() for line in [*lines, *notes])


def _shown(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"
