"""Synonyms from WordNet's database files (wndb(5WN)), read without a library that downloads them.

A word's base forms are found as in WordNet's morphy(7WN): first the exceptions, then the endings.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.word_attacks.word_text import is_one_word

_PARTS = ("noun", "verb", "adj", "adv")
_ENDINGS = {  # morphy(7WN): a word's ending -> that of its base form
    "noun": [
        ("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"),
        ("men", "man"), ("ies", "y"),
    ],
    "verb": [
        ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""),
    ],
    "adj": [("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
    "adv": [],
}  # fmt: skip


class WordNet:
    """A folder with ``index.noun``, ``data.noun``, ``noun.exc`` and those of the other parts of speech.

    Args:
        folder: such as that of Debian's package wordnet-base.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index = {part: self._read_index(part) for part in _PARTS}
        self._exceptions = {part: self._read_exceptions(part) for part in _PARTS}
        self._data = {part: self._read(f"data.{part}") for part in _PARTS}

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - lives as long as the command
    def synonyms(self, word: str) -> list[str]:
        """All words, in alphabetical order, that share a meaning with ``word`` or its base form.

        Phrases, which WordNet writes with "_", are left out, and so is ``word`` itself.
        """
        found = set()
        for part in _PARTS:
            for form in self._base_forms(word.lower(), part):
                for offset in self._index[part].get(form, ()):
                    found.update(self._members(part, offset))
        return sorted(name for name in found if name != word and "_" not in name and is_one_word(name))

    def _base_forms(self, word: str, part: str) -> list[str]:
        known = self._index[part]
        if word in self._exceptions[part]:
            forms = [word, *self._exceptions[part][word]]
            return [form for form in dict.fromkeys(forms) if form in known]
        ways = _ENDINGS[part]
        forms = [word] + [word.removesuffix(old) + new for old, new in ways if word.endswith(old)]
        found = [form for form in dict.fromkeys(forms) if form in known]
        tried = forms[1:]
        while not found and tried:  # endings after endings
            tried = [
                form.removesuffix(old) + new for form in tried for old, new in ways if form.endswith(old)
            ]
            found = [form for form in dict.fromkeys(tried) if form in known]
        return found

    def _members(self, part: str, offset: int) -> list[str]:
        data = self._data[part]
        try:
            line = data[offset : data.index("\n", offset)].split(" ")
            names = line[4 : 4 + 2 * int(line[3], 16) : 2] if int(line[0]) == offset else []
        except (ValueError, IndexError):
            names = []
        if not names:
            raise DataError(f"{self._folder}/data.{part}: no synset at byte {offset}. Download it again.")
        return [name.partition("(")[0] for name in names]  # an adjective's position: "galore(ip)"

    def _read_index(self, part: str) -> dict[str, list[int]]:
        found = {}
        name = f"index.{part}"
        for number, line in enumerate(self._read(name).split("\n"), 1):
            if line.startswith(" ") or not line:  # the licence; the end
                continue
            try:
                lemma, _, count, pointers, *rest = line.split()
                found[lemma] = [int(offset) for offset in rest[int(pointers) + 2 :]]
                if len(found[lemma]) != int(count):
                    raise ValueError
            except ValueError as error:
                raise DataError(
                    f"{self._folder / name}:{number}: not a line of WordNet's index. Download the file again."
                ) from error
        return found

    def _read_exceptions(self, part: str) -> dict[str, list[str]]:
        rows = [line.split() for line in self._read(f"{part}.exc").split("\n")]
        return {row[0]: row[1:] for row in rows if row}

    def _read(self, name: str) -> str:
        """A file as text in which one character is one byte, since its offsets count bytes."""
        path = self._folder / name
        if not path.is_file():
            raise DataError(
                f"{path}: no such file. Pass WordNet's folder (Debian's package wordnet-base puts it into "
                "/usr/share/wordnet)."
            )
        return path.read_bytes().decode("latin-1")
