"""Runs with ``--amp`` on CPUs: several workers, and kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import slow

from integration.test_equal_updates import DIVISIBLE, METHODS, WRITE, assert_close, check_restart, run

AMP = "--amp"


@pytest.mark.parametrize("method", [m if m in ("freelb", "alum_vat") else slow(m) for m in DIVISIBLE])
def test_two_workers_make_the_update_of_two_micro_batches(tmp_path: Path, method: str) -> None:
    """Which round alike in bf16, so that only the fp32 sum of their gradients differs."""
    data = WRITE["sentence_prediction"](tmp_path / "data")
    words = ["--batch-size", "8"]
    parts = run(data, tmp_path / "parts", method, *words, "--update-freq", "2", AMP)
    workers = run(data, tmp_path / "workers", method, *words, AMP, workers=2)
    assert_close(workers, parts, atol=2e-6)


@pytest.mark.parametrize(
    ("method", "workers"),
    [("freelb", 2), ("alum_vat", 1),
     *(slow(method, workers) for method in METHODS for workers in (1, 2)
       if (method, workers) not in (("freelb", 2), ("alum_vat", 1)))],
)  # fmt: skip
def test_kill_9_in_mid_epoch_and_restart_equals_uninterrupted(
    tmp_path: Path, method: str, workers: int
) -> None:
    """The same bytes in every tensor, weights and moments of Adam in fp32."""
    check_restart(tmp_path, method, workers, "sentence_prediction", AMP)
