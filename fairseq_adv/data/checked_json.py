"""Reads JSON that users write, and JSON that this project wrote and a user or a broken disk may have changed.

Imports neither torch nor fairseq.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded
from fairseq_adv.data.lines import lines_of, some_rows

_LARGEST = 2 << 30  # bytes that a JSON file may take in memory
_COSTS = {b",": 72, b"[": 176, b"{": 320}  # bytes of a value, a list, an object
_ONE_A_LINE = "Each line must be one JSON object; is the file truncated?"
_NO_LIST = "Write one JSON object per line, not a list of them."
_JSON_NAMES: Dict[type, str] = {dict: "object", list: "array", str: "string"}

FieldType = Tuple[str, Callable[[Any], bool]]
"""A description of the allowed values, and a test for them."""


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number; a bool is not a number."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


COUNT: FieldType = ("a whole number of 0 or more", lambda value: type(value) is int and value >= 0)
SIZE: FieldType = ("a number of 0 or more", lambda value: is_number(value) and value >= 0)
FLAG: FieldType = ("true or false", lambda value: isinstance(value, bool))
TEXT: FieldType = ("a string", lambda value: isinstance(value, str))
TEXTS: FieldType = ("a list of strings", lambda value: isinstance(value, list) and all(map(TEXT[1], value)))


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


def checked_object(text: str, fields: Mapping[str, FieldType], where: str, fix: str) -> Dict[str, Any]:
    """The object in a JSON text; the keys in ``fields`` must exist and have values of their type.

    Args:
        where: the file, and the line if it has several, for messages.
    """
    try:
        value = parsed(text)
    except ValueError as error:
        raise DataError(f"{where}: not JSON written by this program ({error}). {fix}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, not {text.strip()[:40]!r}. {fix}")
    for key, (wanted, is_allowed) in fields.items():
        if key not in value:
            raise DataError(f"{where}: the key {key!r} is missing. {fix}")
        if not is_allowed(value[key]):
            raise DataError(f"{where}: {key} must be {wanted}, not {value[key]!r:.40}. {fix}")
    return value


def json_line(values: Mapping[str, Any]) -> str:
    """JSON on one line. A number that is not finite is null: JSON has none, so readers may refuse NaN."""

    def known(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: known(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return list(map(known, value))
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(known(values))


def json_object(path: Path, fix: str = "Download the file again.") -> Dict[str, Any]:
    """Reads a file that contains a JSON object; a byte order mark is allowed."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return _object(_document(path), str(path), fix)


def json_object_or_none(path: Path) -> Optional[Dict[str, Any]]:
    """Reads a file that contains a JSON object; ``None`` if the file is missing or contains something
    else."""
    try:
        return json_object(path)
    except (OSError, DataError):
        return None


def json_lines(path: Path) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """("file:line", object) for each line that is not blank; the file may be a .gz."""
    for number, line in some_rows((one for one in lines_of(path) if one[1].strip()), path):
        where = f"{path}:{number}"
        yield where, _object(line, where, _NO_LIST if line.strip() == "[" else _ONE_A_LINE)


def require_field(row: Dict[Any, Any], key: Any, json_type: type, where: str, prefix: str = "") -> Any:
    """``row[key]``, which must be of this type; otherwise raises DataError, which names the place."""
    if key not in row:
        raise DataError(f"{where}: the key {prefix}{key} is missing. Its keys: {', '.join(row) or 'none'}.")
    if not isinstance(row[key], json_type):
        raise DataError(f"{where}: {prefix}{key} must be a JSON {_JSON_NAMES[json_type]}, not {row[key]!r}")
    if json_type is str:
        check_text(row[key], f"{where}: {prefix}{key}")
    return row[key]


def note_id(seen: Dict[str, str], name: str, where: str) -> None:
    """Notes where an id stands; raises DataError if it already stood elsewhere."""
    if name in seen:
        raise DataError(f"{where}: the id {name} is also at {seen[name]}. Ids must be unique.")
    seen[name] = where


def check_text(text: str, what: str) -> None:
    """Raises DataError, naming ``what``, if a text can't be encoded as UTF-8: JSON allows a lone \\ud800."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{what} has half a surrogate pair ({error.reason}). Remove it.") from error


def text_of(row: Dict[Any, Any], key: Any, where: str, prefix: str = "") -> str:
    """``row[key]`` as a non-empty text; numbers are kept as written. Otherwise raises DataError."""
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text: str = require_field({**row, key: value} if key in row else row, key, str, where, prefix)
    if not text.strip():
        raise DataError(f"{where}: {prefix}{key} is empty. Fill it in, or remove the line.")
    return text


def _document(path: Path) -> str:
    """The text of a JSON file, if what it contains will fit in memory."""
    size = path.stat().st_size
    content = path.read_bytes() if 2 * size < _LARGEST else b""
    # A text takes up to four bytes per character while it is parsed; then each value takes some memory, as
    # measured with CPython 3.11.
    parsed = (2 if content.isascii() else 5) * size
    parsed += sum(cost * content.count(sign) for sign, cost in _COSTS.items())
    if parsed > _LARGEST:
        raise DataError(
            f"{path}: {size >> 20} MiB of JSON could take {parsed / 2**30:.1f} GiB of memory, more than "
            f"{_LARGEST >> 30}. Split the file."
        )
    return decoded(content, path).removeprefix("\ufeff")


def _object(text: str, where: str, fix: str) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}). {fix}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, not {text.strip()[:40]}")
    return value
