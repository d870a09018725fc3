"""Numbers on a command line, for argparse's ``type``: what is not one ends the command before its work."""

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
        raise ArgumentTypeError(f"must be above 0, not {text}")
    return value


def not_negative(text: str) -> float:
    """A finite number, 0 or above."""
    value = finite(text)
    if value < 0:
        raise ArgumentTypeError(f"must be 0 or above, not {text}")
    return value


def count(text: str) -> int:
    """A whole number, 1 or above."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"must be 1 or above, not {text}")
    return value


def whole(text: str) -> int:
    """A whole number from 0 to 2**32 - 1, which numpy and torch take as a seed."""
    value = int(text)
    if not 0 <= value < 1 << 32:
        raise ArgumentTypeError(f"must be from 0 to {(1 << 32) - 1}, not {text}")
    return value


def with_commas(text: str) -> list[float]:
    """Numbers, 0 or above, with commas between them."""
    try:
        return [not_negative(word) for word in text.split(",")]
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r}: pass numbers with commas between them, such as 0,0.01,0.02"
        ) from error


# argparse names the type where a text is no number at all.
finite.__name__ = positive.__name__ = not_negative.__name__ = "number"
count.__name__ = whole.__name__ = "whole number"
