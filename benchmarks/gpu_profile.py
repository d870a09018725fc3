#!/usr/bin/env python3
"""Where one update of a method spends its time: kernels, launches, and waits of the host for the GPU.

Profiles one update of a side of peers.py, on a mini-batch of middle length, after others that warm up. On a
CPU there are only the operations. The trace opens in chrome://tracing or https://ui.perfetto.dev.

Example: benchmarks/gpu_profile.py random:128 --model base --precision bf16 --trace out/trace.json.gz
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import peers
from peers_sides import COMPILED, FAIRSEQ, MIXED, Side, fairseq_side, plain_name

from fairseq_adv.cli.script import count, exit_status

LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")  # cudaDeviceSynchronize is profiled()'s own
WARM_UP, TIMED = 3, 5


def parser() -> argparse.ArgumentParser:
    """peers.py's options for data and encoder, and this program's own."""
    options = peers.parser()
    options.description = __doc__
    options.add_argument(
        "--side",
        choices=[*FAIRSEQ, *(name for name in (*MIXED, *COMPILED) if plain_name(name) in FAIRSEQ)],
        default="freelb",
        help="what to profile (default: freelb)",
    )
    options.add_argument("--trace", type=Path, help="also write the trace to this file, .json or .json.gz")
    options.add_argument("--lines", type=count, default=20, help="rows of each table (default: 20)")
    return options


def on_gpu(event: Any) -> bool:
    """Whether it is the GPU's own work, a kernel or a copy, and no range that record_function marks."""
    return str(event.device_type).endswith("CUDA") and not getattr(event, "is_user_annotation", False)


def gpu_ms(event: Any) -> float:
    """Milliseconds on the GPU."""
    return float(event.self_device_time_total) / 1e3


def host_ms(event: Any) -> float:
    """Milliseconds on the host, without what it called."""
    return float(event.self_cpu_time_total) / 1e3


def summary(events: Sequence[Any], update_ms: float, lines: int) -> list[str]:
    """The tables.

    Args:
        events: ``key_averages()`` of a profile of one update.
        update_ms: milliseconds of an update without the profiler.
        lines: rows of each table.
    """
    kernels = [event for event in events if on_gpu(event)]
    calls = [event for event in events if not str(event.device_type).endswith("CUDA")]
    busy = sum(map(gpu_ms, kernels))

    def called(names: tuple[str, ...]) -> int:
        return sum(int(event.count) for event in calls if event.key.startswith(names))

    operations = sum(int(event.count) for event in calls if event.key.startswith("aten::"))
    text = [
        f"An update takes {update_ms:.1f} ms and dispatches {operations} operations, nested ones included."
    ]
    if kernels:
        text[0] += (
            f" The GPU is busy for {busy:.1f} ms of it ({100 * busy / update_ms:.0f} %), with "
            f"{called(LAUNCHES)} launches and {called(WAITS)} waits of the host."
        )
        text += ["", *_table("kernel", kernels, gpu_ms, lines)]
    return [*text, "", *_table("host", calls, host_ms, lines)]


def _table(what: str, events: Sequence[Any], cost: Callable[[Any], float], lines: int) -> list[str]:
    costly = sorted(events, key=cost, reverse=True)[:lines]
    rows = [f"| `{event.key[:80]}` | {event.count} | {cost(event):.2f} |" for event in costly]
    return [f"| {what} | times | ms |", "|---|---|---|", *rows]


def profiled(side: Side, trace: Path | None) -> tuple[Sequence[Any], float]:
    """(the averages of a profile of one update, milliseconds of an update without it)."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    batch = side.batches[len(side.batches) // 2]
    times = []
    for _ in range(WARM_UP + TIMED):
        started = side.clock()
        side.update(batch)
        times.append(1e3 * (side.clock() - started))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        side.update(batch)
        side.clock()  # waits for the GPU
    if trace is not None:
        profiler.export_chrome_trace(str(trace))
    return profiler.key_averages(), statistics.median(times[WARM_UP:])


def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        peers.prepare(options, folder)
        events, update_ms = profiled(fairseq_side(options.side, options, folder), options.trace)
    print(f"{options.side}, {options.model}, {options.precision}, batches of {options.sentences}\n")
    print(*summary(events, update_ms, options.lines), sep="\n")


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)
    return exit_status(lambda: measure(options))


if __name__ == "__main__":
    sys.exit(main())
