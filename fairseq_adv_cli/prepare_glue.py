"""Tokenises and binarises a GLUE task for fairseq's sentence_prediction task.

Examples:
  fairseq-adv prepare glue glue_data RTE RTE-bin --encoder my_encoder
  fairseq-adv prepare glue glue_data ALL bins --encoder-json encoder.json --vocab-bpe vocab.bpe \\
      --srcdict dict.txt
  fairseq-adv prepare glue glue_data SST-2 SST-2-bin --wordpiece-vocab vocab.txt --srcdict dict.txt
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .names import GLUE_TASKS, is_known
from .prepared import add_overwrite, report
from .script import RESUMABLE, command_parser, exit_status
from .tokenizer_options import add_tokenizer_options, tokenizer_of


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare glue", __doc__)
    parser.add_argument("glue_dir", type=Path, help="the folder that holds CoLA, SST-2, …, or one of them")
    parser.add_argument(
        "task", help="CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, or ALL that are there"
    )
    parser.add_argument(
        "out", type=Path, help="the folder to make; with ALL, it will hold a <TASK>-bin for each task"
    )
    add_tokenizer_options(parser, ("gpt2", "wordpiece"), choice=True)
    add_overwrite(parser)
    return parser


def _prepare(args: argparse.Namespace) -> None:
    from fairseq_adv.data.glue.prepare_glue import prepare, tasks_in

    tokenizer = tokenizer_of(args)
    if args.task.upper() != "ALL":
        report(prepare(args.glue_dir, args.task, args.out, tokenizer, overwrite=args.overwrite))
        return
    names, absent = tasks_in(args.glue_dir)
    for name in names:
        out = args.out / f"{name}-bin"
        report(prepare(args.glue_dir, name, out, tokenizer, overwrite=args.overwrite))
    if absent:
        print(f"not in {args.glue_dir}, so not prepared: {', '.join(absent)}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    problem = (
        f"no GLUE task is called {args.task!r} (your own data: fairseq-adv prepare classification). "
        "Choose one of"
    )
    if not is_known(args.task, (*GLUE_TASKS, "ALL"), problem):
        return 2
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _prepare(args), stopped=RESUMABLE)
