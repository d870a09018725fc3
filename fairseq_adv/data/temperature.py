"""The temperature of a trained model, in a file beside its checkpoint: its logits are divided by it.

``fairseq-adv validate --calibrate`` writes it. It changes probabilities, and no answer. Imports neither torch
nor fairseq.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Mapping

from fairseq_adv.data.checked_json import TEXT, FieldType, checked_object, is_number
from fairseq_adv.data.io import atomic_write, decoded, sha256_of

logger = logging.getLogger(__name__)

LOWEST, HIGHEST = 0.05, 20.0
TEMPERATURE: FieldType = (
    f"a number from {LOWEST} to {HIGHEST:g}",
    lambda value: is_number(value) and LOWEST <= value <= HIGHEST,
)
_MOST = 1 << 16  # bytes


def temperature_file(checkpoint: Path) -> Path:
    """Where the temperature of a checkpoint is."""
    return checkpoint.with_name(f"{checkpoint.name}.temperature.json")


def save_temperature(checkpoint: Path, temperature: float, about: Mapping[str, Any]) -> Path:
    """Writes the file.

    Args:
        about: what it was fitted on, for people.
    """
    path = temperature_file(checkpoint)
    content = {"temperature": temperature, "checkpoint": sha256_of(checkpoint), **about}
    atomic_write(path, json.dumps(content, indent=2) + "\n")
    return path


def read_temperature(checkpoint: Path) -> float:
    """The temperature of a checkpoint; 1, with a warning, if that was fitted for an earlier one of its name.

    Raises:
        DataError: the file was not written by :func:`save_temperature`.
    """
    path = temperature_file(checkpoint)
    if not path.is_file():
        return 1.0
    with path.open("rb") as file:
        text = decoded(file.read(_MOST), path)
    again = "Remove it, or write it again with fairseq-adv validate --calibrate."
    content = checked_object(text, {"temperature": TEMPERATURE, "checkpoint": TEXT}, str(path), again)
    if content["checkpoint"] != sha256_of(checkpoint):
        logger.warning("%s: belongs to another checkpoint of this name, so it isn't used. %s", path, again)
        return 1.0
    return float(content["temperature"])
