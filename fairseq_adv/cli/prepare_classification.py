"""Tokenises and binarises texts, or pairs of texts, with classes or numbers, for text_classification.

TRAIN, --valid and --test are csv, tsv, jsonl or parquet files, recognised by their names. The first three
kinds may be compressed (.csv.gz). Each line of a .txt, .label or .all file is a class, a space and a text;
its columns are called "label" and "text". A test file may lack labels.

Examples:
  fairseq-adv prepare classification train.csv --test test.csv --text review --label stars \\
      --encoder my_encoder reviews
  fairseq-adv prepare classification pairs.tsv --no-header --text 1 --text-pair 2 --label 3 --regression \\
      --encoder my_encoder similarity
  fairseq-adv prepare classification --dataset ag_news --text text --label label --encoder my_encoder news
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from .prepared import add_refuse_suspicious, add_valid_share, prepare_config, report
from .script import STARTS_OVER, command_parser, exit_status
from .shared_options import add_columns, add_max_line, add_overwrite, limited
from .tokenizer_options import add_tokenizer_options

if TYPE_CHECKING:
    from fairseq_adv.data.classes.labelled_texts import PlacedTexts


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare classification", __doc__)
    add = parser.add_argument
    add("train", type=Path, nargs="?", metavar="TRAIN", help="training file")
    add("out", type=Path, metavar="OUT", help="output folder")
    add("--valid", type=Path, metavar="FILE", help="validation file")
    add("--test", type=Path, metavar="FILE", help="test file")
    add("--dataset", metavar="NAME", help="instead of files: a data set of Hugging Face's hub, or a folder")
    add("--config", metavar="NAME", help="configuration of --dataset")
    add_columns(add, label=True, required=True)
    add("--regression", action="store_true", help="the labels are numbers to predict; they are not rescaled")
    add_valid_share(parser)
    add_refuse_suspicious(parser)
    add_tokenizer_options(parser, ("gpt2", "wordpiece"))
    add_max_line(add)
    add_overwrite(add)
    return parser


def _splits(args: argparse.Namespace) -> list[PlacedTexts]:
    from fairseq_adv.data.classes.labelled_texts import Columns, read_texts
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.tables.hf_datasets import load_splits
    from fairseq_adv.data.tables.table_files import read_table

    texts = (args.text, args.text_pair) if args.text_pair else (args.text,)
    columns = Columns(texts, args.label, args.regression)
    files = {"train": args.train, "valid": args.valid, "test": args.test}
    given = {split: path for split, path in files.items() if path is not None}
    if args.dataset:
        if given or args.no_header or args.encoding:
            raise DataError("--dataset excludes files, --no-header and --encoding. Leave them out.")
        splits = load_splits(args.dataset, args.config)
    else:
        if args.train is None:
            raise DataError("TRAIN is missing: pass the training file and OUT, or --dataset NAME and OUT")
        if args.config:
            raise DataError("--config needs --dataset. Leave it out.")
        splits = {
            split: read_table(path, not args.no_header, args.encoding or "utf-8")
            for split, path in given.items()
        }
    return [read_texts(split, rows, columns) for split, rows in splits.items()]


def _prepare(args: argparse.Namespace) -> None:
    from fairseq_adv.data.classes.prepare_classification import prepare_classification

    how = prepare_config(args)
    report(prepare_classification(_splits(args), args.out, how))


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_intermixed_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(limited(args, lambda: _prepare(args)), stopped=STARTS_OVER)
