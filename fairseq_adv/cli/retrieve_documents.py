"""Retrieves documents for each choice of multiple-choice questions and writes them to its key "para".

QUESTIONS are jsonl files of ARC, OpenBookQA or CommonsenseQA, or AI2's CSV (Regents), which is converted to
jsonl. All other keys are kept; an existing "para" is replaced. OUT is the output folder, and the files keep
their names; with a single file of QUESTIONS, OUT can also be a file name that ends in .jsonl. A manifest next
to each file records the index, the version of tantivy and the options. Interrupted runs resume.

Examples:
  fairseq-adv retrieve documents arc-index raw/ARC-Easy-Dev.jsonl with-para/dev.jsonl
  fairseq-adv retrieve documents arc-index arc/*.jsonl with-para --workers 8
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .number_types import count
from .removed import add_engine
from .script import RESUMABLE, command_parser, exit_status
from .shared_options import add_overwrite


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("retrieve documents", __doc__)
    parser.add_argument(
        "index", type=Path, metavar="INDEX", help="folder written by fairseq-adv retrieve index"
    )
    parser.add_argument("questions", nargs="+", type=Path, metavar="QUESTIONS", help="jsonl or CSV files")
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="output folder; or a file, if the name ends in .jsonl"
    )
    parser.add_argument("--top", type=count, default=10, metavar="N", help="documents per choice")
    parser.add_argument(
        "--choice-terms",
        choices=["any", "all"],
        default="any",
        help="a sentence must contain any of the choice's words, or all of them if some sentence does",
    )
    parser.add_argument(
        "--longest", type=count, default=300, metavar="N", help="most characters per document"
    )
    parser.add_argument(
        "--workers",
        type=count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of threads (default: one per core)",
    )
    add_engine(parser)
    add_overwrite(parser.add_argument)
    return parser


def _targets(questions: list[Path], out: Path) -> list[Path]:
    from fairseq_adv.data.errors import DataError

    ending = out.suffix.lower()
    if ending in (".jsonl", ".csv") and not out.is_dir():
        if ending == ".csv":
            raise DataError(f"{out}: the output is jsonl. Pass a folder, or a name that ends in .jsonl.")
        if len(questions) > 1:
            raise DataError(f"{out}: one file can't hold {len(questions)} files of QUESTIONS. Pass a folder.")
        return [out]
    if out.is_file():
        raise DataError(f"{out}: not a directory. Pass a folder, or a name that ends in .jsonl.")
    names = [path.stem + ".jsonl" if path.suffix.lower() == ".csv" else path.name for path in questions]
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"{name}: two input files have this name. Retrieve for them into separate folders."
            )
    return [out / name for name in names]


def _retrieve(args: argparse.Namespace) -> None:
    from fairseq_adv.retrieval.documents import Options
    from fairseq_adv.retrieval.fill import fill
    from fairseq_adv.retrieval.tantivy_index import open_index

    options = Options(args.top, args.choice_terms, args.longest)
    targets = _targets(args.questions, args.out)
    engine = open_index(args.index)
    for source, target in zip(args.questions, targets):
        filled = fill(engine, source, target, options, args.workers, args.overwrite)
        if filled.reused:
            print(f"{target} is already there and made from these files; nothing to do")
            continue
        if filled.continued_at:
            print(f"{source.name}: resumed after {filled.continued_at} questions")
        print(f"wrote {target} ({filled.questions} questions, {filled.choices} choices)")
        if filled.fallbacks:
            print(f"  note: {filled.fallbacks} choices: no sentence has the required words")
        if filled.without:
            print(f"  note: {filled.without} choices: nothing found, their para is empty")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return exit_status(lambda: _retrieve(args), stopped=RESUMABLE)
