"""WordPiece as a fairseq ``--bpe``, so that ``RobertaModel.from_pretrained`` reads text for a converted BERT.

``RobertaModel.from_pretrained(DIR, "model.pt", bpe="wordpiece", bpe_wordpiece_vocab=DIR + "/vocab.txt")``.
fairseq's own ``--bpe bert`` needs ``transformers`` and reads literal ``[SEP]`` in a text as the control
token.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_adv.data.tokenizers.engine_bpe import EngineBPE


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
class WordPieceBPE(EngineBPE):
    """Space-separated WordPiece tokens, the words of a converted BERT's dict.txt."""

    def __init__(self, cfg: WordPieceBPEConfig) -> None:
        from fairseq_adv.data.errors import DataError
        from fairseq_adv.data.tokenizers.wordpiece import wordpiece_engine

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
