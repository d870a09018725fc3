"""Synonyms from WordNet's database files, wndb(5WN), as nltk's reader finds them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.word_attacks.word_text import is_one_word


class WordNet:
    """A folder with ``index.noun``, ``data.noun``, ``noun.exc`` and those of the other parts of speech.

    Args:
        folder: such as nltk's ``corpora/wordnet``, or that of Debian's package wordnet-base.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        missing = next((name for name in ("index.noun", "data.noun") if not (folder / name).is_file()), None)
        if missing is not None:
            raise DataError(
                f"{folder / missing}: no such file. Pass WordNet's folder, such as /usr/share/wordnet of "
                "Debian's package wordnet-base."
            )
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
                f"{self._folder}: not WordNet's files ({reason}). Download them again."
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
