"""Tokenises raw text into shards for fairseq's masked_lm task, in one pass, with any number of processes.

The input is plain text in UTF-8, .gz or .zst. The last line of the output is the data argument for
fairseq-train. After an interruption, the same command makes the shards that are missing. Of the input, only
names, sizes, and the first and last 64 KiB of each file are compared: remove OUT after other changes.

Examples:
  fairseq-adv corpus corpus/*.txt.gz corpus-bin --shards 64 --workers 32 --valid valid.txt \\
      --encoder-json encoder.json --vocab-bpe vocab.bpe --srcdict dict.txt
  fairseq-adv corpus train.txt corpus-bin --encoder my_encoder
As a SLURM array (#SBATCH --array=0-7), and a last step that checks that all shards are there:
  fairseq-adv corpus corpus/*.txt.gz corpus-bin --shards 64 --workers 32 --encoder my_encoder \\
      --task-index $SLURM_ARRAY_TASK_ID --task-count $SLURM_ARRAY_TASK_COUNT
  fairseq-adv corpus corpus/*.txt.gz corpus-bin --shards 64 --encoder my_encoder --check
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.errors import DataError

from .script import RESUMABLE, VerbParser, count, whole
from .shared_options import add_shared, add_tokenizer, tokenizer_of

if TYPE_CHECKING:
    from fairseq_adv.data.corpus.corpus import Corpus


def corpus_options(parser: VerbParser) -> None:
    parser.reads(stopped=RESUMABLE)
    add = parser.add_argument
    add("texts", type=Path, nargs="+", metavar="INPUT", help="text files in order, or quoted patterns")
    add("out", type=Path, metavar="OUT", help="output folder, with shard0, shard1, … in it")
    add("--shards", type=count, default=1, metavar="N", help="number of shards, about equal in bytes")
    add("--workers", type=count, default=1, metavar="N", help="number of processes")
    add("--valid", type=Path, nargs="+", default=[], metavar="FILE", help="validation text, goes to shard0")
    add("--test", type=Path, nargs="+", default=[], metavar="FILE", help="test text, goes to shard0")
    add("--documents", choices=["blank-line", "line"], default="blank-line",
        help="what ends a document. blank-line: a blank line; a file without one at its end continues in the "
        "next file, as with cat. line: every line, and an empty row is added after it")  # fmt: skip
    add("--drop-empty", action="store_true",
        help="drop blank lines (like fairseq's encoder without --keep-empty); this also drops document "
        "boundaries, except with --documents line")  # fmt: skip
    add_shared(add, "--encoding-errors", "--max-line-mb")
    add_tokenizer(parser, sentencepiece=True)
    add = parser.add_argument_group("several nodes, checking, starting over").add_argument
    add("--task-index", type=whole, metavar="I", help="make only every C-th shard, starting at I; 0 to C - 1")
    add("--task-count", type=count, metavar="C", help="number of tasks that share the shards")
    add("--check", action="store_true", help="make nothing; report whether all shards are complete")
    add_shared(add, "--overwrite")


def corpus(args: argparse.Namespace) -> int:
    from fairseq_adv.data.corpus.corpus import Corpus
    from fairseq_adv.data.corpus.cuts import matching

    text = Corpus(
        tokenizer_of(args),
        texts=matching(args.texts),
        out=args.out,
        shards=args.shards,
        documents=args.documents,
        drop_empty=args.drop_empty,
        valid=matching(args.valid),
        test=matching(args.test),
        replace_invalid=args.encoding_errors == "replace",
        max_line=args.max_line_mb << 20,
    )
    return _check(text) if args.check else _make(args, text)


def _shards(args: argparse.Namespace) -> list[int]:
    """The shards that this run makes."""
    index, count = args.task_index, args.task_count
    if index is None and count is None:
        return list(range(args.shards))
    if index is None or count is None or index >= count:
        raise DataError(
            f"--task-index {index} --task-count {count}: pass both, the index less than the count. A SLURM "
            "array must count from 0: --array=0-7."
        )
    return list(range(index, args.shards, count))


def _make(args: argparse.Namespace, corpus: Corpus) -> int:
    from fairseq_adv.data.corpus.make_shards import make

    shards = _shards(args)
    if args.workers > len(shards):
        print(f"--workers {args.workers}: there are only {len(shards)} shards to make, so fewer workers run")
    begin = time.monotonic()
    result = make(corpus, shards, args.workers, args.overwrite)
    if result.skipped:
        print(f"already there: {_named(result.skipped)}")
    if result.made:
        size = sum(corpus.size(shard) for shard in result.made) / 1e6
        seconds = time.monotonic() - begin
        print(f"made: {_named(result.made)}; {size:.1f} MB in {seconds:.1f} s ({size / seconds:.1f} MB/s)")
    _tell_counts(corpus, result.made + result.skipped)
    if result.mistakes or result.died:
        print(
            f"{len(shards) - len(result.made) - len(result.skipped)} of {len(shards)} shards were not made",
            file=sys.stderr,
        )
        return 2 if result.mistakes else 1
    if args.task_count is not None:
        print("when all tasks have finished, check that all shards are there: same command with --check")
        return 0
    print(corpus.data_argument())
    return 0


def _tell_counts(corpus: Corpus, shards: list[int]) -> None:
    for split, counts in corpus.counts(shards).items():
        print(f"{split}: {counts.rows} rows, {counts.tokens} tokens, {counts.unknown} of them <unk>")
        if counts.replaced:
            print(f"  note: {counts.replaced} U+FFFD characters: text was not UTF-8, or had them already")


def _named(shards: list[int]) -> str:
    shown = sorted(shards)
    few = ", ".join(str(shard) for shard in shown[:8]) + (", …" if len(shown) > 8 else "")
    return f"shard {few}" if len(shown) == 1 else f"{len(shown)} shards ({few})"


def _check(corpus: Corpus) -> int:
    corpus.check_out()
    faults = corpus.faults()
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if faults:
        print("to make what is missing, run the command without --check", file=sys.stderr)
        return 1
    _tell_counts(corpus, list(range(corpus.shards)))
    print(corpus.data_argument())
    return 0
