"""benchmarks/peers.py: what a turn is, ratios, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from emulated_gpu import POSSIBLE, emulated
from support import slow

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import peers
import peers_sides


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["random:two"], "random:two: pass random:TOKENS"),
        (["nowhere.all"], "--encoder: pass the folder"),
        (["nowhere.all", "--encoder", "."], "nowhere.all: pass a file of lines"),
        (["random:8", "--sides", "hf-eager-amp", "--precision", "bf16"], "leave --precision bf16 out"),
    ],
)
def test_a_mistake_is_named(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert peers.main(words) == 2
    assert message in capsys.readouterr().err


def test_a_turn_has_the_epochs_lengths() -> None:
    """A mini-batch of each part of the epoch, all over it in the turns, and their mean is the epoch's."""
    seen: list[list[int]] = []
    lengths = np.arange(80)
    batches = peers_sides.by_length([[i, i + 1] for i in range(0, 80, 2)][::-1], lengths)
    side = peers_sides.Side(batches, seen.append, lengths)
    places = []
    for turn in range(8):
        seen.clear()
        sentences, _ = side.sentences_and_seconds(4, turn)
        assert sentences == 8
        numbers = [batch[0] // 2 for batch in seen]
        assert [number // 10 for number in numbers] == [0, 1, 2, 3] and np.mean(numbers) == 19.5
        places.append(numbers[0])
    assert len(set(places)) > 6


@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
@pytest.mark.parametrize("precision", ["fp16", slow("bf16")])
def test_our_sides_run_in_half_precision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], precision: str
) -> None:
    monkeypatch.setitem(peers_sides.MODELS, "minilm", (1, 8, 8, 1, 50))
    words = ["random:6", "--precision", precision, "--sides", *peers_sides.FAIRSEQ, "--sentences", "2"]
    with emulated():
        status = peers.main([*words, "--updates", "1", "--rounds", "1"])
    assert status == 0, capsys.readouterr().err


@pytest.mark.slow  # encoders of MiniLM's size
def test_ours_and_theirs_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ["freelb-amp", "standard-amp", "hf-eager-amp"]
    words = ["random:8", "--sides", "freelb", "standard", "fairseq", "hf-eager", *mixed]
    assert peers.main([*words, "--sentences", "2", "--updates", "1", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    pairs = [("freelb", "hf-eager"), ("standard", "fairseq"), ("freelb-amp", "hf-eager-amp")]
    for ours, theirs in pairs:
        assert f"| `{ours}` / `{theirs}` |" in said
