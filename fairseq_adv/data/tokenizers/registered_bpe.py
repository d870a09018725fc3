"""WordPiece and ALBERT's tokenizer as a fairseq ``--bpe``, with which ``from_pretrained`` reads text.

``RobertaModel.from_pretrained(DIR, "model.pt", bpe="wordpiece", bpe_wordpiece_vocab=DIR + "/vocab.txt")``,
``AlbertModel.from_pretrained(DIR, bpe_albert_model=DIR + "/spiece.model")``.

fairseq's own ``--bpe bert`` needs ``transformers`` and reads literal ``[SEP]`` in a text as the control
token; its ``--bpe sentencepiece`` keeps the case and the accents that ALBERT was not trained with.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_adv.data.checked_json import check_text
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.spiece import spiece_engine, spiece_settings
from fairseq_adv.data.tokenizers.wordpiece import wordpiece_engine


class _EngineBPE:
    """Converts text to space-separated tokens, the words of a converted encoder's dict.txt, and back."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def encode(self, x: str) -> str:
        """Converts text to space-separated tokens."""
        check_text(x, f"the text {x!r:.60}")
        return " ".join(self._engine.encode(x, add_special_tokens=False).tokens)

    def decode(self, x: str) -> str:
        """Converts space-separated tokens to text. What the tokenizer removes (case, accents, white space)
        is not restored.
        """
        text: str = self._engine.decoder.decode(x.split())
        return text


@dataclass
class WordPieceBPEConfig(FairseqDataclass):
    bpe_wordpiece_vocab: Optional[str] = field(
        default=None, metadata={"help": "the encoder's WordPiece vocabulary (vocab.txt), one token per line"}
    )
    bpe_wordpiece_cased: bool = field(
        default=False,
        metadata={
            "help": "keep upper case and accents (default: as in the tokenizer_config.json next to the "
            "vocabulary; without one, text is lower-cased)"
        },
    )


@register_bpe("wordpiece", dataclass=WordPieceBPEConfig)
class WordPieceBPE(_EngineBPE):
    """Space-separated WordPiece tokens, the words of a converted BERT's dict.txt."""

    def __init__(self, cfg: WordPieceBPEConfig) -> None:
        if not cfg.bpe_wordpiece_vocab:
            raise DataError(
                "--bpe wordpiece needs --bpe-wordpiece-vocab (in Python bpe_wordpiece_vocab=…): "
                "the encoder's vocab.txt."
            )
        cased = True if cfg.bpe_wordpiece_cased else None
        super().__init__(wordpiece_engine(Path(cfg.bpe_wordpiece_vocab), cased))

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a token starts a word (for masking whole words)."""
        return not x.startswith("##")


@dataclass
class AlbertBPEConfig(FairseqDataclass):
    bpe_albert_model: Optional[str] = field(
        default=None,
        metadata={
            "help": "the encoder's spiece.model; the tokenizer_config.json next to it determines whether "
            "case and accents are kept (default: they are not)"
        },
    )


@register_bpe("albert", dataclass=AlbertBPEConfig)
class AlbertBPE(_EngineBPE):
    """Space-separated pieces, the words of a converted ALBERT's dict.txt."""

    def __init__(self, cfg: AlbertBPEConfig) -> None:
        if not cfg.bpe_albert_model:
            raise DataError(
                "--bpe albert needs --bpe-albert-model (in Python bpe_albert_model=…): the encoder's "
                "spiece.model."
            )
        model = Path(cfg.bpe_albert_model)
        super().__init__(spiece_engine(model, spiece_settings(model.parent)))

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a piece starts a word (for masking whole words)."""
        return x.startswith("▁")
