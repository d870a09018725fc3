"""Scores answers to SQuAD's questions: exact match and F1 by the rules of its official evaluation.

exact and f1 are means over all questions of the file. Where contexts may have no answer (version 2.0),
HasAns_ and NoAns_ tell the two kinds apart, and with --null-odds best_ has the best threshold, which is tuned
on this very file. Of adversarial SQuAD (AddSent, AddOneSent) the number of the papers is adversarial_f1: of
each original question the variant with the lowest F1 counts. original_ are the questions as they were.

Examples:
  fairseq-adv score squad dev-v1.1.json answers/predictions-valid.json
  fairseq-adv score squad dev-v2.0.json out/predictions-valid.json --null-odds out/null_odds-valid.json
  fairseq-adv score squad sample1k-HCVerifyAll.json answers/predictions-sample1k-HCVerifyAll.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .score import show
from .script import command_parser, exit_status


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("score squad", __doc__)
    add = parser.add_argument
    add("gold", type=Path, metavar="DATA", help="SQuAD's json, with right answers")
    add("predictions", type=Path, metavar="PREDICTIONS", help="json: an object of ids and answers")
    add("--null-odds", type=Path, metavar="FILE", help="json: an object of ids and odds of having no answer")
    add("--threshold", type=float, default=1.0, metavar="X", help="--null-odds above it mean no answer")
    add("--json", action="store_true", help="print one line of json instead of a table")
    return parser


def _score(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.span_report import score_file

    report, notes = score_file(args.gold, args.predictions, args.null_odds, args.threshold)
    show(report, args.json)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return exit_status(lambda: _score(args))
