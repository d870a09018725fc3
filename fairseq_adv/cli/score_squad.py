"""Scores answers to SQuAD questions: exact match and F1 by the rules of the official evaluation.

exact and f1 are means over all questions of the file. For version 2.0, where some questions have no answer,
HasAns_ and NoAns_ give the scores of the two kinds. With --null-odds, best_ gives the scores at the best
threshold, which is tuned on this very file. For adversarial SQuAD (AddSent, AddOneSent) papers report
adversarial_f1: each original question counts with its lowest F1 over all variants. original_ gives the scores
of the original questions.

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
from .shared_options import add_json


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("score squad", __doc__)
    add = parser.add_argument
    add("gold", type=Path, metavar="DATA", help="SQuAD's JSON, with right answers")
    add("predictions", type=Path, metavar="PREDICTIONS", help="JSON: an object from ids to answers")
    add("--null-odds", type=Path, metavar="FILE", help="JSON: an object from ids to odds of having no answer")
    add("--threshold", type=float, default=1.0, metavar="X", help="higher --null-odds count as no answer")
    add_json(add)
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
