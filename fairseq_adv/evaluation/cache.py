"""Stores measurements in files, so that an interrupted command can resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.io import atomic_write
from fairseq_adv.data.workspace import differences


def cached(
    kept: Path, made_from: Mapping[str, Any], measure: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """The contents of ``kept`` if they were made from the same input; otherwise the result of ``measure``,
    stored.

    Args:
        kept: a JSON file, which need not exist.
        made_from: everything that the values depend on; must be serialisable as JSON.
        measure: computes the values.
    """
    found = json_object_or_none(kept) or {}
    if not differences(made_from, found.get("key")):
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # another program's file
            return {name: float(value) for name, value in found["means"].items()}
    values = measure()
    atomic_write(kept, json.dumps({"key": made_from, "means": values}))
    return values


def stamp(file: Path) -> dict[str, int]:
    """Size and time of a checkpoint, to distinguish it from another of the same name.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such checkpoint")
    status = file.stat()
    return {"size": status.st_size, "time": status.st_mtime_ns}
