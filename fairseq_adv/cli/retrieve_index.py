"""Indexes text files, one sentence per line, for fairseq-adv retrieve documents.

CORPUS files may be gzipped. OUT is a folder. Interrupted builds resume.

Examples:
  fairseq-adv retrieve index ARC_Corpus.txt arc-index
  fairseq-adv retrieve index 'wikipedia/*.gz' science.txt index --encoding-errors replace
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .removed import add_engine
from .script import RESUMABLE, command_parser, exit_status
from .shared_options import add_overwrite


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("retrieve index", __doc__)
    parser.add_argument("corpus", nargs="+", metavar="CORPUS", help="text files, or quoted glob patterns")
    parser.add_argument("out", type=Path, metavar="OUT", help="output folder")
    add_engine(parser)
    parser.add_argument(
        "--encoding-errors",
        choices=["strict", "replace"],
        default="strict",
        help="on text that is not UTF-8: stop with an error, or insert U+FFFD",
    )
    add_overwrite(parser.add_argument)
    return parser


def _build(args: argparse.Namespace) -> None:
    from fairseq_adv.retrieval import tantivy_index
    from fairseq_adv.retrieval.sentences import survey

    corpus = survey(args.corpus, args.encoding_errors)
    built = tantivy_index.build(corpus, args.out, args.overwrite)
    if built.reused:
        print(f"{args.out} is already there and made from these files; nothing to do")
        return
    if built.continued_at:
        print(f"resumed after {built.continued_at} sentences")
    print(f"wrote {args.out} ({built.sentences} sentences, segments: {built.segments})")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return exit_status(lambda: _build(args), stopped=RESUMABLE)
