"""``fairseq-adv score``: files of predictions, by the rules of their official evaluations."""

from __future__ import annotations

import json

from .script import command_parser, run_verb

VERBS = {
    "squad": ("score_squad", "answers to SQuAD's questions, adversarial SQuAD's too"),
    "tags": ("score_tags", "predicted tags beside the right ones"),
}


def main(argv: list[str] | None = None) -> int:
    return run_verb(command_parser("score", "Scores a file of predictions."), VERBS, argv)


def show(report: dict[str, float], as_json: bool) -> None:
    """Prints the scores, one a line or as one line of json."""
    if as_json:
        print(json.dumps(report))
        return
    width = max(map(len, report))
    for name, value in report.items():
        print(f"{name:{width}}  {value}" if isinstance(value, int) else f"{name:{width}}  {value:.2f}")
