"""Which hits become documents, and the searches that are tried."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from fairseq_adv.retrieval.documents import Options, Retrieved, choose, is_junk, ladder, retrieve
from fairseq_adv.retrieval.tantivy_index import Hit, Query, terms

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("text", "junk"),
    [
        ("Plants make sugar from sunlight.", False),
        ("At 20 °C, water is liquid (H2O).", False),
        ("Which plants make sugar?", True),
        ("See www.example.org for more plants.", True),
        ("<b>Plants</b> make sugar.", True),
        ("1 2 3 4 5 6 a b c", True),
        ("Contents of chapter one .......... 12", True),
        ("word " * 60 + "x", True),
        ("पृथ्वी सूर्य के चारों ओर घूमती है।", False),  # 46 % are vowel signs, which are no letters of their own
    ],
)
def test_junk(text: str, junk: bool) -> None:
    assert is_junk(text.strip(), 299) is junk


def test_chosen_once_and_in_order() -> None:
    texts = ["A cat sat down.", "a CAT  sat, down", "Two", "A dog ran away.", "A bird flew off."]
    hits = [Hit(text, 9.0 - i, i) for i, text in enumerate(texts)]
    assert choose(iter(hits), Options(top=2)) == ("A cat sat down.", "A dog ran away.")
    assert choose(iter(hits), Options(top=9)) == ("A cat sat down.", "A dog ran away.", "A bird flew off.")
    hindi = ("राम ने दिन में खाना खाया।", "राम ने दान में खाना खाया।")  # they differ in a vowel sign
    assert choose(iter([Hit(text, 1.0, i) for i, text in enumerate(hindi)]), Options(top=9)) == hindi
    assert Retrieved((*hindi, "A cat sat"), False).text == " ".join([*hindi, "A cat sat."])


def test_terms_are_stems_without_stop_words() -> None:
    assert terms("The plants' growing, and GROWN plant's") == ("plant", "grow", "grown", "s")
    assert terms("the of and") == () == terms("") == terms("?!")
    assert terms("café\ud800 naïve_x") == ("café", "naïv", "x")
    assert terms("हिन्दी भाषा") == ("हिन", "दी", "भाषा")  # its vowels are marks
    assert terms("cafe\u0301") == ("café",)  # as in the index, whose sentences are in the form NFC


def test_ladder() -> None:
    both = ("ice", "melt", "hot", "water")
    assert ladder("Ice melts", "the hot water", "any") == [Query(both, ("hot", "water")), Query(both, ())]
    assert ladder("Ice melts", "hot water", "all") == [
        Query(both, ("hot", "water"), every=True),
        Query(both, ("hot", "water")),
        Query(both, ()),
    ]
    assert ladder("Ice melts", "of the", "any") == [Query(("ice", "melt"), ())]
    assert ladder("", "of the", "all") == []
    (terms_of_last,) = {query.terms for query in ladder("first " + "x" * 1000, "ice", "any")}
    assert terms_of_last == ("ice",)  # of 1000 characters: too long a word


class _Engine:
    """Knows sentences by rank only."""

    def __init__(self, texts: list[str], only_without: bool = False) -> None:
        self.texts, self.only_without = texts, only_without
        self.limits: list[int] = []

    def describe(self) -> dict[str, Any]:
        return {}

    def search(self, query: Query, limit: int, whole_ties: bool = False) -> Any:
        assert whole_ties is (limit < 500)
        self.limits.append(limit)
        texts = [] if self.only_without and query.required else self.texts[:limit]

        class Found:
            more = len(texts) == limit

            def __iter__(self) -> Iterator[Hit]:
                return (Hit(text, 1.0, i) for i, text in enumerate(texts))

        return Found()


def test_looks_further_where_the_first_hits_are_junk() -> None:
    engine = _Engine(["Junk?"] * 60 + ["Ice is frozen water.", "Ice floats on water"])
    found = retrieve(engine, "What is ice made of", "water", Options(top=2))
    assert found.text == "Ice is frozen water. Ice floats on water." and not found.fallback
    assert engine.limits == [10, 500]


def test_fallback_and_nothing() -> None:
    found = retrieve(_Engine(["Ice is frozen water."], True), "ice", "zzz", Options())
    assert found.documents == ("Ice is frozen water.",) and found.fallback
    assert retrieve(_Engine(["Ice is frozen water."]), "ice", "of", Options()).fallback
    found = retrieve(_Engine([]), "ice", "zzz", Options())
    assert found.text == "" and not found.fallback
    assert retrieve(_Engine(["Ice is frozen water."]), "the", "of", Options()).documents == ()
