"""Options that several verbs share, with the same name, default and help text in each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import MAX_LINE_MB

from .script import count

if TYPE_CHECKING:
    from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
    from fairseq_adv.evaluation.inference import InferenceConfig

AddArgument = Callable[..., argparse.Action]  # ``add_argument`` of a parser or of a group
SHARED: dict[str, dict[str, Any]] = {
    "checkpoint": {
        "metavar": "CHECKPOINT",
        "help": "a checkpoint written by fairseq-train, or a Hugging Face folder of a model with classes",
    },
    "--batch-size": {"type": count, "metavar": "N", "help": "examples per mini-batch"},
    "--cpu": {"action": "store_true", "help": "run on the CPU even if a GPU is available"},
    "--data": {"metavar": "DIR", "help": "data folder (default: the one the checkpoint was trained on)"},
    "--encoding-errors": {
        "choices": ["strict", "replace"],
        "default": "strict",
        "help": "on text that is not UTF-8: stop with an error, or insert U+FFFD",
    },
    "--json": {"action": "store_true", "help": "print one line of JSON instead of a table"},
    "--label-map": {"nargs": "+", "default": [], "metavar": "FILE=MODEL"},
    "--append-words": {
        "type": Path,
        "metavar": "FILE",
        "help": "append these: a word or phrase on each line (default: everyday words)",
    },
    "--max-line-mb": {
        "type": count,
        "default": MAX_LINE_MB,
        "metavar": "MIB",
        "help": "longest line or cell, in MiB; a longer one is an error. A tokenizer may need 450 times a "
        "line's size in memory",
    },
    "--overwrite": {
        "action": "store_true",
        "help": "replace an existing output that was made from other files or options",
    },
    "--precision": {
        "choices": ("fp32", "bf16"),
        "default": "fp32",
        "help": "fp32, or bf16 autocast: less exact, but faster on a GPU and on a CPU with bf16 instructions "
        "(see fairseq-adv doctor) (default: fp32)",
    },
    "--tokenizer-dir": {
        "type": Path,
        "metavar": "DIR",
        "help": "folder with the encoder's tokenizer files, if it is not where training left it",
    },
    "--user-dir": {"metavar": "DIR", "help": "folder with code of your own, as for training"},
}


def add_shared(add: AddArgument, *names: str, **changed: Any) -> None:
    """Adds options of :data:`SHARED`, in this order; ``changed`` is passed on to ``add``."""
    for name in names:
        add(name, **{**SHARED[name], **changed})


def add_unit(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say in what the sizes of an attack are measured."""
    add = parser.add_mutually_exclusive_group().add_argument
    add("--relative", action="store_true",
        help="--epsilon and other sizes are shares of the L2 norm of each example's embeddings: 0.02 "
        "is 2 %%")  # fmt: skip
    add("--absolute", action="store_true",
        help="--epsilon and other sizes are L2 lengths, in the units of the embeddings")  # fmt: skip


def check_unit(args: argparse.Namespace) -> None:
    """Raises DataError if there is a radius, and neither option of :func:`add_unit`."""
    if args.epsilon and not (args.relative or args.absolute):
        raise DataError(
            "--epsilon: pass --relative if it is a share of the norm of each example's embeddings (0.02: 2 "
            "%), or --absolute if it is a length"
        )


def add_running(add: AddArgument) -> None:
    """Adds the options of verbs that run trained models on examples."""
    add(
        "--max-tokens",
        type=count,
        metavar="N",
        help="maximum number of tokens per mini-batch, padding included (default: 16384; 1024 on a CPU)",
    )
    add_shared(add, "--cpu")
    add("--fp16", action="store_true", help="compute in half precision; needs a GPU")
    add_shared(add, "--precision", "--tokenizer-dir", "--user-dir")


def inference_config(args: argparse.Namespace, batch_size: int | None = None) -> InferenceConfig:
    """What the options of :func:`add_running` ask for."""
    from fairseq_adv.evaluation.inference import InferenceConfig

    return InferenceConfig(
        batch_size, args.max_tokens, args.cpu, args.fp16, args.tokenizer_dir, precision=args.precision
    )


def add_columns(add: AddArgument, required: bool = False) -> None:
    """Adds the options that describe a table of texts."""
    add("--text", required=required, metavar="COLUMN", help="column with the text")
    add("--text-pair", metavar="COLUMN", help="column with the second text, for pairs")
    add("--label", required=required, nargs="+", action="extend", metavar="COLUMN",
        help="column with the label; several labels a text: their columns, each with 0 and 1")  # fmt: skip
    add("--label-separator", metavar="SEP", help="several labels a text in one column: what is between them")
    add("--no-header", action="store_true", help="the csv or tsv has no header line: columns are 1, 2, …")
    add("--encoding", metavar="NAME", help="encoding of csv, tsv and text files (default: utf-8)")


def words_after_columns(args: argparse.Namespace, most: int, option: str = "label") -> list[str]:
    """Takes the last words of ``--label``, or of another option with columns, at most so many: argparse takes
    files that stand behind the columns for columns too. One column stays.
    """
    words = getattr(args, option)
    if not words:
        return []
    columns = max(len(words) - max(most, 0), 1)
    setattr(args, option, words[:columns])
    return words[columns:]  # type: ignore[no-any-return]


def label_map(args: argparse.Namespace) -> dict[str, str]:
    """What ``--label-map`` says. Raises DataError for a word that isn't FILE=MODEL."""
    pairs = [pair.partition("=") for pair in args.label_map]
    odd = next((pair for pair in pairs if not all(pair)), None)
    if odd is not None:
        raise DataError(f"--label-map {''.join(odd)}: pass FILE=MODEL, such as 0=negative")
    return {of_file: of_model for of_file, _, of_model in pairs}


def add_tokenizer(parser: argparse.ArgumentParser, sentencepiece: bool = False) -> None:
    """Adds the options that choose a tokenizer: an encoder's folder, or files."""
    add = parser.add_argument_group("tokenizer").add_argument
    add("--encoder", type=Path, metavar="DIR",
        help="a Hugging Face folder, or one that convert wrote; replaces the options below")  # fmt: skip
    add("--encoder-json", type=Path, metavar="FILE", help="GPT-2 BPE: encoder.json")
    add("--vocab-bpe", type=Path, metavar="FILE", help="GPT-2 BPE: vocab.bpe")
    if sentencepiece:
        add("--sentencepiece", type=Path, metavar="FILE", help="SentencePiece: the .model file")
    add("--srcdict", type=Path, metavar="FILE", help="the encoder's fairseq dictionary, dict.txt")


def tokenizer_of(args: argparse.Namespace) -> TokenToIds:
    """The tokenizer that the options of :func:`add_tokenizer` ask for."""
    from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
    from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
    from fairseq_adv.data.tokenizers.spiece import SentencePieceTokenizer

    names = ("encoder", "encoder_json", "vocab_bpe", "sentencepiece", "srcdict")
    given = tuple(name for name in names if getattr(args, name, None))
    if given == ("encoder",):
        return tokenizer_for_encoder(args.encoder)
    if given == ("sentencepiece", "srcdict"):
        return SentencePieceTokenizer(args.sentencepiece, args.srcdict)
    if given == ("encoder_json", "vocab_bpe", "srcdict"):
        return Gpt2Tokenizer(args.encoder_json, args.vocab_bpe, args.srcdict)
    or_pieces = "; or --sentencepiece and --srcdict" if "sentencepiece" in args else ""
    raise DataError(f"pass --encoder alone; or --encoder-json, --vocab-bpe and --srcdict{or_pieces}")
