"""What may stand in a word's place."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from small_wordnet import small_wordnet
from test_edits import whole_table

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.word_attacks.candidates import Neighbours, WordNet, lookalikes
from fairseq_adv.evaluation.word_attacks.resources import LETTERS

# name -> (letters more or less, edits, whether the first and the last letter stay, least letters)
MISSPELLINGS = {
    "swapped": (0, 2, False, 2), "substituted": (0, 1, False, 2), "deleted": (-1, 1, False, 2),
    "inserted": (1, 1, False, 2), "swapped_inside": (0, 2, True, 4), "deleted_inside": (-1, 1, True, 3),
    "inserted_blank": (1, 1, True, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSPELLINGS)
def test_misspellings(name: str) -> None:
    """Each is one slip of the pen, anywhere that it may be; a word too short for one has none."""
    more, edits, stays, least = MISSPELLINGS[name]
    numbers, word, found = random.Random(1), "wonderful", set[str]()
    for _ in range(800):
        (one,) = LETTERS[name](word, numbers)
        found.add(one)
    assert all(len(one) == len(word) + more and whole_table(word, one) <= edits for one in found)
    assert all(one[0] == word[0] and one[-1] == word[-1] for one in found) == stays
    places = {
        next(i for i, pair in enumerate(zip(word + "\n", one + "\n")) if pair[0] != pair[1])
        for one in found - {word}
    }
    last = {"swapped": 7, "swapped_inside": 6, "deleted_inside": 7, "inserted_blank": 7}.get(name, 8)
    assert places == set(range(int(stays), last + 1))
    for length in range(5):
        assert bool(LETTERS[name]("abcde"[:length], numbers)) == (length >= least)


def test_lookalikes() -> None:
    found = lookalikes("a-b!", random.Random(1))
    assert found == ["ɑ-b!", "a˗b!", "a-Ь!"]


def test_neighbours_keep_the_words_case(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"good": ["great", "two words", "fine", "nice"], "i": ["me"]}))
    near = Neighbours(path, 2)
    numbers = random.Random(1)
    assert near("good", numbers) == ["great", "fine"]
    assert near("Good", numbers) == ["Great", "Fine"]
    assert near("GOOD", numbers) == ["GREAT", "FINE"]
    assert near("I", numbers) == ["me"] and near("other", numbers) == []
    assert Neighbours(path, 0)("good", numbers) == ["great", "fine", "nice"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ('{"a": "b"}', "not a table of neighbours: those of 'a' are not a list of words"),
        ('{"a": ["b"], "c": [1]}', "not a table of neighbours: those of 'c' are not a list of words"),
    ],
)
def test_another_file_is_no_table(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"table\.json: {message}"):
        Neighbours(path, 2)


def test_synonyms_of_all_parts_of_speech_and_base_forms(tmp_path: Path) -> None:
    wordnet = WordNet(small_wordnet(tmp_path / "wordnet"))
    expected = {
        "movie": ["film"], "movies": ["film", "movie"], "Movie": ["film", "movie"], "ran": ["run", "scarper"],
        "men": ["man"], "loving": ["enjoy", "love"], "good": ["galore", "well"], "bigger": [],
        "larger": ["big", "large"], "church": ["Church"], "churches": ["Church", "church"], "zzz": [],
        "enjoys": ["enjoy", "love"],
    }  # fmt: skip
    assert {word: wordnet.synonyms(word) for word in expected} == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("index.noun", None, r"wordnet: not WordNet's files .*index\.noun"),
        ("data.noun", b"", "wordnet: not WordNet's files .*download them again"),
        (
            "data.noun",
            b"  1 another length\n00000012 05 n 01 movie 0 000 | a\n",
            "wordnet: not WordNet's files",
        ),
    ],
)
def test_wordnets_mistakes_are_told(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    folder = small_wordnet(tmp_path / "wordnet")
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        WordNet(folder).synonyms("movie")
    assert "\n" not in str(caught.value)
