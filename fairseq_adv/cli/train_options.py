"""Options of ``fairseq-train`` by their names, the user's and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairseq_adv.data.errors import DataError

_ALIASES = {"--max-sentences": "--batch-size"}


class TrainOptions:
    """Options for ``fairseq-train``; the user's override ours.

    Args:
        own: the user's arguments.

    Attributes:
        given: the user's options by name; "" for a flag.
        filled: ours, in the same form.
    """

    def __init__(self, own: Sequence[str]) -> None:
        self.given: dict[str, str] = {}
        self.filled: dict[str, str] = {}
        option = ""
        for word in own:
            if word.startswith("--"):
                option, _, value = word.partition("=")
                option = _ALIASES.get(option, option)
                self.given[option] = value
            elif option:
                self.given[option] = word

    def has(self, *options: str) -> bool:
        """Whether the user gave one of these."""
        return any(option in self.given for option in options)

    def value(self, option: str, default: str = "") -> str:
        """The value of an option: the user's, else ours, else ``default``."""
        return self.given.get(option, self.filled.get(option, default))

    def number(self, option: str, default: str = "") -> int:
        """The value of an option that must be a whole number of 0 or more.

        Raises:
            DataError: it is not.
        """
        return whole_number(option, self.value(option, default))

    def fill(self, options: Mapping[str, str], unless: Sequence[str] = ()) -> None:
        """Fills in the options that the user has not passed; none of them if one of ``unless`` was passed."""
        if not self.has(*unless):
            self.filled.update({name: value for name, value in options.items() if not self.has(name)})

    def filled_in(self) -> list[str]:
        """Our options as command-line arguments."""
        return [word for option, value in self.filled.items() for word in (option, value) if word]


def whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise DataError(f"{option} {text}: pass a whole number")
    return int(text)
