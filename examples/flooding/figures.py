#!/usr/bin/env python3
"""Draws the figures of Flooding-X (Liu et al., ACL 2022) from your own training runs, as PNG and CSV.

  log RUN OUT                    gradient accordance, training and dev loss over the updates, with the zero
                                 crossings and the range of flood levels that they suggest (Figure 3)
  checkpoints CHECKPOINT… OUT    the same, measured now on the checkpoints of one run
  levels RUN… OUT                dev score against flood level, from the runs of a sweep (Figure 2)
  noise CHECKPOINT… OUT          dev loss against Gaussian noise on the word embeddings (Figure 1)

RUN is a --save-dir, with the metrics.jsonl that training wrote there. Its --log-interval must be no longer
than --accordance-interval: each line has only the last measurement before it.
Writes OUT.csv, and OUT.png if matplotlib is there (the extra [plots]).
Losses are in nats. fairseq logs bits: a logged loss of 0.1 is 0.069 nats.
"""

from __future__ import annotations

import argparse
import logging
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_adv.accordance import GROUPS, AccordanceProbe, Crossing, crossings
from fairseq_adv.cli.script import HelpFormatter, count, exit_status, whole, with_commas
from fairseq_adv.cli.shared_options import add_shared
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_open, atomic_write
from fairseq_adv.data.printable import number_cell, table_text
from fairseq_adv.data.run_metrics import EPOCH, read_metrics, unit
from fairseq_adv.evaluation.trained import Trained, load
from fairseq_adv.perturbation import Perturbation, find_token_embedding, geometry

BAND, GREY = "#F0E442", "#777777"
POINTS = {"marker": "o", "markersize": 4, "linewidth": 1.5}
AT = "accordance_update"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    commands = options.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, draw: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=f"{text}.", formatter_class=HelpFormatter)
        command.set_defaults(draw=draw)
        return command

    log = add("log", from_log, "Figure 3 from a run that measured its accordance")
    log.add_argument("run", type=Path, metavar="RUN", help="a --save-dir")
    probe = add("checkpoints", from_checkpoints, "Figure 3 from the checkpoints of a run")
    probe.add_argument("--batches", type=count, default=10, metavar="N", help="number of probe mini-batches")
    probe.add_argument("--dropout", action="store_true", help="measure with dropout")
    probe.add_argument("--split", default="train", help="split to draw the probe mini-batches from")
    probe.add_argument("--valid-split", default="valid", help="split whose mean loss is the dev loss")
    for command in (log, probe):
        command.add_argument("--group", help="parameters whose crossings are marked (default: the first one)")
        command.add_argument("--crossing", choices=("up", "down", "any"), default="any", help="which to mark")
    levels = add("levels", from_sweep, "Figure 2 from runs with several flood levels")
    levels.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders, each a --save-dir")
    levels.add_argument("--metric", default="accuracy", help="validation metric")
    levels.add_argument("--which", choices=("last", "best"), default="last", help="epoch to read")
    noise = add("noise", from_noise, "Figure 1 from checkpoints, one of each run to compare")
    noise.add_argument("--stds", type=with_commas, required=True, help="deviations of the noise: 0,0.01,0.02")
    noise.add_argument("--split", default="valid", help="split of the data; needs labels")
    noise.add_argument("--draws", type=count, default=1, metavar="N", help="draws to average over")
    for command in (probe, noise):
        command.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
        command.add_argument("--data", metavar="DIR", help="data folder (default: the checkpoint's)")
        command.add_argument("--seed", type=whole, default=1, metavar="N", help="seed of what is drawn")
        add_shared(command.add_argument, "--batch-size", default=32)
        add_shared(command.add_argument, "--cpu")
    for command in (log, probe, levels, noise):  # OUT comes last: there can be many inputs
        command.add_argument("out", type=Path, metavar="OUT", help="writes OUT.png and OUT.csv")
    return options


# --- Figure 3


