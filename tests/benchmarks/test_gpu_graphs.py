"""benchmarks/gpu_graphs.py, on the emulated GPU, where recorded operations stand for graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated_gpu import POSSIBLE, emulated
from recorded_graphs import Recording
from support import ScriptMain

from fairseq_adv.criterions import step_graphs

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
def test_a_rehearsal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(step_graphs, "Capturing", Recording)
    with emulated():
        done = ScriptMain(BENCHMARKS / "gpu_graphs.py", capsys)("time", "equal", "--tiny")
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    timed = [row for row in rows if row[0] in ("`freelb`", "`pgd`", "`alum_vat`", "`standard`")]
    assert [row[0] for row in timed] == ["`freelb`", "`pgd`", "`alum_vat`", "`standard`", "`freelb`"]
    assert all(int(row[-1]) >= 1 for row in timed)
    ends = [row for row in rows if row[0] in ("classes", "masked LM")]
    assert len(ends) == 7 and {cell for row in ends for cell in row[2:6]} == {"0, to the bit"}
    assert all(int(row[-1]) >= 1 for row in ends)
