"""Number types for argparse: a wrong value ends the command before any work starts."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

from fairseq_adv_compat.option_numbers import Numbers


class NumberType:
    """Reads a text as one of the numbers that an option may have."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        # argparse prints it if the text is not a number at all.
        self.__name__ = "whole number" if numbers.whole else "number"

    def __call__(self, text: str) -> Any:
        value = self.numbers.read(text)
        if not self.numbers.has(value):
            raise ArgumentTypeError(f"must be {self.numbers}, not {text}")
        return value


finite = NumberType(Numbers())
positive = NumberType(Numbers(above=0))
not_negative = NumberType(Numbers(0))
count = NumberType(Numbers(1, whole=True))
whole = NumberType(Numbers(0, (1 << 32) - 1, whole=True))  # the seeds that numpy and torch accept


def with_commas(text: str) -> list[float]:
    """Numbers of 0 or more, separated by commas."""
    try:
        return [not_negative(word) for word in text.split(",")]
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r}: pass numbers separated by commas, such as 0,0.01,0.02") from error
