"""GLUE's scores against scikit-learn, and by hand."""

from __future__ import annotations

import math
from typing import Callable

import numpy as np
import pytest
from sklearn import metrics as sk

from fairseq_adv.objectives import scores

pytestmark = pytest.mark.fast


def counts(predicted: np.ndarray, labels: np.ndarray, classes: int) -> tuple[float, list[float], list[float]]:
    return (
        float((predicted == labels).sum()),
        np.bincount(predicted, minlength=classes).tolist(),
        np.bincount(labels, minlength=classes).tolist(),
    )


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_matthews_equals_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for _ in range(20):
        labels = rng.integers(0, classes, 200)
        predicted = np.where(rng.random(200) < 0.6, labels, rng.integers(0, classes, 200))
        ours = scores.matthews(*counts(predicted, labels, classes))
        assert ours == pytest.approx(100 * sk.matthews_corrcoef(labels, predicted), abs=1e-9)


def test_by_hand() -> None:
    assert scores.f1(1, 2, 2) == 50.0
    assert scores.matthews(4, [2.0, 2.0], [2.0, 2.0]) == pytest.approx(100.0)
    assert scores.matthews(0, [2.0, 2.0], [2.0, 2.0]) == pytest.approx(-100.0)


def test_undefined_scores_are_zero_as_in_scikit_learn() -> None:
    assert scores.f1(0, 0, 0) == 0.0
    assert scores.matthews(3, [5.0, 0.0], [3.0, 2.0]) == 0.0
    assert scores.pearson(np.ones(3), np.arange(3.0)) == 0.0


@pytest.mark.parametrize("score", [scores.pearson, scores.spearman])
def test_a_correlation_with_a_nan_is_nan(score: Callable[[np.ndarray, np.ndarray], float]) -> None:
    """Not 0, nor the 50 of a NaN that is ranked last."""
    good, bad = np.array([1.0, 2.0, 3.0]), np.array([1.0, math.nan, 3.0])
    assert math.isnan(score(bad, good)) and math.isnan(score(good, bad))
