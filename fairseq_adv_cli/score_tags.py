"""Scores predicted tags: precision, recall and F1 of the entities, by conlleval's rules.

The last two columns of FILE are the right tag and the predicted one, as fairseq-adv predict --task tagging
writes them. An entity is right if its words and its type are.

Example:
  fairseq-adv score tags answers/predictions.tsv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .score import show
from .script import command_parser, exit_status


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("score tags", __doc__)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a word a line, its columns between tabs or blanks")
    add("--strict", action="store_true", help="a predicted entity that begins with I- counts as none, as in "
        "seqeval's strict mode; conlleval counts it")  # fmt: skip
    add("--json", action="store_true", help="print one line of json instead of a table")
    return parser


def _score(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.entity_report import score_columns

    show(score_columns(args.file, args.strict), args.json)


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return exit_status(lambda: _score(args))
