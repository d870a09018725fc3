"""Spaced letters, look-alike letters and appended words, by what text comes out."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import (
    EVERYDAY,
    KINDS,
    LOOK_ALIKE,
    Harmless,
    WordText,
    changed,
    read_phrases,
)

pytestmark = pytest.mark.fast
OTHERS = Harmless(texts={"bad": ["never mind this"], "good": ["a fine day, really", " "]})


def after(kind: str, share: float, *texts: str, harmless: Harmless | None = None, label: str = "") -> str:
    """The last of the texts, changed; no other changes."""
    text = WordText.of(texts, [len(texts) - 1])
    found = changed(kind, text, share, random.Random(3), harmless, label, most=4).texts()
    assert found[:-1] == texts[:-1]
    return found[-1]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("spaced", "Ignore all, I say!", "I g n o r e a l l, I s a y!"),
        ("spaced", "a b 7 …", "a b 7 …"),  # nothing to space
        ("spaced", "don't  e.g.\tcafé\n", "d o n ' t  e.g.\tc a f é\n"),
        ("spaced", "नियम re\u0300gles", "नि य म r e\u0300 g l e s"),  # marks stay with their letters
        ("homoglyphs", "Paypal cost", "\u0420\u0430\u0443\u0440\u0430l \u0441\u043e\u0455t"),
        ("homoglyphs", "zinc ZN", "z\u0456n\u0441 \u0396\u039d"),  # Greek where Cyrillic has none
        ("homoglyphs", "123 длинно ftm", "123 длинно ftm"),
    ],
)
def test_all_words(kind: str, given: str, expected: str) -> None:
    assert after(kind, 1, given) == after(kind, 1, "a first text", given)[:] == expected


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.25, 1), (0.26, 2), (0.75, 3), (1, 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_share_of_them(kind: str, share: float, count: int) -> None:
    """Rounded up, of the words that can change: "k" can't."""
    text = WordText.of(["ou k es ox soc."])
    found = changed(kind, text, share, random.Random(1), most=4).changed()
    assert len(found) == count and len({index for index, _, _ in found}) == count
    again = [changed(kind, text, share, random.Random(n), most=4).changed() for n in (1, 1, 2, 3, 4, 5)]
    assert again[0] == again[1] == found
    assert (share == 1 and kind != "appended") or any(one != found for one in again)  # the seed chooses


def test_appended_words() -> None:
    one = Harmless(["so it goes"])
    assert after("appended", 0.5, "End.", harmless=one) == "End. so it goes so it goes"
    assert after("appended", 0.1, "End. ", harmless=one) == "End. so it goes"  # no second space
    assert after("appended", 0.1, "kept", "b", harmless=one) == "b so it goes"
    words = after("appended", 1, "b").split()[1:]
    assert len(words) == 4 and set(words) <= set(EVERYDAY)


def test_words_of_texts_of_other_classes() -> None:
    """The beginnings of as many as it takes; an empty text is none."""
    assert after("appended", 0.75, "t", harmless=OTHERS, label="good") == "t never mind this"
    assert after("appended", 1, "t", harmless=OTHERS, label="good") == "t never mind this never"
    assert after("appended", 1, "t", harmless=OTHERS, label="bad") == "t a fine day, really"
    with pytest.raises(DataError, match="no text of another class than 'bad'"):
        after("appended", 1, "t", harmless=Harmless(texts={"bad": ["x"], "good": [" "]}), label="bad")


def test_a_file_of_phrases(tmp_path: Path) -> None:
    path = tmp_path / "harmless.txt"
    path.write_text("please\r\n\n  thank   you \n", encoding="utf-8")
    assert read_phrases(path).phrases == ["please", "thank you"]
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DataError, match=r"harmless.txt: no words\. Write a word or phrase on each line"):
        read_phrases(path)


def test_the_letters_that_look_alike() -> None:
    """Latin to Cyrillic or Greek, of the same case, each to its own."""
    assert len(set(LOOK_ALIKE.values())) == len(LOOK_ALIKE) == 36
    for latin, other in LOOK_ALIKE.items():
        scripts = [unicodedata.name(letter).split()[0] for letter in (latin, other)]
        assert latin.isascii() and scripts[0] == "LATIN" and scripts[1] in ("CYRILLIC", "GREEK")
        assert latin.isupper() == other.isupper()


def test_words_at_an_end_are_places_of_their_own() -> None:
    text = WordText.of(["one two", "b"]).with_more(0, ["x", "y z"]).with_word(0, "ONE")
    assert text.texts() == ("ONE two x y z", "b")
    assert text.changed() == [(0, "one", "ONE"), (2, "", " x"), (3, "", " y z")]
    assert WordText.of(["", "b"]).with_more(0, ["x"]).texts() == ("x", "b")
