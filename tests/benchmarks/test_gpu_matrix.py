"""benchmarks/gpu_matrix.py: cells are really run, compared, kept and tabulated; a wrong one is told."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from emulated_gpu import POSSIBLE
from methods import METHODS
from support import ScriptMain, slow

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ONE = ["--methods", "yopo", "--precisions", "fp32", "--modes", "update-freq"]


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> ScriptMain:
    """The command on a machine without a GPU."""
    command = ScriptMain(BENCHMARKS / "gpu_matrix.py", capsys)
    runs = sys.modules["mode_runs"]
    plain = runs.this_machine
    monkeypatch.setattr(
        command.module,
        "this_machine",
        lambda emulated: plain(True) if emulated else runs.Machine(False, 0, "CPU", "2.0"),
    )
    return command


def kept(out: Path, name: str, folder: str = "cells") -> dict[str, Any]:
    return json.loads((out / folder / f"{name}.json").read_text())  # type: ignore[no-any-return]


def row(text: str, *begin: str) -> list[str]:
    """The fields of the methods in a line of the table, after those that it begins with."""
    lines = [line for line in text.splitlines() if line.startswith("| " + " | ".join(begin))]
    assert len(lines) == 1, text
    return [field.strip() for field in lines[0].split("|")[3:-1]]


@pytest.mark.slow  # the updates: tests/gpu
@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
@pytest.mark.parametrize(
    ("method", "words"),
    [("freelb", ["--precisions", "fp16", "--modes", "single"]), *(slow(name, []) for name in METHODS)],
)
def test_cells_on_the_emulated_gpu(tmp_path: Path, main: ScriptMain, method: str, words: list[str]) -> None:
    """Nightly in every precision and mode."""
    done = main(tmp_path, "--emulate", "--methods", method, *words)
    assert done.returncode == 0, done.stderr
    found = {path.stem: kept(tmp_path, path.stem, "emulated") for path in tmp_path.glob("emulated/*.json")}
    assert len(found) == (2 if words else 30) and not list(tmp_path.glob("cells/*"))
    refused = {name for name, result in found.items() if result["state"] not in ("ok", "reference")}
    assert refused == {name for name in found if name.startswith("infobert") and "checkpoint" in name}
    fp16 = row(done.stdout, "`--fp16`", "1 process")
    assert fp16[list(sys.modules["mode_cells"].METHODS).index(method)] == "emulated"
    assert "tests/emulated_command.py fairseq-train" in found[f"{method}-fp16-single"]["command"][0]


@pytest.mark.fast
def test_the_table_of_cells_from_two_machines(tmp_path: Path, main: ScriptMain) -> None:
    cpu = {"cuda": False, "device": "CPU", "torch": "2.0"}
    gpu = {"cuda": True, "device": "H200", "torch": "2.1"}
    made = {
        "standard-fp32-single": {**cpu, "state": "reference"},
        "standard-fp32-update-freq": {**cpu, "state": "ok", "distance": 2e-7},
        "freelb-fp32-update-freq": {**gpu, "state": "ok", "distance": 3e-6},
        "freelb-amp-pytorch_ddp": {**gpu, "state": "failed", "why": "RuntimeError: a | b"},
        "pgd-amp-pytorch_ddp": {**gpu, "state": "failed", "why": "RuntimeError: a | b"},
        "smart-amp-single": {**gpu, "state": "refused", "why": "error: --store-ema"},
    }
    emulated = {"cuda": True, "device": "emulated GPU", "torch": "2.2", "state": "ok", "distance": 1e-3}
    emulated = {
        "standard-fp32-update-freq": emulated,  # it has been run as well
        "pgd-fp16-single": emulated,
        "smart-fp16-single": {**emulated, "state": "failed", "why": "RuntimeError: c"},
        "noise-fp32-single": {**gpu, "device": "emulated GPU", "torch": "2.2", "state": "reference"},
    }
    where = {
        **{f"cells/{k}": v for k, v in made.items()},
        **{f"emulated/{k}": v for k, v in emulated.items()},
    }
    for name, result in where.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- mode matrix: begin -->\nold\n<!-- mode matrix: end -->\nafter\n")
    words = [tmp_path, "--precisions", "amp", "fp16"]  # nothing that a CPU can run
    done = main(*words, "--into", page)
    assert done.returncode == 1
    missing, methods = "not yet run", list(sys.modules["mode_cells"].METHODS)
    rest = len(methods) - 2
    single = row(done.stdout, "fp32", "1 process")
    assert single[:2] == ["reference cpu", missing] and single.count(missing) == rest
    assert single[methods.index("noise")] == "reference, emulated"
    assert row(done.stdout, "fp32", "`--update-freq 2`") == ["✓ cpu", "✓"] + [missing] * rest
    amp = "`--amp` on GPUs (fp16 autocast)"
    ddp = row(done.stdout, amp, "2 processes, `--ddp-backend pytorch_ddp`")
    assert ddp == [missing, "failed [3]", "failed [3]"] + [missing] * (rest - 1)
    assert row(done.stdout, amp, "1 process")[methods.index("smart")] == "refused [2]"
    fp16 = row(done.stdout, "`--fp16`", "1 process")
    assert fp16[methods.index("pgd")] == "emulated" and fp16[methods.index("smart")] == "failed, emulated [1]"
    assert row(done.stdout, "`--memory-efficient-fp16`") == [missing, ""] + [""] * rest
    assert "emulated: as ✓" in done.stdout
    assert row(done.stdout, "`--amp` on CPUs (bf16 autocast)", "all 5")[0] == missing
    assert "- [2] error: --store-ema" in done.stdout and "- [3] RuntimeError: a \\| b" in done.stdout
    assert "run on: CPU (torch 2.0), H200 (torch 2.1), emulated GPU (torch 2.2)" in done.stdout
    assert "fp32: largest distance 3.0e-06" in done.stdout and "tolerance 0.0001" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert done.stdout.strip() in text

    listed = main(*words, "--list")
    assert listed.returncode == 0
    states = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines())
    assert len(states) == 2 * 6 * len(methods)
    assert states["pgd-amp-pytorch_ddp"] == "failed (H200, torch 2.1)"
    assert states["pgd-fp16-single"] == "ok (emulated GPU, torch 2.2)"
    assert states["pgd-fp16-layerdrop"] == "not yet run (needs a GPU)"


@pytest.mark.timing
def test_a_process_that_fails_ends_the_other(tmp_path: Path, main: ScriptMain) -> None:
    """The first would wait for ever; what is told is the error of the second, or that the time is over."""
    module = sys.modules["mode_runs"]
    python = [sys.executable, "-c"]
    sleep = [*python, "import time; time.sleep(600)"]
    wrong = [*python, "raise ValueError('--lr 5: too large')"]
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    begin, stop = time.monotonic(), threading.Event()
    with pytest.raises(module.RunFailed, match=r"^ValueError: --lr 5: too large$"):
        module.run_side_by_side([sleep, wrong], logs, 60, stop)
    with pytest.raises(module.RunFailed, match="not done after 1 seconds"):
        module.run_side_by_side([sleep], logs, 1, stop)
    stop.set()
    with pytest.raises(module.RunFailed, match="stopped"):
        module.run_side_by_side([sleep], logs, 60, stop)
    assert time.monotonic() - begin < 50
