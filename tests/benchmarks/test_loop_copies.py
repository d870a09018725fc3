"""benchmarks/loop_copies.py: both sides train the same model, and the ratios that are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import loop_copies


def test_every_side_trains_the_model_and_has_a_ratio(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(loop_copies.MODELS, "small", (1, 8, 8, 1, 50))
    words = ["--model", "small", "--rows", "2", "--tokens", "6", "--rounds", "2"]
    options = loop_copies.parser().parse_args(words)
    model, batch = loop_copies.build(options)
    for compared in loop_copies.sides(model, batch, options.steps).values():
        for side in compared.values():
            model.zero_grad()
            side()
            assert all(weight.grad is not None for weight in model.parameters())
    seconds = iter([9.0, 9.0, 9.0, 9.0, 1.0, 3.0, 2.0, 6.0, 2.0, 3.0, 1.0, 5.0])  # ours first, then the copy
    monkeypatch.setattr(loop_copies.time, "process_time", lambda: next(seconds))
    sides = {"ours": lambda: None, "copy": lambda: None}
    assert loop_copies.turns(model, sides, 2) == {"ours": [4.0, 1.0], "copy": [2.0, 4.0]}
    monkeypatch.undo()
    monkeypatch.setitem(loop_copies.MODELS, "small", (1, 8, 8, 1, 50))
    assert loop_copies.main(words) == 0
    told = capsys.readouterr().out
    assert told.count("ours/") == 4 and "pgd: ours/of the table: median" in told
