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

from fairseq_adv.data.glue.layouts import TASKS

from .prepared import report
from .script import RESUMABLE, STARTS_OVER, command_parser, exit_status, is_known
from .shared_options import add_max_line, add_overwrite, limited
from .tokenizer_options import add_tokenizer_options, tokenizer_of


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare glue", __doc__)
    parser.add_argument(
        "glue_dir", type=Path, metavar="GLUE_DIR", help="folder with CoLA, SST-2, …, or one of these folders"
    )
    parser.add_argument(
        "task",
        metavar="TASK",
        help="CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, or ALL for every task in GLUE_DIR",
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="output folder; with ALL it gets a folder <TASK>-bin per task"
    )
    add_tokenizer_options(parser, ("gpt2", "wordpiece"), choice=True)
    add_max_line(parser.add_argument)
    add_overwrite(parser.add_argument)
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
        f"{args.task}: no such GLUE task (for your own data use fairseq-adv prepare classification). "
        "Choose one of"
    )
    if not is_known(args.task, (*(task.name for task in TASKS), "ALL"), problem):
        return 2
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    stopped = RESUMABLE if args.task.upper() == "ALL" else STARTS_OVER  # finished tasks are kept
    return exit_status(limited(args, lambda: _prepare(args)), stopped=stopped)
