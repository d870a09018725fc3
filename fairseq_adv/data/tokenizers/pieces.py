"""The text that each token of a dictionary stands for."""

from __future__ import annotations

from typing import List, NamedTuple

from fairseq_adv.data.tokenizers.text_to_ids import CompiledTokenizer, Gpt2Tokenizer, TokenToIds


class Piece(NamedTuple):
    """A token's text, without the space before a word; empty for tokens without text, such as ``</s>``."""

    text: str
    begins_word: bool


def pieces_of(tokenizer: TokenToIds) -> List[Piece]:
    """The piece of each id of the tokenizer's dictionary.

    Raises:
        TypeError: the tokenizer is plain SentencePiece.
    """
    symbols = tokenizer.dictionary.symbols
    nothing = Piece("", False)
    found = [nothing] * len(symbols)
    if isinstance(tokenizer, CompiledTokenizer):
        # ALBERT marks pieces that begin a word, BERT pieces that continue one.
        mark, begins = ("##", False) if tokenizer.kind == "wordpiece" else ("▁", True)
        own = set(tokenizer.table.tolist())
        for number in own - {tokenizer.dictionary.eos(), tokenizer.dictionary.unk()}:
            symbol = symbols[number]
            is_marked = symbol.startswith(mark)
            found[number] = Piece(symbol[len(mark) * is_marked :], is_marked == begins)
        return found
    if isinstance(tokenizer, Gpt2Tokenizer):
        for number, raw in zip(tokenizer.table.tolist(), tokenizer.byte_texts):
            text = raw.decode("utf-8", "replace")
            found[number] = Piece(text[text.startswith(" ") :], text.startswith(" "))
        found[tokenizer.dictionary.unk()] = nothing
        return found
    raise TypeError(f"{tokenizer.kind}: the texts of its tokens are unknown")
