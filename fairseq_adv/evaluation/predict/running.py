"""The place of :class:`fairseq_adv.evaluation.inference.InferenceConfig` in version 0.2; it goes in 0.4."""

import warnings
from typing import Any

from fairseq_adv.evaluation.inference import InferenceConfig


def __getattr__(name: str) -> Any:
    if name != "Running":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "Running is fairseq_adv.evaluation.inference.InferenceConfig now, and will be gone in version 0.4",
        DeprecationWarning,
        2,
    )
    return InferenceConfig
