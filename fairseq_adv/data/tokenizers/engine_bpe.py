"""What the tokenizers that fairseq knows as a ``--bpe`` share."""

from __future__ import annotations

from typing import Any


class EngineBPE:
    """Text to space-separated tokens, the words of a converted encoder's dict.txt, and back.

    Args:
        engine: a ``tokenizers.Tokenizer``.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def encode(self, x: str) -> str:
        """Text to tokens with a space between them."""
        return " ".join(self._engine.encode(x, add_special_tokens=False).tokens)

    def decode(self, x: str) -> str:
        """Tokens with a space between them to text. What the tokenizer removes (case, accents, white space)
        is not restored.
        """
        text: str = self._engine.decoder.decode(x.split())
        return text
