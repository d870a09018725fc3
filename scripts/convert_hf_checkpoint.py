#!/usr/bin/env python3
"""Converts a BERT or RoBERTa folder in Hugging Face's layout into a fairseq checkpoint and dictionary.

Train from it:  fairseq-train DATA $(cat OUT/model_args.txt) --finetune-from-model OUT/model.pt …
Load it:        RobertaModel.from_pretrained("OUT", "model.pt", bpe=None)
"""

import argparse
import logging
import sys
from pathlib import Path

from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv_cli.script import exit_status


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "hf_folder", type=Path, help="folder with config.json, the weights and the tokeniser's files"
    )
    parser.add_argument(
        "out", type=Path, help="folder to write; kept as it is if it already holds this conversion"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)

    def work() -> None:
        written = convert_hf_checkpoint(options.hf_folder, options.out)
        print(f"{options.out}: {'written' if written else 'already there, reused'}")

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
