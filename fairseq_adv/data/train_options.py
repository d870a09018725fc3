"""The options of a training run for ``fairseq-train``: the user's, and those that are filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from fairseq_adv.data.errors import DataError
from fairseq_adv_compat.option_numbers import Numbers

_ALIASES = {
    "--combine-val": "--combine-valid-subsets", "--max-sentences": "--batch-size",
    "--save-async": "--write-checkpoints-asynchronously",
}  # fmt: skip


class TrainOptions:
    """Options of a run; the user's override ours.

    Args:
        own: the user's words, which are read here alone.

    Attributes:
        given: the user's options by name; "" for a flag.
        filled: ours, in the same form.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.given: dict[str, str] = {}
        self.filled: dict[str, str] = {}
        self._own, option = words, ""
        for word in words:
            if word.startswith("-a"):  # fairseq's --arch, as -a=ARCH and -aARCH too
                option, value = "--arch", word[2:].removeprefix("=")
                self.given[option] = value
            elif word.startswith("--"):
                option, _, value = word.partition("=")
                option = _ALIASES.get(option, option)
                self.given[option] = value
            elif option:
                self.given[option] = word

    def words(self) -> list[str]:
        """All options as command-line arguments: ours, then the user's as they were given."""
        ours = [
            (f"{name}={value}",) if value.startswith("-") else (name, value)
            for name, value in self.filled.items()
        ]
        return [*filter(None, chain.from_iterable(ours)), *self._own]

    def has(self, *options: str) -> bool:
        """Whether the user gave one of these."""
        return not self.given.keys().isdisjoint(options)

    def value(self, option: str, default: str = "") -> str:
        """The value of an option: the user's, else ours, else ``default``."""
        return self.given.get(option, self.filled.get(option, default))

    def number(self, option: str, default: str = "", least: int = 0) -> int:
        """The value of an option that must be a whole number of ``least`` or more."""
        return whole_number(option, self.value(option, default), least)

    def fill(self, options: Mapping[str, str], unless: Sequence[str] = ()) -> None:
        """Fills in the options that the user has not passed; none of them if one of ``unless`` was passed."""
        if not self.has(*unless):
            self.filled.update({name: value for name, value in options.items() if name not in self.given})


def whole_number(option: str, text: str, least: int) -> int:
    if not (text.isdecimal() and Numbers(least, whole=True).has(int(text))):
        # A limit of 0 is none, as in fairseq, but nobody needs it.
        raise DataError(f"{option} {text or repr(text)}: {Numbers(1, whole=True).fix}")
    return int(text)
