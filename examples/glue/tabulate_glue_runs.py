#!/usr/bin/env python3
"""The runs of small_runs.sh side by side, a table a task: scores, losses, an attack, what a run costs.

Example: examples/glue/tabulate_glue_runs.py out/glue-small --into page.md
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from run_tables import command, minutes, spread

from fairseq_adv.evaluation.runs import RunLog, read_log

SCORES = {"CoLA": "mcc", "RTE": "accuracy"}
METHODS = ("standard", "freelb", "pgd", "freeat", "yopo")
_NAME = re.compile(rf"({'|'.join(SCORES)})-({'|'.join(METHODS)})-(\d+)")


@dataclass(frozen=True)
class Run:
    """A finished run of small_runs.sh.

    Attributes:
        folder: holds its log.
        task: as GLUE calls it.
        method: as small_runs.sh calls it.
        seed: of the run.
        log: its epochs.
        attack: what scripts/loss_under_perturbation.py wrote.
    """

    folder: Path
    task: str
    method: str
    seed: int
    log: RunLog
    attack: dict[str, float]

    @property
    def updates(self) -> int:
        """How many it made, as fairseq counts them."""
        return int(self.log.train[-1]["num_updates"])

    @property
    def seconds_per_update(self) -> float:
        """Wall time of training alone, without validation and what comes before the first update."""
        return sum(epoch["train_wall"] for epoch in self.log.train) / self.updates


def read_runs(out: Path) -> list[Run]:
    """The finished and attacked runs, by task, method and seed.

    Raises:
        ValueError: a log holds no finished epoch, or an attack's outcome is no json.
    """
    found = []
    for done in out.glob("*/done"):
        name, attack = _NAME.fullmatch(done.parent.name), done.with_name("attack.json")
        if name is None or not attack.is_file():
            continue
        log, means = read_log(done.with_name("train.log")), _attack(attack)
        found.append(Run(done.parent, name[1], name[2], int(name[3]), log, means))
    return sorted(found, key=lambda run: (run.task, METHODS.index(run.method), run.seed))


def _attack(path: Path) -> dict[str, float]:
    try:
        means: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}: is no json ({error}); remove {path.parent} and start small_runs.sh again"
        ) from error
    return means


def tables(out: Path) -> list[str]:
    """A table for each task that there are runs of, a row a method."""
    runs = read_runs(out)
    lines = []
    for task in SCORES:
        rows: dict[str, list[Run]] = {}
        for run in runs:
            if run.task == task:
                rows.setdefault(run.method, []).append(run)
        if not rows:
            continue
        heads = [
            task, "seeds", "updates", f"dev {SCORES[task]}", "dev loss", "training loss, last epoch",
            "s an update", "attacked rows", "their loss", "under attack", "difference",
            "accuracy under attack", "CPU minutes a run",
        ]  # fmt: skip
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        lines += [f"| `{method}` | {' | '.join(_cells(of, SCORES[task]))} |" for method, of in rows.items()]
        lines.append("")
    return lines


def _cells(runs: list[Run], score: str) -> list[str]:
    """The cells of a row; where several numbers stand, they are those of the seeds, in their order."""
    valid, attacks = [run.log.valid[-1] for run in runs], [run.attack for run in runs]
    return [
        _each(run.seed for run in runs),
        _each(run.updates for run in runs),
        spread([epoch[score] for epoch in valid]),
        spread([_nats(epoch) for epoch in valid], 3),
        spread([_nats(run.log.train[-1]) for run in runs], 3),
        f"{statistics.median(run.seconds_per_update for run in runs):.2f}",
        _each(int(attack["examples"]) for attack in attacks),
        f"{statistics.mean(attack['loss'] for attack in attacks):.3f}",
        spread([attack["perturbed_loss"] for attack in attacks], 3),
        spread([attack["perturbed_loss"] - attack["loss"] for attack in attacks], 4),
        spread([attack["perturbed_accuracy"] for attack in attacks], 1),
        f"{statistics.mean(minutes(run.folder)[1] for run in runs):.1f}",
    ]


def _each(numbers: Iterable[int]) -> str:
    """Those that differ, in order: one, unless runs of different lengths are in a row."""
    return ", ".join(map(str, sorted(set(numbers))))


def _nats(values: dict[str, float]) -> float:
    """A loss that fairseq logged in bits."""
    return values["loss"] * math.log(2)


if __name__ == "__main__":
    sys.exit(command(__doc__, tables))
