#!/usr/bin/env python3
"""The runs of small_runs.sh side by side, as tables: pre-training, what the VAT term did, fine-tuning.

Example: examples/alum/tabulate_alum_runs.py out/alum-small --into examples/alum/RESULTS.md
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from run_tables import command, minutes, spread

PRETRAINED = {
    "warmup": "start of both (after the warm-up)",
    "pretrain-plain": "plain",
    "pretrain-alum": "ALUM",
    "pretrain-same": "plain, as many updates as ALUM",
}
STARTS = {"none": "as published", "plain": "plain", "alum": "ALUM"}
METHODS = ("standard", "alum_vat", "smart")
SCORES = {"MRPC": ("accuracy", "f1"), "RTE": ("accuracy",)}
_PAIR = re.compile(r"[ ,]([a-z_0-9]+)[= ](-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf))(?=[, \n]|$)")


def last_values(path: Path, mark: str) -> dict[str, float]:
    """The numbers of the last line of a fairseq log that holds ``mark``.

    Raises:
        ValueError: there is no such line.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if mark in line]
    if not lines:
        raise ValueError(f"{path}: no line holds {mark!r}; was it written by small_runs.sh?")
    return {name: float(value) for name, value in _PAIR.findall(lines[-1])}


def inner_lines(path: Path) -> list[dict[str, float]]:
    """The numbers of each line that ``--log-interval`` made, one for each count of updates, in order."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        values = {name: float(value) for name, value in _PAIR.findall(line)}
        if line.startswith("epoch ") and "/" in line.split("|")[0] and "num_updates" in values:
            found[values["num_updates"]] = values
    return [found[updates] for updates in sorted(found)]


def updates_done(run: Path) -> int:
    """The number of updates after which a run ended."""
    return int(re.findall(r"\bnum_updates[= ](\d+)", (run / "train.log").read_text(encoding="utf-8"))[-1])


def pretraining(out: Path) -> list[str]:
    """A table of the pre-training runs."""
    runs = [name for name in PRETRAINED if (out / name / "valid.log").is_file()]
    if not runs:
        return []
    attacks = sorted({path.name for name in runs for path in (out / name).glob("attack-*.json")})
    radii = "".join(f" within {name[len('attack-') : -len('.json')]} |" for name in attacks)
    lines = [
        f"| run | updates | wall, CPU minutes | valid perplexity | valid loss, first rows | {radii}",
        "|---|---|---|---|---|" + "---|" * len(attacks),
    ]
    for name in runs:
        run = out / name
        means = [json.loads((run / attack).read_text()) for attack in attacks]
        clean = f"{means[0]['loss']:.3f}" if means else ""
        cells = "".join(f" {mean['perturbed_loss']:.3f} |" for mean in means)
        lines.append(
            f"| {PRETRAINED[name]} | {updates_done(run)} | {'{:.1f}, {:.1f}'.format(*minutes(run))} | "
            f"{last_values(run / 'valid.log', '| ppl ')['ppl']:.2f} | {clean} |{cells}"
        )
    return [*lines, ""]


def regulariser(out: Path) -> list[str]:
    """What the VAT term did in the ALUM run: medians over the run's log lines."""
    log = out / "pretrain-alum" / "train.log"
    if not (out / "pretrain-alum" / "done").is_file():
        return []
    rows = inner_lines(log)
    names = sorted({name for row in rows for name in row if name.startswith("vat_")})
    if not names:
        return []
    lines = ["| logged in the ALUM run (losses in bits) | median | least | most |", "|---|---|---|---|"]
    for name in names:
        values = [row[name] for row in rows if name in row]
        lines.append(
            f"| `{name}` | {statistics.median(values):.3g} | {min(values):.3g} | {max(values):.3g} |"
        )
    plain = out / "pretrain-plain" / "train.log"
    losses = {row["num_updates"]: row["loss"] for row in inner_lines(plain)} if plain.is_file() else {}
    # Both runs see the same batches in the same order.
    both = [row for row in rows if row["num_updates"] in losses]
    if both:
        most = max(abs(row["task_loss"] - losses[row["num_updates"]]) for row in both)
        lines += [
            "",
            "After the same number of updates, the training losses of the plain and the ALUM run (the "
            f"task's, means of 10 updates) differ by at most {most:.3f} bits, in {len(both)} lines of the "
            "logs.",
        ]
    return [*lines, ""]


def fine_tuning(out: Path) -> list[str]:
    """A table of the fine-tuning runs; the scores are those after the last update."""
    lines = [
        "| task | start | criterion | updates | accuracy | F1 | CPU s a run |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, names in SCORES.items():
        for start in STARTS:
            for method in METHODS:
                pattern = re.compile(rf"{task}-{start}-{method}-(\d+)")
                found = {
                    int(match[1]): path.parent
                    for path in out.glob("finetune/*/done")
                    if (match := pattern.fullmatch(path.parent.name))
                }
                if not found:
                    continue
                runs = [found[seed] for seed in sorted(found)]
                valid = [last_values(run / "train.log", "| valid on ") for run in runs]
                scores = [spread([values[name] for values in valid]) for name in names] + [""]
                cpu = statistics.mean(60 * minutes(run)[1] for run in runs)
                lines.append(
                    f"| {task} | {STARTS[start]} | `{method}` | {valid[0]['num_updates']:.0f} | {scores[0]} "
                    f"| {scores[1]} | {cpu:.0f} |"
                )
    return [*lines, ""] if len(lines) > 2 else []


def tables(out: Path) -> list[str]:
    """All tables that there are runs for."""
    return [*pretraining(out), *regulariser(out), *fine_tuning(out)]


if __name__ == "__main__":
    sys.exit(command(__doc__, tables))
