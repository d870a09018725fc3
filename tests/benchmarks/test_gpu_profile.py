"""benchmarks/gpu_profile.py: what it says of an update, on a GPU as torch's profiler reports one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import ScriptMain

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str]) -> ScriptMain:
    return ScriptMain(BENCHMARKS / "gpu_profile.py", capsys)


def event(key: str, count: int, host: float = 0.0, gpu: float = 0.0, **changed: object) -> SimpleNamespace:
    """An average of the profiler; times in microseconds. ``aten::`` calls repeat their kernels' time."""
    kind = "CPU" if key.startswith(("aten::", "cuda", "cuLaunch")) else "CUDA"
    times = {"self_cpu_time_total": host, "self_device_time_total": gpu, **changed}
    return SimpleNamespace(key=key, count=count, device_type=f"DeviceType.{kind}", **times)


def test_the_share_of_the_gpu_is_that_of_its_kernels_and_counted_once(main: ScriptMain) -> None:
    events = [
        event("aten::mm", 40, 3000, 12000), event("aten::item", 2, 10), event("cudaLaunchKernel", 90, 900),
        event("cuLaunchKernelEx", 10, 50), event("cudaStreamSynchronize", 7, 4000),
        event("gemm", 40, 0, 12000), event("dropout", 60, 0, 3000),
        event("forward", 3, 0, 14000, is_user_annotation=True),  # the kernels' time once more
    ]  # fmt: skip
    text = main.module.summary(events, 20.0, 2)
    assert text[0] == (
        "An update takes 20.0 ms and dispatches 42 operations, nested ones included. The GPU is busy for "
        "15.0 ms of it (75 %), with 100 launches and 7 waits of the host."
    )
    assert text[2:6] == ["| kernel | times | ms |", "|---|---|---|", "| `gemm` | 40 | 12.00 |",
                         "| `dropout` | 60 | 3.00 |"]  # fmt: skip
    assert text[-2:] == ["| `cudaStreamSynchronize` | 7 | 4.00 |", "| `aten::mm` | 40 | 3.00 |"]


@pytest.mark.slow
def test_an_update_on_this_machine_and_its_trace(main: ScriptMain, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    words = ["random:6", "--side", "standard", "--sentences", "2", "--updates", "1", "--lines", "4"]
    done = main(*words, "--trace", trace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("standard, minilm, fp32, batches of 2\n\nAn update takes ")
    assert "GPU" not in done.stdout and "| `aten::mm` |" in done.stdout
    names = {one.get("name") for one in json.loads(trace.read_text())["traceEvents"]}
    assert {"aten::mm", "aten::embedding"} <= names
