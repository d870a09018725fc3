"""Converts a BERT or RoBERTa folder in Hugging Face's layout into a fairseq checkpoint and dictionary.

Train from it:  fairseq-train DATA $(cat OUT/model_args.txt) --finetune-from-model OUT/model.pt …
Load it:        RobertaModel.from_pretrained("OUT", "model.pt", bpe=None)
"""

from __future__ import annotations

import logging
from pathlib import Path

from .script import command_parser, exit_status


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("convert", __doc__)
    parser.add_argument(
        "hf_folder", type=Path, help="folder with config.json, the weights and the tokeniser's files"
    )
    parser.add_argument(
        "out", type=Path, help="folder to write; kept as it is if it already holds this conversion"
    )
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)

    def work() -> None:
        from fairseq_adv.hub.convert import convert_hf_checkpoint

        written = convert_hf_checkpoint(options.hf_folder, options.out)
        print(f"{options.out}: {'written' if written else 'already there, reused'}")

    return exit_status(work)
