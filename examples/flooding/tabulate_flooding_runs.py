#!/usr/bin/env python3
"""The runs of small_runs.sh side by side, as tables: scores and losses, what auto found, the accordance.

Example: examples/flooding/tabulate_flooding_runs.py out/flooding-small --into examples/flooding/RESULTS.md
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from run_tables import command, minutes, spread

from fairseq_adv.evaluation.figures.accordance_curve import Curve
from fairseq_adv.evaluation.figures.accordance_log import read_accordance
from fairseq_adv.evaluation.runs import RunLog, read_log

SCORES = {"CoLA": ("mcc",), "MRPC": ("accuracy", "f1")}
SETTINGS = ("standard", "flooding-", "auto", "auto-head", "freelb", "measured")
SEARCHED = ("auto", "auto-head", "measured")
_NAME = re.compile(r"(CoLA|MRPC)-(.+)-(\d+)")


@dataclass(frozen=True)
class Run:
    """A finished run of small_runs.sh.

    Attributes:
        folder: holds its log.
        task: as GLUE calls it.
        setting: as small_runs.sh calls it.
        seed: of the run.
        log: its epochs.
        attack: what scripts/loss_under_perturbation.py wrote.
    """

    folder: Path
    task: str
    setting: str
    seed: int
    log: RunLog
    attack: dict[str, float]

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Where it stands in the tables."""
        kind = next(i for i, name in enumerate(SETTINGS) if _is_of(self.setting, name))
        return list(SCORES).index(self.task), kind, self.setting, self.seed


def _is_of(setting: str, name: str) -> bool:
    return setting.startswith(name) if name.endswith("-") else setting == name


def read_runs(out: Path) -> list[Run]:
    """The finished and attacked runs, in the order of the tables.

    Raises:
        ValueError: a log holds no finished epoch.
    """
    found = []
    for done in out.glob("*/done"):
        name, attack = _NAME.fullmatch(done.parent.name), done.with_name("attack.json")
        if name is None or not attack.is_file():
            continue
        log, means = read_log(done.with_name("train.log")), json.loads(attack.read_text())
        found.append(Run(done.parent, name[1], name[2], int(name[3]), log, means))
    return sorted(found, key=lambda run: run.order)


