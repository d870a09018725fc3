"""Keeps what was measured in files, so that an interrupted command can resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_adv.data.io import as_json, json_object_or_none, write_whole


def measured_once(
    kept: Path, made_from: Mapping[str, Any], measure: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """What ``kept`` holds if it was made from the same; else what ``measure`` returns, which is then kept.

    Args:
        kept: a json file, which need not be there.
        made_from: everything that the values depend on, as json can hold it.
        measure: makes the values.
    """
    key = as_json(made_from)
    found = json_object_or_none(kept) or {}
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # another program's file
        if found["key"] == key:
            return {name: float(value) for name, value in found["means"].items()}
    values = measure()
    write_whole(kept, json.dumps({"key": key, "means": values}))
    return values


def stamp(file: Path) -> dict[str, int]:
    """Size and time of a checkpoint: what distinguishes it from another of the same name.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such checkpoint")
    status = file.stat()
    return {"size": status.st_size, "time": status.st_mtime_ns}


def file_for(folder: Path, made_from: Mapping[str, Any]) -> Path:
    """A file in ``folder`` for what is made from this, and for nothing else."""
    text = json.dumps(made_from, sort_keys=True)
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
