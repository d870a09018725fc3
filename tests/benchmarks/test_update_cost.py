"""benchmarks/update_cost.py: its table, on a CPU and on the emulated GPU."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from emulated_gpu import POSSIBLE, emulated

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import measuring
import update_cost

WORDS = "--task masked-lm --model thin --rows 2 --tokens 16 --rounds 1 --sides fairseq alum_vat smart"


@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
@pytest.mark.parametrize("gpu", [False, True])
def test_a_gpu_has_a_column_of_its_utilisation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gpu: bool
) -> None:
    monkeypatch.setattr(sys, "argv", ["update_cost.py", *WORDS.split()])
    monkeypatch.setattr(update_cost, "memory", lambda side: "1")  # of a process without the emulated GPU
    monkeypatch.setattr(measuring, "PEAK", 1e9)
    monkeypatch.setitem(measuring.MODELS, "thin", (2, 32, 128, 4, 1000))
    with emulated() if gpu else nullcontext():
        assert update_cost.main() == 0
    head, _, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    cells = {row.split("`")[1]: row.strip("| ").split(" | ") for row in rows}
    assert list(cells) == ["fairseq", "standard", "alum_vat", "smart"]
    assert {len(row) for row in cells.values()} == {len(head.strip("| ").split(" | "))} == {5 + gpu}
    if not gpu:
        return
    assert cells["smart"][-1] == "–"
    for name, method in (("fairseq", "standard"), ("standard", "standard"), ("alum_vat", "alum_vat")):
        seconds = float(cells[name][1].split()[1])
        expected = 100 * 2 * 16 * measuring.operations("thin", method, 16) / seconds / 1e9
        assert float(cells[name][-1].removesuffix(" %")) == pytest.approx(expected, abs=0.06, rel=0.01)


@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
def test_each_side_computes_as_its_users_runs_do(tmp_path: Path) -> None:
    """Ours leave cuDNN's attention out and have TF32, which no trainer of a benchmark's own would set."""
    options = update_cost.parser().parse_args(WORDS.split())
    measuring.write_words(tmp_path / "data", measuring.MODELS["thin"][4], 16, 2)
    with emulated():
        sides = {name: update_cost.Side(name, options, tmp_path / "data") for name in ("standard", "fairseq")}
        for name in [*sides, *sides]:
            sides[name].seconds()
            is_ours = name == "standard"
            assert torch.backends.cuda.cudnn_sdp_enabled() != is_ours
            assert torch.get_float32_matmul_precision() == ("high" if is_ours else "highest")
    measuring.device_settings()()


def test_a_step_does_not_reset_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[str] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: resets.append("outside"))
    step = measuring.keeping_the_peak(lambda samples: torch.cuda.reset_peak_memory_stats() or samples)
    assert step([1]) == [1] and not resets
    torch.cuda.reset_peak_memory_stats()
    assert resets
