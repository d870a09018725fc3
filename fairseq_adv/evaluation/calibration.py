"""How far probabilities can be trusted, and the temperature that makes them so. Imports no torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from fairseq_adv.data.temperature import HIGHEST, LOWEST


def expected_calibration_error(
    probabilities: npt.NDArray[Any], right: npt.NDArray[Any], bins: int = 15
) -> float:
    """The mean distance of confidence and accuracy, over bins of equal width (Guo et al., ICML 2017, eq. 3).

    Args:
        probabilities: (n, C) of each class.
        right: (n,) the right class.
    """
    sure, is_right = probabilities.max(1), probabilities.argmax(1) == right
    place = np.minimum((sure * bins).astype(int), bins - 1)
    return float(abs(np.bincount(place, is_right - sure, bins)).sum() / len(right))


def softmax(logits: npt.NDArray[Any], temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """(n, C) fp64 probabilities of logits, or log-probabilities, divided by the temperature; 0 for -inf."""
    found: npt.NDArray[np.float64] = special.softmax(logits.astype(np.float64) / temperature, axis=1)
    return found


def fit_temperature(logits: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The temperature with the smallest mean cross-entropy, from ``LOWEST`` to ``HIGHEST`` (Guo et al., 4.2).

    The loss is convex in 1 / T.

    Args:
        logits: (n, C).
        right: (n,) the right class.

    Raises:
        ValueError: a logit is not finite.
    """
    if not np.isfinite(logits).all():
        raise ValueError("the logits are not finite")
    logits = logits.astype(np.float64)
    rows = np.arange(len(right))

    def loss(inverse: float) -> float:
        return -float(special.log_softmax(inverse * logits, axis=1)[rows, right].mean())

    from scipy import optimize  # slow to import

    bounds = (1 / HIGHEST, 1 / LOWEST)
    return 1 / float(optimize.minimize_scalar(loss, bounds=bounds, options={"xatol": 1e-9}).x)
