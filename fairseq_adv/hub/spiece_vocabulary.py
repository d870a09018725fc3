"""The SentencePiece vocabulary of an ALBERT folder."""

from __future__ import annotations

from pathlib import Path

from fairseq_adv.data.tokenizers.spiece import MODEL, load_spiece, spiece_engine, spiece_settings
from fairseq_adv.hub.vocabulary import (
    Vocabulary,
    add_tokens,
    order_for_fairseq,
    read_fast_tokenizer,
    special_tokens,
    tokens_in_order,
    write_json,
)

SPECIALS = {
    "cls_token": "[CLS]",
    "pad_token": "<pad>",
    "sep_token": "[SEP]",
    "unk_token": "<unk>",
    "mask_token": "[MASK]",
}


def spiece_vocabulary(folder: Path) -> Vocabulary:
    """Reads the vocabulary from ``spiece.model``.

    The result's files are that file and a ``tokenizer_config.json`` with the normalisation settings.

    Raises:
        DataError: the file is missing, not a unigram model, or its tokens can't form a fairseq dictionary.
    """
    source, settings = folder / MODEL, spiece_settings(folder)
    spiece_engine(source, settings)  # checks the whole file
    loaded = load_spiece(source)
    ranks = {loaded.id_to_piece(row): row for row in range(loaded.get_piece_size())}
    tokens = tokens_in_order(add_tokens(folder, ranks, read_fast_tokenizer(folder, "Unigram")), source)
    specials = special_tokens(folder, SPECIALS)
    symbols, rows = order_for_fairseq(tokens, specials, source)
    files = {MODEL: source.read_bytes(), "tokenizer_config.json": write_json(dict(settings))}
    return Vocabulary(symbols, rows, "albert", files, {"specials": specials, **settings})
