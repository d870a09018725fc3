"""Scores made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairseq_adv.evaluation.predict.ensemble import Scores

NONE = -np.inf


def classes(name: str = "a", **changes: object) -> Scores:
    log_probs = np.log(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], dtype=np.float32))
    scores = Scores(
        "classes", "RTE", "test", np.array(["0", "1", "2"]), np.array([["yes", "no"]]), log_probs, log_probs,
        np.array(["", "no", "yes"]), {"checkpoint": name}, name,
    )  # fmt: skip
    return replace(scores, **changes)  # type: ignore[arg-type]


def choices(labels: list[list[str]], values: list[list[float]], name: str = "a", **changes: object) -> Scores:
    raw = np.array(values, dtype=np.float32)
    ids = np.array([f"q{i}" for i in range(len(labels))])
    gold = np.full(len(labels), "")
    scores = Scores("choices", "arc", "test", ids, np.array(labels), raw, raw, gold, {}, name)
    return replace(scores, **changes)  # type: ignore[arg-type]
