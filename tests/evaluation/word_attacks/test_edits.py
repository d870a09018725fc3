"""Levenshtein distances."""

from __future__ import annotations

import random

import pytest

from fairseq_adv.data.text.word_text import WordText, distance, is_near


def whole_table(first: str, second: str) -> int:
    """Every cell of the textbook's table."""
    table = {(i, 0): i for i in range(len(first) + 1)} | {(0, j): j for j in range(len(second) + 1)}
    for i, a in enumerate(first, 1):
        for j, b in enumerate(second, 1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a != b))
    return table[len(first), len(second)]


@pytest.mark.parametrize("letters", ["abc", "aé\u0301\U0001f600\n"])
def test_distances(letters: str) -> None:
    numbers = random.Random(len(letters))
    for longest in (0, 1, 3, 12, 70) * 20:
        pair = ["".join(numbers.choices(letters, k=numbers.randint(0, longest))) for _ in range(2)]
        assert distance(*pair) == whole_table(*pair), pair


def test_words_that_move_letters_between_them_count_as_texts_do() -> None:
    """Word by word these are four letters apart; the texts are two."""
    text = WordText.of(["ab cd"])
    changed = text.with_word(0, "abc").with_word(1, "d")
    assert is_near(text, changed, 2) and not is_near(text, changed, 1)
    swapped = WordText.of(["xy xy xy"]).with_word(0, "yx").with_word(2, "xyz")
    assert is_near(WordText.of(["xy xy xy"]), swapped, 3) and not is_near(
        WordText.of(["xy xy xy"]), swapped, 2
    )
