"""ALBERT's tokenizer as a fairseq ``--bpe``: ``AlbertModel.from_pretrained`` reads text with it.

``AlbertModel.from_pretrained(DIR, bpe_albert_model=DIR + "/spiece.model")``. fairseq's own ``--bpe
sentencepiece`` keeps the case and the accents that ALBERT was not trained with.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass


@dataclass
class AlbertBPEConfig(FairseqDataclass):
    bpe_albert_model: Optional[str] = field(
        default=None,
        metadata={
            "help": "the encoder's spiece.model; a tokenizer_config.json beside it says whether case and "
            "accents are kept (default: they are not)"
        },
    )


@register_bpe("albert", dataclass=AlbertBPEConfig)
class AlbertBPE:
    """Space-separated pieces, the words of a converted ALBERT's dict.txt."""

    def __init__(self, cfg: AlbertBPEConfig) -> None:
        from fairseq_adv.data.errors import DataError
        from fairseq_adv.data.tokenizers.spiece import spiece_engine, spiece_settings

        if not cfg.bpe_albert_model:
            raise DataError(
                "--bpe albert needs --bpe-albert-model (in Python bpe_albert_model=…): the encoder's "
                "spiece.model."
            )
        model = Path(cfg.bpe_albert_model)
        self._engine = spiece_engine(model, spiece_settings(model.parent))

    def encode(self, x: str) -> str:
        """Text to pieces with a space between them."""
        return " ".join(self._engine.encode(x, add_special_tokens=False).tokens)

    def decode(self, x: str) -> str:
        """Pieces with a space between them to text; case, accents and white space are not restored."""
        text: str = self._engine.decoder.decode(x.split())
        return text

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a piece starts a word (for masking whole words)."""
        return x.startswith("▁")
