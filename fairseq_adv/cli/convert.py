"""Converts a BERT, RoBERTa or ALBERT from a Hugging Face folder into a fairseq checkpoint and dictionary.

Train from it:
  fairseq-train DATA $(cat OUT/model_args.txt) --finetune-from-model OUT/model.pt …

Load a BERT:
  import fairseq_adv.plugin
  from fairseq.models.roberta import RobertaModel
  model = RobertaModel.from_pretrained("OUT", "model.pt", bpe="wordpiece",
                                       bpe_wordpiece_vocab="OUT/vocab.txt")
  model.extract_features(model.encode("A text."))

Load a RoBERTa:
  from fairseq.models.roberta import RobertaModel
  model = RobertaModel.from_pretrained("OUT", "model.pt", bpe="gpt2", gpt2_encoder_json="OUT/encoder.json",
                                       gpt2_vocab_bpe="OUT/vocab.bpe")
  model.extract_features(model.encode("A text."))

Load an ALBERT:
  from fairseq_adv.models.albert import AlbertModel
  model = AlbertModel.from_pretrained("OUT", bpe_albert_model="OUT/spiece.model")
  model.extract_features(model.encode("A text."))

fairseq-adv export converts this checkpoint, or one trained from it, back to Hugging Face.
"""

from __future__ import annotations

import logging
from pathlib import Path

from .script import command_parser, exit_status


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("convert", __doc__)
    parser.add_argument(
        "hf_folder",
        type=Path,
        metavar="HF_FOLDER",
        help="folder with config.json, the weights and the tokenizer's files",
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="output folder; kept if it already has this conversion"
    )
    options = parser.parse_args(argv)

    def work() -> None:
        from fairseq_adv.hub.convert import convert_hf_checkpoint

        logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
        written = convert_hf_checkpoint(options.hf_folder, options.out)
        print(f"wrote {options.out}" if written else f"{options.out} is already there; nothing to do")

    return exit_status(work)