@dataclass(frozen=True)
class Curve:
    """The accordance measured during one run.

    Attributes:
        name: of the run.
        losses: mean training loss in nats at each update with a measurement; NaN if unknown.
        cosines: mean cosine of each group of parameters at these updates.
        dev: mean dev loss in nats at the updates of a validation.
        start: the update at which flooding started, and b.
    """

    name: str
    losses: dict[int, float]
    cosines: dict[str, list[float]]
    dev: dict[int, float]
    start: tuple[int, float] | None = None

    def crossed(self, group: str, direction: str = "any") -> list[Crossing]:
        """The changes of sign of a group's accordance, in order."""
        if group not in self.cosines:
            raise DataError(f"--group {group}: not measured. Pass one of {', '.join(self.cosines)}")
        return list(crossings(list(zip(self.losses, self.cosines[group])), direction))

    def range(self, one: Crossing) -> tuple[float, float] | None:
        """The training losses before and after a crossing, between which the paper's b lies; lower first."""
        low, high = sorted((self.losses[one.start], self.losses[one.update]))
        return None if math.isnan(low + high) else (low, high)


def from_log(options: argparse.Namespace) -> None:
    run = read_metrics(options.run)
    found = {
        int(line.values[AT]): line.values
        for line in run.lines
        if not math.isnan(line.values.get(AT, math.nan))
    }
    if not found:
        raise DataError(
            f"{options.run}: a run without gradient accordance. --accordance-interval N measures it (add "
            "--flood-level 0 to only measure)"
        )
    found = dict(sorted(found.items()))
    groups = [group for group in GROUPS if any(f"accordance_{group}" in line for line in found.values())]
    if any(f"accordance_{group}" not in line for line in found.values() for group in groups):
        raise DataError(f"{options.run}: its measurements are of different groups. Is it one run?")
    dev = {line.update: line.loss_nats for line in run.of(run.valid_splits[0])}
    losses = {update: line.get("accordance_loss_nats", math.nan) for update, line in found.items()}
    cosines = {group: [line[f"accordance_{group}"] for line in found.values()] for group in groups}
    starts = [(int(line.values.get("flood_start", 0)), line.values.get("flood_level")) for line in run.lines]
    start = next(((update, b) for update, b in reversed(starts) if update and b), None)
    finish_curve(Curve(options.run.resolve().name, losses, cosines, dev, start), options)


def from_checkpoints(options: argparse.Namespace) -> None:
    found = {}
    for path in options.checkpoints:
        trained = load(str(path), options.data, [options.split, options.valid_split], options.cpu)
        probe = AccordanceProbe(
            trained.objective, trained.task, options.split, batches=options.batches, options="--",
            batch_size=options.batch_size, dropout=options.dropout, seed=options.seed,
            max_positions=trained.longest,
        )  # fmt: skip
        dev_loss = mean_loss(trained, options.valid_split, options.batch_size)
        found[trained.updates] = probe.measure(trained.model), dev_loss
    found = dict(sorted(found.items()))
    losses = {update: one.loss for update, (one, _) in found.items()}
    cosines = {group: [one.cosine[group] for one, _ in found.values()] for group in GROUPS}
    dev = {update: loss for update, (_, loss) in found.items()}
    finish_curve(Curve(options.checkpoints[0].resolve().parent.name, losses, cosines, dev), options)


def finish_curve(curve: Curve, options: argparse.Namespace) -> None:
    """Writes the files and prints the crossings."""
    group = options.group or next(iter(curve.cosines))
    marked = curve.crossed(group, options.crossing)
    write(options.out, curve_rows(curve), partial(draw_curve, curve, group, marked))
    for name, values in curve.cosines.items():
        for one in curve.crossed(name, options.crossing):
            before, after = curve.losses[one.start], curve.losses[one.update]
            print(f"{name}: updates {one.start} to {one.update}: {one.direction} ({one.before:+.4f} to "
                  f"{one.after:+.4f}); training loss {before:.4f} and {after:.4f} nats")  # fmt: skip
        if not curve.crossed(name, options.crossing):
            print(f"{name}: no crossing; the mean cosine is from {min(values):+.4f} to {max(values):+.4f}")
    if marked and (found := curve.range(marked[0])):
        print("suggested range for b: {:.4f} to {:.4f} nats".format(*found), f"({group}, first crossing)")
    if curve.start is not None:
        print("this run flooded from update {} on, b = {:.4f} nats".format(*curve.start))


