"""The common part of the tokenizers that are registered as a fairseq ``--bpe``."""

from __future__ import annotations

from typing import Any


class EngineBPE:
    """Converts text to space-separated tokens, the words of a converted encoder's dict.txt, and back.

    Args:
        engine: a ``tokenizers.Tokenizer``.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def encode(self, x: str) -> str:
        """Converts text to space-separated tokens."""
        return " ".join(self._engine.encode(x, add_special_tokens=False).tokens)

    def decode(self, x: str) -> str:
        """Converts space-separated tokens to text. What the tokenizer removes (case, accents, white space)
        is not restored.
        """
        text: str = self._engine.decoder.decode(x.split())
        return text
