"""Learning curves as PNG files, and what the figures of examples/ share; needs matplotlib, the extra
``[plots]``.

The colours are Okabe and Ito's, which colour-blind readers can distinguish; line styles and markers differ as
well. No display is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_open
from fairseq_adv.evaluation.summaries import Summary

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#777777"
_MOST_MARKERS = 60  # on a line with more points they would overlap


class NoMatplotlib(DataError):
    """matplotlib is not installed; the message says what to install."""

    def __init__(self) -> None:
        super().__init__(
            "no figure was drawn: that needs matplotlib. Install it with pip install 'fairseq_adv[plots]', "
            "and run the same command again"
        )


def draw_runs(runs: Sequence[Summary], out: Path) -> None:
    """Learning curves over the updates, one line per run: training loss, dev loss, dev score.

    Raises:
        NoMatplotlib: matplotlib is not installed.
    """
    figure = new_figure(8.5, 8.5)
    metrics = {run.metric for run in runs if run.metric}
    score = f"dev {metrics.pop()}" if len(metrics) == 1 else "dev score"
    names = ("train_losses", "training loss (nats)"), ("dev_losses", "dev loss (nats)"), ("dev_scores", score)
    all_axes = figure.subplots(3, 1, sharex=True)
    for axes, (name, label) in zip(all_axes, names):
        for i, run in enumerate(runs):
            if points := getattr(run, name):
                axes.plot(*zip(*points), STYLES[i % 4], label=run.name, **line(i, len(points)))
        axes.set_ylabel(label)
    all_axes[-1].set_xlabel("updates")
    save(figure, out)


def line(number: int, points: int) -> dict[str, Any]:
    """Colour and marker of a line; markers only where they can be distinguished."""
    marker = MARKERS[number % len(MARKERS)] if points <= _MOST_MARKERS else None
    return {"color": COLOURS[number % len(COLOURS)], "marker": marker, "markersize": 4, "linewidth": 1.5}


def new_figure(width: float, height: float) -> Any:
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


def save(figure: Any, out: Path) -> None:
    """Writes a figure with a grid, and legends outside the data."""
    for axes in figure.axes:
        axes.grid(color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(
                loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False, fontsize=9
            )
    with atomic_open(out) as file:
        figure.savefig(file, format="png")
