"""benchmarks/peers.py: what a turn is, ratios, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from emulated_gpu import POSSIBLE, emulated
from support import slow

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import measuring
import peers
import peers_sides
import update_cost


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


def test_each_length_comes_once_before_times_count_on_a_gpu() -> None:
    seen: list[list[int]] = []
    batches, lengths = [[0, 1], [2], [3, 1], [1]], np.array([4, 7, 5, 6])
    for on_gpu, expected in ((False, []), (True, [5, 7])):
        peers_sides.Side(batches, seen.append, lengths, on_gpu).warm_up()
        assert sorted(lengths[batch].max() for batch in seen) == expected


def test_the_share_of_real_tokens() -> None:
    side = peers_sides.Side([[0, 1], [2]], lambda batch: None, np.array([2, 4, 5]))
    assert side.real_share() == pytest.approx(11 / 13)


@pytest.mark.skipif(not POSSIBLE, reason="needs a torch from 2.4 on, and no GPU")
@pytest.mark.parametrize("precision", ["fp16", slow("bf16")])
def test_our_sides_run_in_half_precision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], precision: str
) -> None:
    monkeypatch.setitem(peers_sides.MODELS, "minilm", (1, 8, 8, 1, 50))
    words = ["random:6", "--precision", precision, "--sides", *peers_sides.FAIRSEQ, "--sentences", "2"]
    with emulated():
        status = peers.main([*words, "--updates", "1", "--rounds", "1"])
    assert status == 0, capsys.readouterr().err


class CountedMemory:
    """torch.cuda's numbers for a GPU on which a pass takes ``PASS`` bytes that are free again after it."""

    PASS, RESIDENT = 7 << 20, 2 << 20

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peak = self.RESIDENT
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: self.RESIDENT)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: self.peak)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)

    def reset(self, *_: object) -> None:
        self.peak = self.RESIDENT

    def makes_a_pass(self, *_: object) -> None:
        self.peak = self.RESIDENT + self.PASS


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedMemory]:
    """On the emulated GPU, with encoders whose forward passes it counts."""
    monkeypatch.setitem(measuring.MODELS, "minilm", (1, 8, 8, 1, 50))
    with emulated():
        memory = CountedMemory(monkeypatch)
        build = measuring.build_trainer

        def counted(*args: Any) -> Any:
            trainer = build(*args)
            trainer.model.register_forward_hook(memory.makes_a_pass)
            return trainer

        for module in (peers_sides, update_cost):
            monkeypatch.setattr(module, "build_trainer", counted)
        yield memory
        monkeypatch.undo()


@pytest.mark.skipif(not POSSIBLE, reason="needs a torch from 2.4 on, and no GPU")
@pytest.mark.parametrize("name", ["fairseq", "standard"])
def test_peaks_of_a_gpu_are_those_within_an_update(memory: CountedMemory, tmp_path: Path, name: str) -> None:
    """fairseq's trainer resets torch's peak at the end of each update."""
    measuring.write_words(tmp_path / "input0", 50, 6, 2)
    measuring.write_labels(tmp_path, 2)
    one = update_cost.Side(name, update_cost.parser().parse_args(["--rows", "2"]), tmp_path)
    assert measuring.peak_memory(one.trainer) == 2
    one.seconds()
    assert measuring.peak_memory(one.trainer) == 9
    other = peers_sides.fairseq_side(name, peers.parser().parse_args(["random:6"]), tmp_path)
    other.first_update(before=0)
    assert (other.resident, other.peak) == (2 << 20, 0)
    other.sentences_and_seconds(updates=1, turn=0)
    assert other.peak == 9 << 20


@pytest.mark.slow  # encoders of MiniLM's size
def test_ours_and_theirs_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ["freelb-amp", "standard-amp", "hf-eager-amp"]
    words = ["random:8", "--sides", "freelb", "standard", "fairseq", "hf-eager", *mixed]
    assert peers.main([*words, "--sentences", "2", "--updates", "1", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    pairs = [("freelb", "hf-eager"), ("standard", "fairseq"), ("freelb-amp", "hf-eager-amp")]
    for ours, theirs in pairs:
        assert f"| `{ours}` / `{theirs}` |" in said


@pytest.mark.slow  # encoders of MiniLM's size
def test_sides_in_mixed_precision_compute_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU; the same sides without it compute in fp32."""
    linear, first = torch.nn.functional.linear, peers_sides.Side.first_update
    now: set[torch.dtype] = set()
    seen: list[set[torch.dtype]] = []

    def watched(*args: Any) -> torch.Tensor:
        y = linear(*args)
        now.add(y.dtype)
        return y

    def update(side: peers_sides.Side, before: int) -> None:
        now.clear()
        first(side, before)
        seen.append(set(now))

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    monkeypatch.setattr(peers_sides.Side, "first_update", update)
    words = ["--sides", "standard-amp", "standard", "hf-sdpa-amp", "hf-sdpa", "--sentences", "2"]
    assert peers.main(["random:8", *words, "--updates", "1", "--rounds", "1"]) == 0
    assert seen == [{torch.bfloat16}, {torch.float32}] * 2