def curve_rows(curve: Curve) -> Iterable[Sequence[object]]:
    """A row for each update with a measurement or validation; ``eq13``, the paper's, is half the cosine."""
    columns = [f"{name}_{group}" for name in ("cosine", "eq13") for group in curve.cosines]
    yield ["update", *columns, "train_loss_nats", "dev_loss_nats", *(f"crossing_{g}" for g in curve.cosines)]
    measured = dict(zip(curve.losses, zip(*curve.cosines.values())))
    crossed = [{one.update: one.direction for one in curve.crossed(group)} for group in curve.cosines]
    for update in sorted({*measured, *curve.dev}):
        values = measured.get(update, [math.nan] * len(curve.cosines))
        losses = [found.get(update, math.nan) for found in (curve.losses, curve.dev)]
        numbers = map(number_cell, [*values, *(value / 2 for value in values), *losses])
        yield [update, *numbers, *(found.get(update, "") for found in crossed)]


def draw_curve(curve: Curve, group: str, marked: Sequence[Crossing], figure: Any) -> None:
    """Accordance at the top, losses at the bottom; triangles are crossings, bands those of the first."""
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.axhline(0, color=GREY, linewidth=0.8)
    for name, values in curve.cosines.items():
        top.plot(list(curve.losses), values, label=name, **POINTS)
    for color, name, losses in (("C3", "training loss", curve.losses), ("C4", "dev loss", curve.dev)):
        if losses:
            bottom.plot(*zip(*losses.items()), color=color, label=name, **POINTS)
    for direction, marker in (("up", "^"), ("down", "v")):
        if at := [one.update for one in marked if one.direction == direction]:
            name = f"crosses zero {direction} ({group})"
            top.plot(at, [0] * len(at), marker, color="black", markersize=7, label=name)
    for axes in (top, bottom) if marked else ():
        axes.axvspan(marked[0].start, marked[0].update, color=BAND, alpha=0.4)
    if marked and (found := curve.range(marked[0])):
        label = "range for b:\n{:.3g} to {:.3g} nats".format(*found)
        bottom.axhspan(*found, color="C5", alpha=0.35, label=label)
    if curve.start is not None:
        label = "b = {1:.3g} nats, flooded\nfrom update {0} on".format(*curve.start)
        bottom.axhline(curve.start[1], color="black", linestyle="-.", linewidth=1, label=label)
    top.set(title=curve.name + ("" if marked else f": no crossing ({group})"))
    top.set(ylabel="gradient accordance:\nmean cosine (2 × eq. 13)")
    bottom.set(xlabel="updates", ylabel="loss (nats)")


# --- Figure 2


def from_sweep(options: argparse.Namespace) -> None:
    groups: dict[tuple[bool, float, str], list[tuple[str, float]]] = {}
    best = min if options.metric == "ppl" or "loss" in options.metric else max
    for folder in options.runs:
        run, name = read_metrics(folder), folder.resolve().name
        epochs, validated = run.of(EPOCH), run.of(run.valid_splits[0])
        if not epochs or not validated:
            raise DataError(f"{folder}: no epoch of this run has ended with a validation")
        if options.metric not in validated[-1].values:
            there = ", ".join(sorted(validated[-1].scores))
            raise DataError(f"{folder}: no metric {options.metric!r}. Pass one of {there}")
        scores = [line.values[options.metric] * unit(options.metric) for line in validated]
        # Only a search logs where flooding started; a run whose level was found is a row of its own.
        is_auto = "flood_start" in epochs[-1].values
        key = is_auto, epochs[-1].values.get("flood_level", 0.0), name if is_auto else ""
        groups.setdefault(key, []).append((name, best(scores) if options.which == "best" else scores[-1]))
    if len({level for _, level, _ in groups}) < 2:
        raise DataError("a figure needs two or more flood levels. Pass more runs")
    label = f"{options.which}_{options.metric}_mean"
    rows: list[list[object]] = [["flood_level_nats", "found_by", "runs", label, "lowest", "highest", "names"]]
    for (is_auto, level, _), runs in sorted(groups.items()):
        names, values = zip(*runs)
        spread = f"{statistics.mean(values):.6g}", f"{min(values):g}", f"{max(values):g}"
        rows.append([f"{level:g}", "auto" if is_auto else "option", len(runs), *spread, " ".join(names)])
    write(options.out, rows, partial(draw_levels, rows[1:], f"dev {options.metric}, {options.which} epoch"))
    print(table_text(rows), end="")


