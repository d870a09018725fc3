"""Number types for argparse: a wrong value ends the command before any work starts."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError


def finite(text: str) -> float:
    """A number that is neither infinite nor NaN."""
    value = float(text)
    if not math.isfinite(value):
        raise ArgumentTypeError(f"must be a finite number, not {text}")
    return value


def positive(text: str) -> float:
    """A finite number above 0."""
    value = finite(text)
    if value <= 0:
        raise ArgumentTypeError(f"must be greater than 0, not {text}")
    return value


def not_negative(text: str) -> float:
    """A finite number of 0 or more."""
    value = finite(text)
    if value < 0:
        raise ArgumentTypeError(f"must be 0 or more, not {text}")
    return value


def count(text: str) -> int:
    """A whole number of 1 or more."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"must be 1 or more, not {text}")
    return value


def whole(text: str) -> int:
    """A whole number from 0 to 2**32 - 1, the seeds that numpy and torch accept."""
    value = int(text)
    if not 0 <= value < 1 << 32:
        raise ArgumentTypeError(f"must be from 0 to {(1 << 32) - 1}, not {text}")
    return value


def with_commas(text: str) -> list[float]:
    """Numbers of 0 or more, separated by commas."""
    try:
        return [not_negative(word) for word in text.split(",")]
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r}: pass numbers separated by commas, such as 0,0.01,0.02") from error


# argparse prints the type's name if the text is not a number at all.
finite.__name__ = positive.__name__ = not_negative.__name__ = "number"
count.__name__ = whole.__name__ = "whole number"
