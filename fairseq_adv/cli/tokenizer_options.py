"""The options that choose a tokenizer: an encoder's folder, or the tokenizer's files one by one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

# The file options that each tokenizer needs.
FILES = {
    "gpt2": ("encoder_json", "vocab_bpe", "srcdict"),
    "wordpiece": ("wordpiece_vocab", "srcdict"),
    "sentencepiece": ("sentencepiece", "srcdict"),
}


def add_tokenizer_options(
    parser: argparse.ArgumentParser, tokenizers: Sequence[str], choice: bool = False
) -> None:
    """Adds the options to a command's help, in a group of their own.

    Args:
        parser: of the command.
        tokenizers: keys of ``FILES`` that the command accepts; must include ``gpt2`` and ``wordpiece``.
        choice: also add ``--tokenizer``, which names one of them.
    """
    add = parser.add_argument_group("tokenizer").add_argument
    add(
        "--encoder",
        type=Path,
        metavar="DIR",
        help="written by fairseq-adv convert; replaces the options below",
    )
    if choice:
        add("--tokenizer", choices=tokenizers, help="default: the one that the given files belong to")
    add("--encoder-json", type=Path, metavar="FILE", help="GPT-2 BPE: encoder.json")
    add("--vocab-bpe", type=Path, metavar="FILE", help="GPT-2 BPE: vocab.bpe")
    add("--wordpiece-vocab", type=Path, metavar="FILE", help="WordPiece: vocab.txt")
    add(
        "--cased",
        action="store_true",
        help="WordPiece: keep case (default: as in tokenizer_config.json next to vocab.txt)",
    )
    if "sentencepiece" in tokenizers:
        add("--sentencepiece", type=Path, metavar="FILE", help="SentencePiece: the .model file")
    add("--srcdict", type=Path, metavar="FILE", help="the encoder's fairseq dictionary, dict.txt")


def tokenizer_of(args: argparse.Namespace) -> TokenToIds:
    """The tokenizer that the options of :func:`add_tokenizer_options` ask for.

    Raises:
        DataError: options are missing or don't go together, or a file can't be read.
    """
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.data.tokenizers.text_to_ids import (
        Gpt2Tokenizer,
        SentencePieceTokenizer,
        WordPieceTokenizer,
        tokenizer_for_encoder,
    )

    given = _given(args)
    cased = True if args.cased else None
    if args.encoder:
        if given:
            raise DataError(f"{_option(given[0])} and --encoder: pass only one of them")
        return tokenizer_for_encoder(args.encoder, cased)
    files = [name for name in given if name != "tokenizer"]
    kind = getattr(args, "tokenizer", None) or next(
        (kind for kind in ("wordpiece", "sentencepiece") if FILES[kind][0] in files), "gpt2"
    )
    for name in FILES[kind]:
        if name not in files:
            raise DataError(f"{_option(name)} is missing: the tokenizer {kind} needs it. Or pass --encoder.")
    for name in files:
        if name not in FILES[kind]:
            raise DataError(f"{_option(name)} is not for the tokenizer {kind}. Leave it out.")
    if cased and kind != "wordpiece":
        raise DataError("--cased is for WordPiece; the other tokenizers always keep case. Leave it out.")
    if kind == "wordpiece":
        return WordPieceTokenizer(args.wordpiece_vocab, args.srcdict, cased)
    if kind == "sentencepiece":
        return SentencePieceTokenizer(args.sentencepiece, args.srcdict)
    return Gpt2Tokenizer(args.encoder_json, args.vocab_bpe, args.srcdict)


def _given(args: argparse.Namespace) -> list[str]:
    """Which of these options the user gave; a command need not have all of them."""
    names = dict.fromkeys(name for needed in FILES.values() for name in needed)
    return [name for name in (*names, "tokenizer") if getattr(args, name, None)]


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
