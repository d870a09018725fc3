"""Turns text into the ids of a fairseq dictionary: WordPiece, GPT-2's BPE and SentencePiece."""

from __future__ import annotations

FOLDER = "tokenizer"
"""The folder of a tokenizer next to prepared data or a trained model."""
FILES = (
    "dict.txt", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "spiece.model", "encoder.json",
    "vocab.bpe",
)  # fmt: skip
"""The files of a tokenizer that a folder may have."""
