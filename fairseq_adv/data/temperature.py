"""The temperature of a trained model, in a file beside its checkpoint: its logits are divided by it. For
several labels a text the thresholds of the labels.

``fairseq-adv validate --calibrate`` writes them. A temperature changes probabilities, and no answer;
thresholds change answers. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Mapping

from fairseq_adv.data.checked_json import TEXT, FieldType, checked_object, is_number, json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, decoded, digest_of_model

logger = logging.getLogger(__name__)

LOWEST, HIGHEST = 0.05, 20.0
TEMPERATURE: FieldType = (
    f"a number from {LOWEST} to {HIGHEST:g}",
    lambda value: is_number(value) and LOWEST <= value <= HIGHEST,
)
THRESHOLDS: FieldType = (
    "numbers between 0 and 1 by the names of labels",
    lambda value: isinstance(value, dict) and all(is_number(one) and 0 < one < 1 for one in value.values()),
)
_MOST = 1 << 20  # bytes
IN_CONFIG = {"temperature": "fairseq_adv_temperature", "thresholds": "fairseq_adv_thresholds"}
"""Keys in config.json of a folder that ``fairseq-adv export`` wrote."""


def temperature_file(checkpoint: Path) -> Path:
    """Where the temperature of a checkpoint, or of a model folder, is: beside it."""
    return _beside(checkpoint, "temperature")


def thresholds_file(checkpoint: Path) -> Path:
    """Where the thresholds of its labels are, likewise."""
    return _beside(checkpoint, "thresholds")


def _beside(checkpoint: Path, what: str) -> Path:
    named = checkpoint if checkpoint.name else checkpoint.absolute()  # "." has no name
    return named.with_name(f"{named.name}.{what}.json")


def save_temperature(checkpoint: Path, temperature: float, about: Mapping[str, Any]) -> Path:
    """Writes the file.

    Args:
        about: what it was fitted on, for people.
    """
    return _save(temperature_file(checkpoint), checkpoint, {"temperature": temperature, **about})


def save_thresholds(checkpoint: Path, thresholds: Mapping[str, float], about: Mapping[str, Any]) -> Path:
    """Writes the thresholds of labels likewise."""
    return _save(thresholds_file(checkpoint), checkpoint, {"thresholds": dict(thresholds), **about})


def _save(path: Path, checkpoint: Path, content: Mapping[str, Any]) -> Path:
    atomic_write(path, json.dumps({"checkpoint": digest_of_model(checkpoint), **content}, indent=2) + "\n")
    return path


def read_temperature(checkpoint: Path) -> float:
    """Reads a checkpoint's temperature, or that in config.json of a folder that it was exported to; 1, with a
    warning, if it was fitted for an earlier one of this name.

    Raises:
        DataError: the file was not written by :func:`save_temperature`.
    """
    return float(_read(temperature_file(checkpoint), checkpoint, "temperature", TEMPERATURE, 1.0))


def read_thresholds(checkpoint: Path) -> dict[str, float]:
    """Reads the thresholds of labels likewise; they are empty if there are none, which means .5."""
    return dict(_read(thresholds_file(checkpoint), checkpoint, "thresholds", THRESHOLDS, {}))


def _read(path: Path, checkpoint: Path, name: str, field_type: FieldType, default: Any) -> Any:
    config = checkpoint / "config.json"
    if config.is_file() and IN_CONFIG[name] in (values := json_object(config)):
        default = values[IN_CONFIG[name]]
        what, is_one = field_type
        if not is_one(default):
            raise DataError(f"{config}: {IN_CONFIG[name]} is not {what}. Remove it there")
    if not path.is_file():
        return default
    with path.open("rb") as file:
        text = decoded(file.read(_MOST), path)
    again = "Remove it, or write it again with fairseq-adv validate --calibrate."
    content = checked_object(text, {name: field_type, "checkpoint": TEXT}, str(path), again)
    if content["checkpoint"] != digest_of_model(checkpoint):
        logger.warning("%s: belongs to another checkpoint of this name, so it isn't used. %s", path, again)
        return default
    return content[name]
