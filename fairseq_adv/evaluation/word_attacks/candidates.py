"""Candidates to replace a word: misspellings, neighbours in a table, WordNet's synonyms."""

from __future__ import annotations

import io
import random
import string
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import TEXTS, json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import is_one_word

Source = Callable[[str, random.Random], "list[str]"]
"""(word, the example's random numbers) -> other words."""

# TextAttack 0.3.11's letters that look like others (word_swap_homoglyph_swap.py, l. 27).
_LOOKS_LIKE = dict(zip("-9876543210'abcdefghijklmnopqrstuvwxyz", "˗৭Ȣ𝟕бƼᏎƷᒿlO`ɑЬϲԁе𝚏ɡհіϳ𝒌ⅼｍոорԛⲅѕ𝚝սѵԝ×уᴢ"))


def swapped_letters(word: str, numbers: random.Random, inside: bool = False) -> list[str]:
    """The word with two adjacent letters exchanged, at random.

    Args:
        inside: keep the first and the last letter.
    """
    places = range(1, len(word) - 2) if inside else range(len(word) - 1)
    return [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in _one_of(places, numbers)]


def substituted_letter(word: str, numbers: random.Random) -> list[str]:
    """The word with one letter replaced by a random one, if it has two or more."""
    places = range(len(word) if len(word) > 1 else 0)
    return [word[:i] + numbers.choice(string.ascii_letters) + word[i + 1 :] for i in _one_of(places, numbers)]


def deleted_letter(word: str, numbers: random.Random, inside: bool = False) -> list[str]:
    """The word without one letter, if it has two or more; arguments as in :func:`swapped_letters`."""
    places = _inside(word) if inside else range(len(word) if len(word) > 1 else 0)
    return [word[:i] + word[i + 1 :] for i in _one_of(places, numbers)]


def inserted_letter(word: str, numbers: random.Random) -> list[str]:
    """The word with a random letter before one of its letters, if it has two or more."""
    places = range(len(word) if len(word) > 1 else 0)
    return [word[:i] + numbers.choice(string.ascii_letters) + word[i:] for i in _one_of(places, numbers)]


def inserted_blank(word: str, numbers: random.Random) -> list[str]:
    """The word split in two by a space, after its first letter at the earliest and before its last."""
    return [word[:i] + " " + word[i:] for i in _one_of(_inside(word), numbers)]


def lookalikes(word: str, numbers: random.Random) -> list[str]:
    """The word with one letter replaced by another that looks the same, for each letter."""
    return [
        word[:i] + _LOOKS_LIKE[letter] + word[i + 1 :]
        for i, letter in enumerate(word)
        if letter in _LOOKS_LIKE
    ]


class Neighbours:
    """Neighbouring words from a table ``{"word": ["neighbour", …], …}``, the nearest first.

    Args:
        path: a JSON file; its words are lower case.
        most: number of neighbours to try; 0: all.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._table, self._most = _table(path), most

    def __call__(self, word: str, numbers: random.Random) -> list[str]:
        return [cased_like(other, word) for other in self._table.get(word.lower(), [])[: self._most or None]]


def _table(path: Path) -> dict[str, list[str]]:
    table = json_object(path, 'It must be a table of neighbours, {"word": ["neighbour", …], …}.')
    odd = next((word for word, others in table.items() if not TEXTS[1](others)), None)
    if odd is not None:
        raise DataError(f"{path}: not a table of neighbours: those of {odd!r:.40} are not a list of words")
    return {word: [other for other in words if is_one_word(other)] for word, words in table.items()}


def cased_like(word: str, like: str) -> str:
    """A word in the case of another, like TextAttack's ``recover_word_case``: all capitals, or a capital
    first."""
    if like.isupper() and len(like) > 1:
        return word.upper()
    return word.capitalize() if like[:1].isupper() and like[1:].islower() else word


def _inside(word: str) -> range:
    return range(1, len(word) - 1)


def _one_of(places: Sequence[int], numbers: random.Random) -> list[int]:
    return [numbers.choice(places)] if places else []


class WordNet:
    """Synonyms from a folder of WordNet's database files, wndb(5WN), as nltk's reader finds them.

    Args:
        folder: such as nltk's ``corpora/wordnet``, or that of Debian's package wordnet-base.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = self._read(lambda: _reader(folder))

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - lives as long as the command
    def synonyms(self, word: str) -> list[str]:
        """All words, in alphabetical order, that share a meaning with ``word`` or its base form.

        Phrases, which WordNet writes with "_", are left out, and so is ``word`` itself.
        """
        names = self._read(lambda: {name for one in self._reader.synsets(word) for name in one.lemma_names()})
        return sorted(name for name in names if name != word and "_" not in name and is_one_word(name))

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there are no other languages
                return read()
        except DataError:
            raise
        except Exception as error:  # nltk doesn't check what it reads: any error means a damaged file
            reason = " ".join(f"{type(error).__name__}: {error!s:.200}".split())
            raise DataError(
                f"{self._folder}: not WordNet's files ({reason}). Pass /usr/share/wordnet of Debian's "
                "package wordnet-base, or download them again."
            ) from error


def _reader(folder: Path) -> Any:
    try:
        import nltk.data
        from nltk.corpus.reader import WordNetCorpusReader
    except ImportError as error:
        raise DataError("--wordnet needs nltk: pip install 'fairseq_adv[attacks]'") from error

    class Reader(WordNetCorpusReader):
        def open(self, file: str) -> Any:
            """Names of WordNet's own files, which Debian leaves out, and which synonyms don't need."""
            if file == "lexnames":
                return io.StringIO("".join(f"{number:02} - 0\n" for number in range(100)))
            return super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """For other languages; it would need another version in nltk's own folder."""

    nltk.data.path.append(str(folder.resolve()))  # it reads nothing outside of these folders
    return Reader(str(folder), None)
