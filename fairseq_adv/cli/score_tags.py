"""Scores predicted tags: precision, recall and F1 of the entities, by conlleval's rules.

The last two columns of FILE are the gold tag and the predicted tag, as written by fairseq-adv predict --task
tagging. An entity counts as correct if its words and its type are correct.

Example:
  fairseq-adv score tags answers/predictions.tsv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .score import show
from .script import command_parser, exit_status
from .shared_options import add_json


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("score tags", __doc__)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="one word per line, columns separated by tabs or spaces")
    add("--strict", action="store_true", help="ignore predicted entities that begin with I- or, in BIOES, "
        "are not complete, as seqeval's strict mode does; conlleval counts them")  # fmt: skip
    add_json(add)
    return parser


def _score(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.entity_report import score_columns

    show(score_columns(args.file, args.strict), args.json)


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return exit_status(lambda: _score(args))
