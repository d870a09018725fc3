"""A plain SentencePiece model, for corpora of encoders that fairseq pre-trained with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

import numpy as np

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import check_size
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, load_dictionary


class SentencePieceTokenizer(TokenToIds):
    """A SentencePiece model and the dict.txt with its pieces.

    Gives the same ids as writing the pieces as text (``spm_encode``) and looking them up
    (``fairseq-preprocess``): characters that the model lacks are looked up too, and become ``<unk>`` unless
    the dictionary has them.
    """

    kind = "sentencepiece"

    def __init__(self, model: Path, dictionary: Path) -> None:
        self._engine = _load(model)
        words = [self._engine.id_to_piece(number) for number in range(self._engine.get_piece_size())]
        files = {"model": model, "dictionary": dictionary}
        super().__init__(words, load_dictionary(dictionary), files, {})
        # After the model's own ids come the dictionary's, for pieces that must be looked up as text.
        entries = np.arange(len(self.dictionary), dtype=np.int64)
        self._first_entry = len(words)
        self.table = np.concatenate([self.table[:-1], entries, self.table[-1:]])
        # <unk> stands for any text, and fairseq splits a piece that contains white space.
        odd = {number for number, word in enumerate(words) if word.split() != [word]}
        self._odd = odd | {self._engine.unk_id()}

    def pieces(self, rows: Sequence[str]) -> list[list[int]]:
        token_ids: list[list[int]] = self._engine.encode(list(rows), out_type=int, num_threads=1)
        for number, ids in enumerate(token_ids):
            if not self._odd.isdisjoint(ids):
                words = " ".join(self._engine.encode(rows[number], out_type=str)).split()
                token_ids[number] = [self._first_entry + self.dictionary.index(word) for word in words]
        return token_ids


def _load(model: Path) -> Any:
    """A ``sentencepiece.SentencePieceProcessor``."""
    import sentencepiece

    if not model.is_file():
        raise DataError(f"{model}: no such file. It must be the encoder's SentencePiece model.")
    check_size(model)
    loaded = sentencepiece.SentencePieceProcessor()
    try:
        loaded.Load(str(model))
    except (OSError, RuntimeError) as error:
        raise DataError(f"{model}: not a SentencePiece model ({error}). Download it again.") from error
    return loaded