def draw_levels(rows: Sequence[Sequence[object]], label: str, figure: Any) -> None:
    """Mean score over the level, with the lowest and highest of several runs."""
    axes = figure.subplots()
    names = {"option": "given level: mean", "auto": "--flood-level auto:\na run each\n(0: no crossing)"}
    for i, (found_by, name) in enumerate(names.items()):
        found = [[float(str(row[at])) for at in (0, 3, 4, 5)] for row in rows if row[1] == found_by]
        if found:
            levels, means, lowest, highest = zip(*found)
            axes.plot(levels, means, " " if i else "-", label=name, **POINTS)
            axes.vlines(levels, lowest, highest, color="C5", linewidth=4)
    axes.set(xlabel="flood level b (nats); 0: not flooded", ylabel=label)


# --- Figure 1


@torch.no_grad()
def mean_loss(trained: Trained, split: str, rows: int, std: float = 0, seed: int = 1, draw: int = 0) -> float:
    """Mean loss in nats without dropout, with N(0, std²) added to every entry of the real tokens' embeddings.

    The noise of each row has its own seed: it is the same in any mini-batch, and differs between values of
    ``std`` only in its scale.
    """
    model, objective = trained.model.eval(), trained.objective
    total, size = 0.0, 0
    for sample in trained.batches(split, rows, doing=f"{split}, std {std:g}"):
        seeds = geometry.row_seeds(seed, draw, objective.row_ids(sample), objective.groups(sample))
        start = partial(geometry.gaussian_start, std=std, seeds=seeds)
        noise = Perturbation(find_token_embedding(model), objective.padding_idx, start)
        with noise.applied(differentiable=False) if std else nullcontext():
            total += objective.loss(objective.predict(model, sample), sample).item()
        size += objective.sample_size(sample)
    return total / max(size, 1)


def from_noise(options: argparse.Namespace) -> None:
    stds = sorted(set(options.stds))
    if len(stds) < 2 or stds[0] < 0:
        raise DataError("--stds: pass two or more different numbers of 0 or more, such as 0,0.01,0.02")
    curves: dict[str, list[float]] = {}
    for path in options.checkpoints:
        trained = load(str(path), options.data, [options.split], options.cpu)
        measure = partial(mean_loss, trained, options.split, options.batch_size)
        label = f"{path.resolve().parent.name}/{path.stem}"
        curves[str(path) if label in curves else label] = [
            statistics.mean(measure(std, options.seed, draw) for draw in range(options.draws if std else 1))
            for std in stds
        ]
    rows = [[f"{std:g}", *map(number_cell, losses)] for std, *losses in zip(stds, *curves.values())]
    write(options.out, [["noise_std", *curves], *rows], partial(draw_noise, stds, curves, options.split))


def draw_noise(stds: Sequence[float], curves: dict[str, list[float]], split: str, figure: Any) -> None:
    axes = figure.subplots()
    for label, losses in curves.items():
        axes.plot(stds, losses, label=label, **POINTS)
    axes.set(xlabel="standard deviation α of the noise", ylabel=f"mean loss of split {split!r} (nats)")


def write(out: Path, rows: Iterable[Sequence[object]], draw: Callable[[Any], None]) -> None:
    """Writes OUT.csv, and OUT.png if matplotlib is installed: a grid, and legends outside the data."""
    table, picture = (out.with_name(out.name + ending) for ending in (".csv", ".png"))
    atomic_write(table, table_text(list(rows)))
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        print(f"wrote {table}\nnote: no figure was drawn: that needs matplotlib. Install it with pip install "
              "'fairseq_adv[plots]', and run the same command again", file=sys.stderr)  # fmt: skip
        return
    with matplotlib.style.context("tableau-colorblind10"):
        figure = Figure(figsize=(8, 5.5), dpi=150, layout="constrained")
        draw(figure)
    for axes in figure.axes:
        axes.grid(color="#DDDDDD", linewidth=0.5)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)
    with atomic_open(picture) as file:
        figure.savefig(file, format="png")
    print(f"wrote {picture} and {table}")


def work(options: argparse.Namespace) -> None:
    if options.out.suffix in (".png", ".csv"):
        options.out = options.out.with_suffix("")
    elif options.out.exists() or options.out.suffix == ".pt":  # OUT was forgotten
        raise DataError(f"OUT {options.out}: the last argument is the output name without an extension")
    options.draw(options)


def main() -> int:
    options = parser().parse_args()
    for name in ("fairseq", "matplotlib"):  # they report optional packages and fonts
        logging.getLogger(name).setLevel(logging.WARNING)
    return exit_status(lambda: work(options))


if __name__ == "__main__":
    sys.exit(main())
