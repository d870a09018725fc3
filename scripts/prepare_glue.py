#!/usr/bin/env python3
"""Tokenises and binarises a GLUE task for fairseq's sentence_prediction task.

Examples:
  prepare_glue.py glue_data RTE RTE-bin --encoder my_encoder
  prepare_glue.py glue_data ALL bins --encoder-json encoder.json --vocab-bpe vocab.bpe --srcdict dict.txt
  prepare_glue.py glue_data SST-2 SST-2-bin --tokenizer wordpiece --wordpiece-vocab vocab.txt --srcdict
  dict.txt
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from fairseq_adv.data.glue import Prepared
    from fairseq_adv.data.tokenizers import TokenToIds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("glue_dir", type=Path, help="the folder that holds CoLA, SST-2, …, or one of them")
    parser.add_argument(
        "task", help="CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, or ALL that are there"
    )
    parser.add_argument(
        "out", type=Path, help="the folder to make; with ALL, it will hold a <TASK>-bin for each task"
    )
    parser.add_argument(
        "--encoder", type=Path, metavar="DIR", help="a converted encoder: sets all the options below"
    )
    parser.add_argument(
        "--tokenizer", choices=["gpt2", "wordpiece"], help="default: what the files given are for"
    )
    parser.add_argument("--encoder-json", type=Path, metavar="FILE", help="GPT-2 BPE: the tokens' ids")
    parser.add_argument("--vocab-bpe", type=Path, metavar="FILE", help="GPT-2 BPE: the merges")
    parser.add_argument("--wordpiece-vocab", type=Path, metavar="FILE", help="WordPiece: vocab.txt")
    parser.add_argument(
        "--cased",
        action="store_true",
        help="WordPiece: keep case (default: as tokenizer_config.json beside the vocab says)",
    )
    parser.add_argument(
        "--srcdict", type=Path, metavar="FILE", help="the encoder's fairseq dictionary, dict.txt"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an output that was made from other files"
    )
    return parser


def _tokenizer(args: argparse.Namespace) -> TokenToIds:
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.tokenizers import Gpt2Tokenizer, WordPieceTokenizer, tokenizer_for_encoder

    files = {
        name: getattr(args, name) for name in ("encoder_json", "vocab_bpe", "wordpiece_vocab", "srcdict")
    }
    cased = True if args.cased else None
    if args.encoder:
        given = [name for name, value in files.items() if value] + (["tokenizer"] if args.tokenizer else [])
        if given:
            raise DataError(
                f"--{given[0].replace('_', '-')} says again what --encoder says. Give one of them."
            )
        return tokenizer_for_encoder(args.encoder, cased)
    kind = args.tokenizer or ("wordpiece" if args.wordpiece_vocab else "gpt2")
    needed = (
        ["wordpiece_vocab", "srcdict"] if kind == "wordpiece" else ["encoder_json", "vocab_bpe", "srcdict"]
    )
    for name in needed:
        if not files[name]:
            raise DataError(f"--{name.replace('_', '-')} is missing; {kind} needs it. Or give --encoder.")
    for name, value in files.items():
        if value and name not in needed:
            raise DataError(
                f"--{name.replace('_', '-')} does not belong to the tokenizer {kind}. Leave it out."
            )
    if kind == "wordpiece":
        return WordPieceTokenizer(args.wordpiece_vocab, args.srcdict, cased)
    if args.cased:
        raise DataError("--cased is for WordPiece; GPT-2 BPE always keeps the case. Leave it out.")
    return Gpt2Tokenizer(args.encoder_json, args.vocab_bpe, args.srcdict)


def _report(result: Prepared) -> None:
    if result.reused:
        print(f"{result.task}: {result.out} is already there and made from these files; nothing to do")
    else:
        if result.skipped:
            print(f"{result.task}: continued; already done: {', '.join(result.skipped)}")
        rows = ", ".join(f"{split} {count}" for split, count in result.rows.items())
        print(f"{result.task}: wrote {result.out} ({rows})")
    for note in result.notes:
        print(f"  note: {note}")


def main(argv: Optional[List[str]] = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.glue import prepare, tasks_in

    try:
        tokenizer = _tokenizer(args)
        if args.task.upper() != "ALL":
            _report(prepare(args.glue_dir, args.task, args.out, tokenizer, overwrite=args.overwrite))
            return 0
        names, absent = tasks_in(args.glue_dir)
        for name in names:
            _report(
                prepare(args.glue_dir, name, args.out / f"{name}-bin", tokenizer, overwrite=args.overwrite)
            )
        if absent:
            print(f"not in {args.glue_dir}, so not prepared: {', '.join(absent)}")
        return 0
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
