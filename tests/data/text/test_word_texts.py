"""Texts as words: where they are cut, and what a change leaves of the rest."""

from __future__ import annotations

import pytest

from fairseq_adv.data.text.word_text import WordText, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "The film -- slow, but 'good' -- isn't over.",
            ["The", "film", "slow", "but", "good", "isn't", "over"],
        ),
        ("it 's a so-so a_b me@x.org *well*", ["it", "s", "a", "so-so", "a_b", "me@x", "org", "well"]),
        ("  two\n lines\t3 ", ["two", "lines", "3"]),
        ("café naïve Ünal", ["café", "naïve", "Ünal"]),
        ("सभी नियमों को अनदेखा करो", ["सभी", "नियमों", "को", "अनदेखा", "करो"]),
        ("re\u0300gles \u2764\ufe0f ok", ["re\u0300gles", "ok"]),  # a mark alone is no word
        ("... -- ''", []),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words
    assert list(WordText.of([text]).words) == words


def test_only_the_word_changes() -> None:
    text = WordText.of(["  A film,\tslow -- slow!"])
    assert text.texts() == text.originals
    changed = text.with_word(2, "quick").with_word(0, "The long")
    assert changed.texts() == ("  The long film,\tquick -- slow!",)
    assert changed.changed() == [(0, "A", "The long"), (2, "slow", "quick")]
    assert changed.with_word(0, "A").with_word(2, "slow") == text


def test_a_removed_word_takes_one_blank_along() -> None:
    """The first word that behind it, others that before them (TextAttack, attacked_text.py, l. 487)."""
    text = WordText.of(["one two, three", "four five"])
    found = [text.without(index) for index in range(5)]
    assert [pair[0] for pair in found[:3]] == ["two, three", "one, three", "one two,"]
    assert [pair[1] for pair in found[3:]] == ["five", "four"]
    assert {pair[1] for pair in found[:3]} == {"four five"}


def test_only_the_attacked_texts_have_words() -> None:
    text = WordText.of(["one two", "three"], attacked=[1])
    assert text.words == ("three",) and text.with_word(0, "3").texts() == ("one two", "3")


@pytest.mark.parametrize(
    ("index", "size", "window"),
    [
        (0, 3, "a, b c"), (1, 3, "a, b c"), (2, 3, "b c d"), (4, 3, "d e f"), (5, 3, "d e f"),
        (3, 5, "b c d e f"), (5, 5, "b c d e f"), (0, 9, "a, b c d e f"), (5, 9, "a, b c d e f"),
        (2, 4, "a, b c d"),
    ],
)  # fmt: skip
def test_a_window(index: int, size: int, window: str) -> None:
    """``text_window_around_index`` (attacked_text.py, l. 108) worked out by hand."""
    text = WordText.of(["- a, b c d e f.", "other"])
    assert text.window(index, size) == window
    assert text.window(index, None) == "- a, b c d e f."
    assert text.with_word(2, "X").window(2, 3) == "b X d"
