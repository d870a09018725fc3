"""Draws the figures of Flooding-X (Liu et al., ACL 2022) from your own training runs, as PNG and CSV.

  log RUN OUT                    gradient accordance, training and dev loss over the updates, with the zero
                                 crossings and the range of flood levels that they suggest (Figure 3)
  checkpoints CHECKPOINT… OUT    the same, measured now on the checkpoints of one run
  levels RUN… OUT                dev score against flood level, from the logs of a sweep (Figure 2)
  noise CHECKPOINT… OUT          dev loss against Gaussian noise on the word embeddings (Figure 1)

A log is the file that fairseq-train --log-format json --log-file wrote. Its --log-interval must be no longer
than --accordance-interval: each line has only the last measurement before it.
Writes OUT.png and OUT.csv. The figure needs matplotlib (the extra [plots]); the csv file does not.
Losses are in nats. fairseq logs bits: a logged loss of 0.1 is 0.069 nats.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .number_types import count, whole, with_commas
from .script import RESUMABLE, HelpFormatter, command_parser, exit_status
from .shared_options import add_batch_size, add_cpu

if TYPE_CHECKING:
    from fairseq_adv.evaluation.figures.accordance_curve import Curve

DIRECTIONS = ("up", "down", "any")
OUT_HELP = "name of the output files without an extension: writes OUT.png and OUT.csv"


def _parser() -> argparse.ArgumentParser:
    options = command_parser("figures", __doc__)
    commands = options.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, work: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=f"{text}.", formatter_class=HelpFormatter)
        command.set_defaults(work=work)
        return command

    log = add("log", from_log, "Figure 3 from the log of a run that measured its accordance")
    log.add_argument("run", type=Path, metavar="RUN", help="a --log-file, or the folder with its train.log")
    _add_crossing(log)

    probe = add("checkpoints", from_checkpoints, "Figure 3 from the checkpoints of a run")
    probe.add_argument(
        "checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoints of one run"
    )
    probe.add_argument(
        "--data", metavar="DIR", help="data folder (default: the one the checkpoint was trained on)"
    )
    probe.add_argument("--batches", type=count, default=10, metavar="N", help="number of probe mini-batches")
    add_batch_size(probe.add_argument, 32)
    probe.add_argument("--seed", type=whole, default=1, help="seed for drawing the probe mini-batches")
    probe.add_argument("--dropout", action="store_true", help="measure with dropout")
    probe.add_argument("--split", default="train", help="split to draw the probe mini-batches from")
    probe.add_argument("--valid-split", default="valid", help="split whose mean loss is the dev loss")
    add_cpu(probe.add_argument)
    _add_crossing(probe)

    levels = add("levels", from_sweep, "Figure 2 from the logs of runs with several flood levels")
    levels.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="logs, or folders with a train.log")
    levels.add_argument("--metric", default="accuracy", help="validation metric")
    levels.add_argument(
        "--which", choices=("last", "best"), default="last", help="epoch to read; the paper uses the last"
    )

    noise = add("noise", from_noise, "Figure 1 from checkpoints, one of each run to compare")
    noise.add_argument(
        "checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoints to compare"
    )
    noise.add_argument(
        "--stds", type=with_commas, required=True, help="standard deviations of the noise: 0,0.01,0.02"
    )
    noise.add_argument("--labels", metavar="A,B,…", help="a name for each checkpoint (default: folder/file)")
    noise.add_argument(
        "--data", metavar="DIR", help="data folder (default: the one the checkpoint was trained on)"
    )
    noise.add_argument("--split", default="valid", help="split of the data; needs labels")
    add_batch_size(noise.add_argument, 32)
    noise.add_argument("--draws", type=count, default=1, help="draws of the noise to average over")
    noise.add_argument("--seed", type=whole, default=1, help="seed of the noise")
    add_cpu(noise.add_argument)

    for command in (log, probe, levels, noise):  # OUT comes last: there can be many inputs
        command.add_argument("out", type=Path, metavar="OUT", help=OUT_HELP)
    return options


def _add_crossing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--group",
        help="parameters whose crossings are marked: all, encoder or head (default: the first one measured)",
    )
    command.add_argument(
        "--crossing", choices=DIRECTIONS, default="any", help="crossings to mark; up: negative to positive"
    )


def from_log(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.figures.accordance_log import read_accordance

    _finish_curve(read_accordance(options.run), options)


def from_checkpoints(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.figures.accordance_checkpoints import Probing, probe_checkpoints

    how = Probing(
        options.data, options.batches, options.batch_size, options.seed, options.dropout, options.split,
        options.valid_split,
    )  # fmt: skip
    name = options.checkpoints[0].resolve().parent.name
    curve = probe_checkpoints(options.checkpoints, how, _beside(options.out, ".kept"), name, options.cpu)
    _finish_curve(curve, options)


def _finish_curve(curve: Curve, options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.figures import accordance_curve, plots

    group = options.group or curve.groups[0]
    text = accordance_curve.report(curve, group, options.crossing)
    _write(
        options.out,
        accordance_curve.as_csv(curve),
        lambda out: plots.draw_accordance(curve, out, group, options.crossing),
    )
    print(text)


def from_sweep(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.figures import flood_levels, plots

    runs = [flood_levels.read_run(run, options.metric, options.which) for run in options.runs]
    levels = flood_levels.by_level(runs)
    _write(
        options.out,
        flood_levels.levels_csv(levels, options.metric, options.which),
        lambda out: plots.draw_levels(levels, options.metric, options.which, out),
    )
    print(flood_levels.levels_table(levels, options.metric, options.which))


def from_noise(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.figures import gaussian_noise, plots

    how = gaussian_noise.Noise(
        options.stds, options.split, options.data, options.batch_size, options.draws, options.seed,
        options.cpu,
    )  # fmt: skip
    labels = _labels(options)
    kept = _beside(options.out, ".kept")
    curves = [
        gaussian_noise.noise_curve(path, label, how, kept) for path, label in zip(options.checkpoints, labels)
    ]
    _write(
        options.out,
        gaussian_noise.noise_csv(curves),
        lambda out: plots.draw_noise(curves, options.split, out),
    )


def _labels(options: argparse.Namespace) -> list[str]:
    paths = options.checkpoints
    if options.labels is None:
        labels = [f"{path.resolve().parent.name}/{path.stem}" for path in paths]
    else:
        labels = [label.strip() for label in options.labels.split(",")]
    if len(labels) != len(paths) or len(set(labels)) < len(labels):
        raise ValueError(
            f"--labels {','.join(labels)}: pass {len(paths)} different names separated by commas, one per "
            "checkpoint"
        )
    return labels


def _write(out: Path, csv: str, draw: Callable[[Path], None]) -> None:
    """Writes OUT.csv, and OUT.png if matplotlib is installed."""
    from fairseq_adv.data.io import write_whole
    from fairseq_adv.evaluation.figures.plots import NoMatplotlib

    table, figure = _beside(out, ".csv"), _beside(out, ".png")
    write_whole(table, csv)
    try:
        draw(figure)
    except NoMatplotlib as missing:
        print(f"wrote {table}")
        print(f"note: {missing}", file=sys.stderr)
    else:
        print(f"wrote {figure} and {table}")


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(out.name + ending)


def _check_out(options: argparse.Namespace) -> None:
    """Catches a forgotten OUT before any work starts: the last input would be taken for it."""
    if options.out.suffix in (".png", ".csv"):
        options.out = options.out.with_suffix("")
    elif options.out.exists() or options.out.suffix in (".pt", ".log"):
        raise ValueError(
            f"OUT {options.out}: the last argument is the output name without an extension, such as "
            f"{options.out.with_name('accordance')}"
        )


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    for name in ("fairseq", "matplotlib"):  # they report optional packages and fonts
        logging.getLogger(name).setLevel(logging.WARNING)

    def work() -> None:
        _check_out(options)
        options.work(options)

    return exit_status(work, (ValueError, OSError), RESUMABLE)
