"""Turns GLUE's QNLI into questions with two sentences each, for ``--task qnli_ranking``.

The right choice is the sentence that entails the answer. For most questions QNLI has one such sentence and
one other. OUT gets:
  train.jsonl, valid.jsonl   pairs with their answers
  test.jsonl                 every row of test.tsv, for prediction
  test-dev.jsonl             every row of dev.tsv, for prediction: gives the score on all of dev
  report.json                counts, and the rows without a partner

Example:
  fairseq-adv prepare qnli-ranking glue_data/QNLI QNLI-pairs
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from .number_types import whole
from .script import STARTS_OVER, command_parser, exit_status
from .shared_options import add_max_line, add_overwrite, limited

if TYPE_CHECKING:
    from fairseq_adv.data.choices.prepare_qnli_ranking import PreparedPairs


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare qnli-ranking", __doc__)
    parser.add_argument(
        "qnli_dir", type=Path, metavar="QNLI_DIR", help="GLUE's QNLI: train.tsv, dev.tsv, optionally test.tsv"
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="output folder")
    parser.add_argument("--seed", type=whole, default=1, help="seed for ordering a question's choices")
    add_max_line(parser.add_argument)
    add_overwrite(parser.add_argument)
    return parser


def _report(result: PreparedPairs) -> None:
    if result.reused:
        print(f"{result.out} is already there and made from these files; nothing to do")
    else:
        print(f"wrote {result.out}")
    for split, counts in result.report.items():
        print(f"{split}: {counts['questions']} questions from {counts['rows']} rows")
        for what in ("rows paired with a row used before", "rows paired with a row of another split"):
            if counts[what]:
                print(f"  {what}: {counts[what]}")
        if counts["rows alone"]:
            left_out = split in ("train", "valid")
            fate = "left out" if left_out else "questions with one choice"
            print(f"  rows without a partner: {counts['rows alone']}, {fate} (report.json names them)")
    for note in result.notes:
        print(f"  note: {note}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    from fairseq_adv.data.choices.prepare_qnli_ranking import prepare_pairs

    def work() -> None:
        _report(prepare_pairs(args.qnli_dir, args.out, args.seed, args.overwrite))

    return exit_status(limited(args, work), stopped=STARTS_OVER)