def grouped(runs: list[Run]) -> dict[tuple[str, str], list[Run]]:
    """The seeds of each task and setting together, in the order given."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.setting), []).append(run)
    return groups


def nats(values: dict[str, float]) -> float:
    """A loss that fairseq logged in bits."""
    return values["loss"] * math.log(2)


def scores(groups: dict[tuple[str, str], list[Run]]) -> list[str]:
    """For each task a table of its settings: after the last epoch, means over the seeds and every value."""
    lines = []
    for task, names in SCORES.items():
        rows = {setting: runs for (of, setting), runs in groups.items() if of == task}
        if not rows:
            continue
        heads = [f"dev {name}" for name in names] + [
            "dev loss", "training loss, last epoch", "updates flooded, last epoch", "attacked rows: loss",
            "under attack", "accuracy under attack", "train s an epoch", "CPU s a run",
        ]  # fmt: skip
        lines += [f"| {task} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        lines += [f"| `{setting}` | {' | '.join(_cells(runs, names))} |" for setting, runs in rows.items()]
        lines.append("")
    return lines


def _cells(runs: list[Run], names: tuple[str, ...]) -> list[str]:
    """The cells of a row of :func:`scores`."""
    valid, train = [run.log.valid[-1] for run in runs], [run.log.train[-1] for run in runs]
    flooded = [100 * epoch["flooded"] for epoch in train if "flooded" in epoch]
    seconds = [epoch["train_wall"] for run in runs for epoch in run.log.train]
    return [
        *(spread([epoch[name] for epoch in valid]) for name in names),
        spread([nats(epoch) for epoch in valid], 3),
        spread([nats(epoch) for epoch in train], 3),
        f"{statistics.mean(flooded):.0f}%" if flooded else "",
        f"{statistics.mean(run.attack['loss'] for run in runs):.3f}",
        spread([run.attack["perturbed_loss"] for run in runs], 3),
        spread([run.attack["perturbed_accuracy"] for run in runs], 1),
        f"{statistics.median(seconds):.0f}",
        f"{statistics.mean(60 * minutes(run.folder)[1] for run in runs):.0f}",
    ]


def searches(groups: dict[tuple[str, str], list[Run]]) -> list[str]:
    """What the gradient accordance did in each run that measured it."""
    rows = []
    for (task, setting), runs in groups.items():
        for run in runs if setting in SEARCHED else []:
            curve = read_accordance(run.folder)
            best = min(curve.dev_loss, key=lambda point: point[1])
            flood = "none" if curve.start is None else f"{curve.start.level:.3f} from {curve.start.update} on"
            cells = [f"{_ends(curve, group)}{_crossings(curve, group)}" for group in curve.groups]
            rows.append(f"| {task} | `{setting}` | {run.seed} | {' | '.join(cells)} | {flood} | {best[0]} |")
    if not rows:
        return []
    head = (
        "| task | run | seed | mean cosine, all: first → last; crossings | encoder | head | b, nats | "
        "update of the lowest dev loss |"
    )
    return [head, "|---" * 8 + "|", *rows, ""]


def _ends(curve: Curve, group: str) -> str:
    values = [value for _, value in curve.cosines(group) if not math.isnan(value)]
    return f"{values[0]:+.2f} → {values[-1]:+.2f}" if values else "not measured"


def _crossings(curve: Curve, group: str) -> str:
    found = [
        f"{one.crossing.direction} at {one.crossing.update} (loss {one.after:.3f})"
        for one in curve.suggestions(group)
    ]
    return f"; {', '.join(found)}" if found else "; none"


def curves(groups: dict[tuple[str, str], list[Run]]) -> list[str]:
    """Each run that measured to the end, as Figure 3: a row a measurement or validation."""
    lines = []
    for (task, setting), runs in groups.items():
        for run in runs if setting == "measured" else []:
            curve = read_accordance(run.folder)
            lines += [
                f"{task}, `measured`, seed {run.seed}:",
                "",
                f"| update | {' | '.join(curve.groups)} | training loss since the row before | dev loss |",
                "|---" * (len(curve.groups) + 3) + "|",
            ]
            dev = dict(curve.dev_loss)
            measured = {one.update: one for one in curve.measurements}
            for update in sorted({*dev, *measured}):
                one = measured.get(update)
                cells = [f"{one.cosine[g]:+.3f}" if one else "" for g in curve.groups]
                loss = f"{one.train_loss:.3f}" if one else ""
                last = f"{dev[update]:.3f}" if update in dev else ""
                lines.append(f"| {update} | {' | '.join(cells)} | {loss} | {last} |")
            lines += ["", _like_standard(run, groups.get((task, "standard"), [])), ""]
    return lines


def _like_standard(run: Run, plain: list[Run]) -> str:
    """Whether a run that only measured logged the losses of plain training with its seed."""
    same = [other for other in plain if other.seed == run.seed]
    if not same:
        return "There is no plain run with this seed to compare its losses with."
    pairs = [
        (mine["loss"], other["loss"])
        for mine, other in zip(run.log.train + run.log.valid[-1:], same[0].log.train + same[0].log.valid[-1:])
    ]
    most = max(abs(left - right) for left, right in pairs)
    return (
        f"Its training losses of {len(pairs) - 1} epochs and its last dev loss differ from those that "
        f"`standard` logged with this seed by at most {most:g} bits, of the three digits that a log has."
    )


def tables(out: Path) -> list[str]:
    """All tables that there are runs for."""
    groups = grouped(read_runs(out))
    return [*scores(groups), *searches(groups), *curves(groups)]


if __name__ == "__main__":
    sys.exit(command(__doc__, tables))
