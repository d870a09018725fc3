"""json that this project wrote, read back: what a user, or a broken disk, changed in it is found.

Such files hold no NaN, no number without an end and no half character. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, Mapping, Tuple

from fairseq_adv.data.errors import DataError

Kind = Tuple[str, Callable[[Any], bool]]
"""What a value must be, in words, and whether it is that."""


def is_number(value: Any) -> bool:
    """Whether it is a finite number; a bool is none."""
    return type(value) in (int, float) and math.isfinite(value)


COUNT: Kind = ("a whole number, 0 or above", lambda value: type(value) is int and value >= 0)
SIZE: Kind = ("a number, 0 or above", lambda value: is_number(value) and value >= 0)
FLAG: Kind = ("true or false", lambda value: isinstance(value, bool))
TEXT: Kind = ("a text", lambda value: isinstance(value, str))
OBJECT: Kind = ("an object", lambda value: isinstance(value, dict))
TEXTS: Kind = ("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT[1], value)))


def parsed(text: str) -> Any:
    """The value of a json text.

    Raises:
        ValueError: it is no json, is nested too deep, or holds half a character or what is not finite.
    """
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return value


def own_object(text: str, kinds: Mapping[str, Kind], where: str, fix: str) -> Dict[str, Any]:
    """The object in a json text, whose keys of ``kinds`` must be there and be of their kind.

    Args:
        text: the json.
        kinds: the keys that are read afterwards.
        where: the file, for messages, with its line if it has several.
        fix: what the user can do about it, for messages.

    Raises:
        DataError: it is something else; names the key.
    """
    try:
        value = parsed(text)
    except ValueError as error:
        raise DataError(f"{where}: is not json of this program ({error}). {fix}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a json object, not {text.strip()[:40]!r}. {fix}")
    for key, (wanted, is_so) in kinds.items():
        if key not in value:
            raise DataError(f"{where}: lacks {key!r}. {fix}")
        if not is_so(value[key]):
            raise DataError(f"{where}: {key} must be {wanted}, not {value[key]!r:.40}. {fix}")
    return value
