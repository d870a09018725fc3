"""What each token of a dictionary writes into a text."""

from __future__ import annotations

from typing import List, NamedTuple

from fairseq_adv.data.tokenizers.text_to_ids import CompiledTokenizer, Gpt2Tokenizer, TokenToIds


class Piece(NamedTuple):
    """A token's text, without the blank before a word; empty if it writes none, as ``</s>``."""

    text: str
    begins_word: bool


def pieces_of(tokenizer: TokenToIds) -> List[Piece]:
    """The piece of each id of the tokenizer's dictionary.

    Raises:
        TypeError: the tokenizer is SentencePiece's own.
    """
    symbols = tokenizer.dictionary.symbols
    nothing = Piece("", False)
    found = [nothing] * len(symbols)
    if isinstance(tokenizer, CompiledTokenizer):
        # ALBERT marks what begins a word, BERT what goes on with one.
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
    raise TypeError(f"{tokenizer.kind}: what its tokens write is not known")
