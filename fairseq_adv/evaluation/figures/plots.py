"""Draws the measurements as PNG files, with matplotlib, the extra ``[plots]``.

The colours are Okabe and Ito's, which colour-blind readers can distinguish; line styles and markers differ as
well. No display is needed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.data.io import written_whole
from fairseq_adv.evaluation.figures.accordance_curve import Curve, Suggestion
from fairseq_adv.evaluation.figures.flood_levels import LevelScores
from fairseq_adv.evaluation.figures.gaussian_noise import NoiseCurve
from fairseq_adv.evaluation.summaries import Summary

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY, BAND = "#777777", "#F0E442"
_MOST_MARKERS = 60  # on a line with more points they would overlap


class NoMatplotlib(ImportError):
    """matplotlib is not installed; the message says what to install."""

    def __init__(self) -> None:
        super().__init__(
            "no figure was drawn: that needs matplotlib. Install it with pip install -c constraints.txt "
            "'.[plots]', and run the same command again"
        )


def draw_accordance(curve: Curve, out: Path, group: str = "all", direction: str = "any") -> None:
    """Accordance at the top, training and dev loss at the bottom, over the updates (Figure 3).

    Every crossing of ``group`` in ``direction`` is a triangle. For the first one, the sub-epoch of the
    crossing and the range of training losses before and after it, from which the paper takes b, are shaded.

    Raises:
        NoMatplotlib: matplotlib is not installed.
        ValueError: this group was not measured.
    """
    suggestions = curve.suggestions(group, direction)
    figure = _figure(8.5, 6.5)
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.axhline(0, color=GREY, linewidth=0.8)
    for i, name in enumerate(curve.groups):
        updates, cosines = zip(*curve.cosines(name))
        top.plot(updates, cosines, STYLES[i % 4], label=_group_label(name), **_line(i, len(updates)))
    measured_at = [one.update for one in curve.measurements]
    losses = [one.train_loss for one in curve.measurements]
    label = "\n".join(textwrap.wrap(f"training loss, {curve.train_loss_of}", 20))
    bottom.plot(measured_at, losses, "-", label=label, **_line(3, len(losses)))
    if curve.dev_loss:
        bottom.plot(*zip(*curve.dev_loss), "--", label="dev loss", **_line(4, len(curve.dev_loss)))
    _mark_crossings(top, bottom, suggestions, group)
    if curve.start is not None:
        bottom.axhline(
            curve.start.level, color=COLOURS[6], linestyle="-.", linewidth=1,
            label=f"b = {curve.start.level:.3g} nats, flooded\nfrom update {curve.start.update} on",
        )  # fmt: skip
    top.set_ylabel("gradient accordance:\nmean cosine (2 × eq. 13)")
    bottom.set_ylabel("loss (nats)")
    bottom.set_xlabel("updates")
    which = "" if direction == "any" else f" {direction}"
    top.set_title(curve.name if suggestions else f"{curve.name}: no crossing{which} ({group})")
    for axes in (top, bottom):
        _finish(axes)
    _save(figure, out)


def draw_levels(levels: Sequence[LevelScores], metric: str, which: str, out: Path) -> None:
    """Score against flood level, with the lowest and highest of several runs (Figure 2).

    Raises:
        NoMatplotlib: matplotlib is not installed.
    """
    figure = _figure(7.5, 4.5)
    axes = figure.subplots()
    given = [one for one in levels if not one.is_auto]
    found = [one for one in levels if one.is_auto]
    if given:
        at = [one.level for one in given]
        axes.plot(at, [one.mean for one in given], "-", label="given level: mean", **_line(0, len(given)))
        if any(len(one.scores) > 1 for one in given):
            lowest, highest = [min(one.scores) for one in given], [max(one.scores) for one in given]
            axes.vlines(at, lowest, highest, color=COLOURS[5], linewidth=4, label="lowest to highest")
    if found:
        label = "--flood-level auto:\na run each\n(0: no crossing)"
        axes.plot(
            [one.level for one in found], [one.mean for one in found], "D", color=COLOURS[1], label=label
        )
    axes.set_xlabel("flood level b (nats); 0: not flooded")
    axes.set_ylabel(f"dev {metric}, {which} epoch")
    _finish(axes)
    _save(figure, out)


def draw_noise(curves: Sequence[NoiseCurve], split: str, out: Path) -> None:
    """Loss against the standard deviation of the noise, one line per checkpoint (Figure 1).

    Raises:
        NoMatplotlib: matplotlib is not installed.
    """
    figure = _figure(7.5, 4.5)
    axes = figure.subplots()
    for i, curve in enumerate(curves):
        axes.plot(*zip(*curve.losses), STYLES[i % 4], label=curve.label, **_line(i, len(curve.losses)))
    axes.set_xlabel("standard deviation α of the noise on the word embeddings")
    axes.set_ylabel(f"mean loss of split {split!r} (nats)")
    _finish(axes)
    _save(figure, out)


def draw_runs(runs: Sequence[Summary], out: Path) -> None:
    """Learning curves over the updates, one line per run: training loss, dev loss, dev score.

    Raises:
        NoMatplotlib: matplotlib is not installed.
    """
    figure = _figure(8.5, 8.5)
    metrics = {run.metric for run in runs if run.metric}
    score = f"dev {metrics.pop()}" if len(metrics) == 1 else "dev score"
    names = ("train_losses", "training loss (nats)"), ("dev_losses", "dev loss (nats)"), ("dev_scores", score)
    all_axes = figure.subplots(3, 1, sharex=True)
    for axes, (name, label) in zip(all_axes, names):
        for i, run in enumerate(runs):
            if points := getattr(run, name):
                axes.plot(*zip(*points), STYLES[i % 4], label=run.name, **_line(i, len(points)))
        axes.set_ylabel(label)
        _finish(axes)
    all_axes[-1].set_xlabel("updates")
    _save(figure, out)


def _mark_crossings(top: Any, bottom: Any, suggestions: Sequence[Suggestion], group: str) -> None:
    for direction, marker in (("up", "^"), ("down", "v")):
        at = [one.crossing.update for one in suggestions if one.crossing.direction == direction]
        if at:
            label = f"crosses zero {direction} ({group})"
            top.plot(at, [0] * len(at), marker, color=COLOURS[6], markersize=7, label=label)
    if not suggestions:
        return
    first = suggestions[0]
    for axes in (top, bottom):
        axes.axvspan(
            first.crossing.start, first.crossing.update, color=BAND, alpha=0.4,
            label="sub-epoch of the\nfirst crossing" if axes is top else None,
        )  # fmt: skip
        axes.axvline(first.crossing.update, color=GREY, linestyle="--", linewidth=1)
    if first.range is not None:
        low, high = first.range
        label = f"range for b:\n{low:.3g} to {high:.3g} nats"
        bottom.axhspan(low, high, color=COLOURS[5], alpha=0.35, label=label)


def _group_label(name: str) -> str:
    return {"all": "all parameters"}.get(name, name)


def _line(number: int, points: int) -> dict[str, Any]:
    """Colour and marker of a line; markers only where they can be distinguished."""
    marker = MARKERS[number % len(MARKERS)] if points <= _MOST_MARKERS else None
    return {"color": COLOURS[number % len(COLOURS)], "marker": marker, "markersize": 4, "linewidth": 1.5}


def _finish(axes: Any) -> None:
    """The legend outside the data, and a light grid."""
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False, fontsize=9)


def _figure(width: float, height: float) -> Any:
    """An empty figure, in inches. Not made by pyplot, which would look for a display and keep every
    figure."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise NoMatplotlib from error
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, out: Path) -> None:
    with written_whole(out) as file:
        figure.savefig(file, format="png")
