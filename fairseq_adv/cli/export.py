"""Exports a trained checkpoint to a Hugging Face folder: model, tokenizer, class names, model card.

Results in transformers match those of the checkpoint in fairseq. Supported: classification, regression,
multiple choice, tagging, question answering and masked LM, with BERT, RoBERTa and ALBERT encoders. The
weights keep the checkpoint's precision: fp32, also after training in autocast (--amp), or fp16 or bf16 if it
was trained with --fp16 or --bf16. --precision bf16 halves the files; transformers then computes in bf16, and
its results match up to bf16's rounding.

Examples:
  fairseq-adv export run/checkpoint_best.pt my-model
  fairseq-adv export run/checkpoint_best.pt my-model --tokenizer-dir my_encoder --labels no,yes
Use it:
  transformers.pipeline("text-classification", model="my-model")
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .script import command_parser, exit_status
from .shared_options import add_overwrite, add_tokenizer_dir


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("export", __doc__)
    add = parser.add_argument
    add(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a checkpoint written by fairseq-train or fairseq-adv convert; no code in it is run",
    )
    add("out", type=Path, metavar="OUT", help="output folder; kept if it was made from this checkpoint")
    add_tokenizer_dir(add)
    add(
        "--labels",
        metavar="A,B,…",
        help="class names, in the order of the head's outputs (default: those in the checkpoint or in the "
        "data's label/dict.txt, else LABEL_0, LABEL_1, …)",
    )
    add("--ema", action="store_true", help="export the average of the weights (--store-ema, smart)")
    add("--precision", choices=("fp32", "bf16"), help="of the weights (default: the checkpoint's)")
    add_overwrite(add)
    return parser


def _export(args: argparse.Namespace) -> None:
    from fairseq_adv.hub.export import export_checkpoint

    done = export_checkpoint(
        args.checkpoint, args.out, args.tokenizer_dir, args.labels, args.ema, args.overwrite, args.precision
    )
    if done.reused:
        print(f"{args.out} is already there and made from this checkpoint; nothing to do")
        return
    classes = f", classes: {', '.join(done.classes)}" if done.classes else ""
    print(f"wrote {args.out}, for {done.model}{classes}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _export(args))
