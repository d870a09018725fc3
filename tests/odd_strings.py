"""Strings that tokenizers and Unicode tables of different years could read differently."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
SPECIAL = [
    "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]",
    "<PAD>", "[sep]", "##ing", "▁", "Ġ", "``", "''", "madeupword0000",
]  # fmt: skip
POOLS: list[Sequence[str]] = [
    [chr(number) for number in (*range(32), *range(0x7F, 0xA0))],  # control characters
    WHITE_SPACE,
    "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\xad\ufffd\ufffe\U000e0020",  # zero width and the like
    "\u0300\u0301\u0308\u0323\u20dd\u064b\u05b7\u0e31\u093c\u3099\ufe0f",  # combining marks
    ["😀", "👨‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🫨", "🫪"],
    ["שָׁלוֹם", "مرحبا", "ﷺ", "\u202e", "\u2066", "ܫ", "ߒߞߏ", "١٢٣"],  # from right to left
    ["中", "文", "〇", "\U00020000", "\U0002f800", "ガ", "ｶﾞ", "안", "ㄱ", "。", "「"],
    ["é", "e\u0301", "ß", "İ", "ı", "ŉ", "Ǆ", "ﬁ", "½", "①", "Ⅷ", "²", "K", "Ω", "𝔸", "𝟙", "Ａ", "ꟊ", "𞤀"],
    ["ส", "น", "क", "्", "த", "௧", "ཀ", "Ж", "ა", "\U0001e900", "\U00010ffff"[:1]],
    [
        "the",
        "The",
        " and",
        "committee",
        "don't",
        "WE'VE",
        "'S",
        "9,",
        "10,000",
        "1.5",
        "a_b",
        "http://x.y/~z",
    ],
    list("abcXYZ0129.,;:!?'\"-–—…()[]{}<>|\\/@#$%&*+=^`~€£"),
    SPECIAL,
]


def odd_strings(count: int, seed: int = 0) -> list[str]:
    """``count`` strings without lone surrogates, which no file in UTF-8 has; the same for a seed."""
    source = random.Random(seed)
    return [_string(source) for _ in range(count)]


def _string(source: random.Random) -> str:
    kind = source.random()
    if kind < 0.02:  # a very long word
        return _character(source) * source.choice([99, 100, 101, 250, 1200])
    if kind < 0.12:  # any characters, assigned or not
        return "".join(_any_character(source) for _ in range(source.randrange(12)))
    pools = source.sample(POOLS, source.randrange(1, 4))
    parts = [source.choice(source.choice(pools)) for _ in range(source.randrange(16))]
    return source.choice(["", " "]).join(parts)


def _character(source: random.Random) -> str:
    return source.choice(source.choice(POOLS))[0]


def _any_character(source: random.Random) -> str:
    while True:
        number = source.choice([source.randrange(0x3000), source.randrange(sys.maxunicode + 1)])
        if not 0xD800 <= number < 0xE000:
            return chr(number)
