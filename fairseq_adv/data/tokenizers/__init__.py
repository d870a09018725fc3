"""Turns text into the ids of a fairseq dictionary: any tokenizer.json, GPT-2's BPE and SentencePiece."""

from __future__ import annotations

from pathlib import Path

HF_VOCABULARY = "hf_vocabulary.json"
"""Next to a tokenizer.json that was saved from a Hugging Face folder: what is not in it."""
FOLDER = "tokenizer"
"""The folder of a tokenizer next to prepared data or a trained model."""


def is_hugging_face(folder: Path) -> bool:
    """Whether this is a Hugging Face folder, or one in which its tokenizer was saved; nothing converted."""
    plain = (folder / "config.json").is_file() and not (folder / "dict.txt").is_file()
    return plain or (folder / HF_VOCABULARY).is_file()
