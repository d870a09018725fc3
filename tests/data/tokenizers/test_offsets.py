"""Characters of tokens: equal to transformers' for GPT-2's BPE and WordPiece, and the cover of a range."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from glue_samples import small_unigram
from support import write_encoder

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, covering, encode_aligned

TEXTS = [
    "In the 1990s, Beyonc\u00e9's na\u00efve caf\u00e9 cost \u20ac24\u201310!",
    "  leading and trailing \n",
    "two  blanks,\ta tab\nand a line",
    "\u4e2d\u6587 and \U0001f600\U0001f680 \U0001d54f",
    "a\u00a0b e\u0301 \u200b x",
    "",
    " ",
    "don't they'd-have (w)ords...",
]


@pytest.fixture(scope="module", params=["gpt2", "wordpiece", "unigram"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenToIds:
    if request.param == "gpt2":
        bpe: Path = request.getfixturevalue("shared_data") / "gpt2_bpe"
        return Gpt2Tokenizer(bpe / "encoder.json", bpe / "vocab.bpe", bpe / "dict.txt")
    write = small_unigram if request.param == "unigram" else write_encoder
    return tokenizer_for_encoder(write(tmp_path_factory.mktemp(request.param)))


def test_the_ids_are_those_of_encode(tokenizer: TokenToIds) -> None:
    aligned = encode_aligned(tokenizer, TEXTS)
    ids, lengths = tokenizer.encode(TEXTS)
    ends = np.cumsum(lengths)
    for number in range(len(TEXTS)):
        assert (
            aligned.of(number)[0].tolist() == ids[ends[number] - lengths[number] : ends[number] - 1].tolist()
        )
    assert aligned.lengths.tolist() == (lengths - 1).tolist()


def test_half_a_surrogate_pair_is_refused(tokenizer: TokenToIds) -> None:
    with pytest.raises(DataError, match=r"the text 'b \\ud800' has half a surrogate pair"):
        encode_aligned(tokenizer, ["a", "b \ud800"])
    if tokenizer.kind != "gpt2":  # tiktoken reads it as U+FFFD
        with pytest.raises(DataError, match="half a surrogate pair"):
            tokenizer.encode(["a", "b \ud800"])


def test_each_token_covers_its_characters(tokenizer: TokenToIds) -> None:
    """By another library's own offsets, and in order; all that is no white space is covered."""
    aligned = encode_aligned(tokenizer, TEXTS)
    for number, text in enumerate(TEXTS):
        _, starts, ends = aligned.of(number)
        assert (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()
        covered = {c for start, end in zip(starts, ends) for c in range(start, end)}
        # BERT's normaliser takes accents away.
        seen = {c for c, one in enumerate(text) if one.isprintable() and not one.isspace()}
        assert {c for c in seen if not unicodedata.combining(text[c])} <= covered
        if tokenizer.kind == "gpt2":
            found = [(int(s), int(e)) for s, e in zip(starts, ends) if s < e]
            assert found == _theirs(tokenizer, text)


@pytest.mark.parametrize("control", ["\x01", "\x02\x07", "\x1b", "\x7f", "\x8f\x9f"])
def test_control_characters_at_the_start_shift_nothing(tokenizer: TokenToIds, control: str) -> None:
    text = f"{control}the cat a b"
    _, starts, ends = encode_aligned(tokenizer, [text]).of(0)
    for word in ("cat", "a", "b"):
        begin = text.rindex(word) if word != "a" else text.rindex(" a ") + 1
        first, last = covering(starts, ends, begin, begin + len(word))
        assert text[starts[first] : ends[last]] == word


def _theirs(tokenizer: TokenToIds, text: str) -> list[tuple[int, int]]:
    """Of ``tokenizers``' byte-level BPE, which trims all white space; ours, the blank before a word."""
    from tokenizers import ByteLevelBPETokenizer

    engine: Any = ByteLevelBPETokenizer(
        str(tokenizer.files["encoder_json"]), str(tokenizer.files["vocab_bpe"]), trim_offsets=True
    )
    before = len(text) - len(text.lstrip())
    return [(before + s, before + e) for s, e in engine.encode(text.strip()).offsets if s < e]


def test_the_cover_of_a_range() -> None:
    """Tokens of 0-3, 4-6, 6-7, 7-7 (a blank), 8-9: an answer within a token gets the whole token."""
    starts, ends = np.array([0, 4, 6, 7, 8], np.int32), np.array([3, 6, 7, 7, 9], np.int32)
    for begin, end, first, last in [
        (0, 3, 0, 0), (1, 2, 0, 0), (0, 9, 0, 4), (5, 7, 1, 2), (4, 6, 1, 1), (8, 9, 4, 4), (2, 5, 0, 1),
    ]:  # fmt: skip
        assert [int(x) for x in covering(starts, ends, begin, end)] == [first, last], (begin, end)
    first, last = covering(starts, ends, np.array([3]), np.array([4]))
    assert last[0] < first[0]  # no token
    first, last = covering(starts[:0], ends[:0], 0, 3)
    assert last < first
