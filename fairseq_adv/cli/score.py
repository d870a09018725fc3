"""``fairseq-adv score``: scores files of predictions by the rules of the official evaluations."""

from __future__ import annotations

import json

from .script import command_parser, run_verb

VERBS = {
    "squad": ("score_squad", "answers to SQuAD questions, adversarial SQuAD included"),
    "tags": ("score_tags", "predicted tags next to the gold ones"),
}


def main(argv: list[str] | None = None) -> int:
    return run_verb(command_parser("score", "Scores a file of predictions."), VERBS, argv)


def show(report: dict[str, float], as_json: bool) -> None:
    """Prints the scores, one per line, or all as one line of JSON."""
    if as_json:
        print(json.dumps(report))
        return
    width = max(map(len, report))
    for name, value in report.items():
        print(f"{name:{width}}  {value}" if isinstance(value, int) else f"{name:{width}}  {value:.2f}")
