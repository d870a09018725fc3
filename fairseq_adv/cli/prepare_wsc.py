"""Adds candidates to each line of SuperGLUE's WSC files, for the task wsc.

The output has the same lines with a key "candidates", so training and prediction need no spaCy. Candidates
are the noun phrases of the text, as in fairseq. Finding them needs pip install 'fairseq_adv[wsc]' and a spaCy
model. Without a model, use --candidates spans: the phrases that other lines of the same file ask about for
the same text. They are fewer, were chosen by the data set's authors, and a text that occurs on only one line
has none.

Examples:
  fairseq-adv prepare wsc WSC/train.jsonl WSC/val.jsonl WSC/test.jsonl wsc-data
  fairseq-adv prepare wsc WSC wsc-data --candidates spans
  fairseq-adv prepare wsc glue_data/WNLI/test.tsv wnli-data    # built from WNLI's rows, in their order
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from .script import STARTS_OVER, command_parser, exit_status
from .shared_options import add_max_line, add_overwrite, limited

if TYPE_CHECKING:
    from fairseq_adv.data.wsc.prepare_wsc import PreparedWsc


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare wsc", __doc__)
    parser.add_argument(
        "input",
        type=Path,
        nargs="+",
        metavar="INPUT",
        help="train.jsonl, val.jsonl, test.jsonl (or WNLI's .tsv), SPLIT=FILE, or their folder",
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="output folder: train.jsonl, valid.jsonl, test.jsonl"
    )
    parser.add_argument(
        "--candidates",
        choices=["noun-phrases", "spans", "both"],
        default="noun-phrases",
        help="where the candidates come from",
    )
    parser.add_argument(
        "--spacy-model", default="en_core_web_lg", metavar="NAME", help="spaCy model: a package or a folder"
    )
    add_max_line(parser.add_argument)
    add_overwrite(parser.add_argument)
    return parser


def _report(result: PreparedWsc) -> None:
    if result.reused:
        print(f"{result.out} is already there and made from these files; nothing to do")
    else:
        print(f"wrote {result.out}")
    for split, rows in result.rows.items():
        mean = result.candidates[split] / rows
        print(f"  {split}: {rows} examples, {mean:.1f} candidates each, {result.bare[split]} without any")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    from fairseq_adv.data.wsc.prepare_wsc import prepare_wsc

    def work() -> None:
        _report(prepare_wsc(args.input, args.out, args.candidates, args.spacy_model, args.overwrite))

    return exit_status(limited(args, work), stopped=STARTS_OVER)
