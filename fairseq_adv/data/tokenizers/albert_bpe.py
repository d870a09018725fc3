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

from fairseq_adv.data.tokenizers.engine_bpe import EngineBPE


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
class AlbertBPE(EngineBPE):
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
        super().__init__(spiece_engine(model, spiece_settings(model.parent)))

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a piece starts a word (for masking whole words)."""
        return x.startswith("▁")
