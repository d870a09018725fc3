"""Makes a Hugging Face folder of a trained checkpoint: model, tokenizer, names of the classes, model card.

transformers computes with it what fairseq computes with the checkpoint. Classes, regression, multiple choice
and masked language models, of BERT, RoBERTa and ALBERT encoders. The weights keep the checkpoint's precision:
fp16 where it was trained with --fp16.

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


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("export", __doc__)
    add = parser.add_argument
    add("checkpoint", type=Path, help="what fairseq-train or fairseq-adv convert wrote; nothing in it is run")
    add("out", type=Path, help="the folder to make; kept as it is if it was made from the same")
    add(
        "--tokenizer-dir",
        type=Path,
        metavar="DIR",
        help="the encoder's folder (default: tokenizer/ beside the checkpoint or its data)",
    )
    add(
        "--labels",
        metavar="A,B,…",
        help="names of the classes, in the order of the head's outputs (default: as the checkpoint or "
        "label/dict.txt of its data says, else LABEL_0, LABEL_1, …)",
    )
    add("--ema", action="store_true", help="export the average of the weights (--store-ema, smart)")
    add("--overwrite", action="store_true", help="replace an output that was made from something else")
    return parser


def _export(args: argparse.Namespace) -> None:
    from fairseq_adv.hub.export import export_checkpoint

    done = export_checkpoint(
        args.checkpoint, args.out, args.tokenizer_dir, args.labels, args.ema, args.overwrite
    )
    if done.reused:
        print(f"{args.out}: already there and made from this checkpoint; nothing to do")
        return
    classes = f", classes: {', '.join(done.classes)}" if done.classes else ""
    print(f"{args.out}: written, for {done.model}{classes}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _export(args))
