"""Reads back JSON that this project wrote, and finds what a user or a broken disk has changed in it.

Such files contain no NaN, no infinite number and no lone surrogate. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, Mapping, Tuple

from fairseq_adv.data.errors import DataError

Kind = Tuple[str, Callable[[Any], bool]]
"""A description of the allowed values, and a test for them."""


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number; a bool is not a number."""
    return type(value) in (int, float) and math.isfinite(value)


COUNT: Kind = ("a whole number of 0 or more", lambda value: type(value) is int and value >= 0)
SIZE: Kind = ("a number of 0 or more", lambda value: is_number(value) and value >= 0)
FLAG: Kind = ("true or false", lambda value: isinstance(value, bool))
TEXT: Kind = ("a string", lambda value: isinstance(value, str))
OBJECT: Kind = ("an object", lambda value: isinstance(value, dict))
TEXTS: Kind = ("a list of strings", lambda value: isinstance(value, list) and all(map(TEXT[1], value)))


def parsed(text: str) -> Any:
    """Parses a JSON text.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or contains a lone surrogate or a number that is not
            finite.
    """
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def checked_object(text: str, kinds: Mapping[str, Kind], where: str, fix: str) -> Dict[str, Any]:
    """The object in a JSON text; the keys in ``kinds`` must exist and have values of their kind.

    Args:
        text: the JSON.
        kinds: the keys that the caller reads.
        where: the file, and the line if it has several, for messages.
        fix: advice, for messages.

    Raises:
        DataError: it is not such an object; names the key.
    """
    try:
        value = parsed(text)
    except ValueError as error:
        raise DataError(f"{where}: not JSON written by this program ({error}). {fix}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, not {text.strip()[:40]!r}. {fix}")
    for key, (wanted, is_so) in kinds.items():
        if key not in value:
            raise DataError(f"{where}: the key {key!r} is missing. {fix}")
        if not is_so(value[key]):
            raise DataError(f"{where}: {key} must be {wanted}, not {value[key]!r:.40}. {fix}")
    return value
