#!/usr/bin/env python3
"""The runs of small_runs.sh side by side, as a table: chance, dev accuracy, training loss at its begin and
end.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

METHODS = ("freelb", "standard")


def chance(task: Any) -> float:
    """Accuracy x 100 on the validation split of an answer drawn at random; WSC: of the more frequent
    label.
    """
    examples = task.dataset("valid").examples
    if hasattr(examples[0], "choices"):
        return 100 * sum(1 / len(question.choices) for question in examples) / len(examples)
    return 100 * max(Counter(example.label for example in examples).values()) / len(examples)


def row(run: Path) -> str:
    """One line of the table."""
    from fairseq import checkpoint_utils

    from fairseq_adv.evaluation.runs import read_log, training_curve

    name, _, method = run.name.rpartition("-")
    log, curve = read_log(run / "train.log"), training_curve(run / "train.log")
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([str(run / "checkpoint_last.pt")])
    task.load_dataset("valid")
    best = max(log.valid, key=lambda epoch: epoch["accuracy"])
    parts = [
        f"{key[len('accuracy_') :]} {value:g}" for key, value in best.items() if key.startswith("accuracy_")
    ]
    seconds = sum(epoch["train_wall"] for epoch in log.train) / curve[-1][0]
    accuracy = f"{best['accuracy']:.2f}" + (f" ({', '.join(parts)})" if parts else "")
    return (
        f"| {name} | {method} | {curve[-1][0]} | {len(task.dataset('valid'))} | {chance(task):.2f} | "
        f"{accuracy} | {curve[0][1]:.3f} → {curve[-1][1]:.3f} | {seconds:.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder that small_runs.sh wrote into")
    out = parser.parse_args().out
    runs = sorted(path.parent for path in out.glob("*/done") if path.parent.name.endswith(METHODS))
    if not runs:
        print(f"error: {out}: holds no finished run", file=sys.stderr)
        return 2
    print(
        "| run | criterion | updates | dev questions | chance | best dev accuracy | training loss, bits | "
        "s/update |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for run in runs:
        print(row(run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
