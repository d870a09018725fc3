"""Every method on every objective on the emulated GPU: no operation mixes devices, few make the host wait.

The bounds are in ``updates.py``, beside each method and each objective.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path

import pytest
from emulated_gpu import POSSIBLE, Emulation, emulated
from emulated_gpu.record import Record
from methods import METHODS
from support import slow
from updates import OBJECTIVES, UPDATES, train

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
HAS_CLASSES = ("classes", "tagging")  # whose gradients have an accordance
# Operations of an update with 12 layers, by method and precision; each starts a kernel.
OPERATIONS = [("freelb", "fp16", 2800), slow("freelb", "bf16", 2800), slow("smart", "fp16", 4300)]


@pytest.fixture
def gpu() -> Iterator[Emulation]:
    with emulated() as gpu:
        yield gpu


def assert_within_bounds(gpu: Emulation, folder: Path, objective: str, method: str, waits: int) -> None:
    run = train(gpu, folder, objective, method, "--fp16")
    assert isfinite(run.values["loss"]) and run.values["loss"] > 0
    for seen in (run.update, run.logged):
        assert len(seen.waits) <= waits, [str(wait) for wait in seen.waits]
    assert len(run.validation.waits) <= OBJECTIVES[objective].waits, [str(w) for w in run.validation.waits]


@pytest.mark.parametrize("method", [m if m in (*METHODS, "accordance") else slow(m) for m in UPDATES])
def test_methods(tmp_path: Path, gpu: Emulation, method: str) -> None:
    assert_within_bounds(gpu, tmp_path, "classes", method, UPDATES[method][2])


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "classes"])
def test_objectives(tmp_path: Path, gpu: Emulation, objective: str) -> None:
    assert_within_bounds(gpu, tmp_path, objective, "freelb", METHODS["freelb"].waits)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "classes"])
@pytest.mark.parametrize("method", [name for name in UPDATES if name != "freelb"])
def test_products(tmp_path: Path, gpu: Emulation, method: str, objective: str) -> None:
    if method == "accordance" and objective not in HAS_CLASSES:
        with pytest.raises(
            ValueError, match="gradient accordance compares the gradients of different classes"
        ):
            train(gpu, tmp_path, objective, method, "--fp16")
        return
    more = 53 if method == "accordance" else 0  # of its seven classes
    assert_within_bounds(gpu, tmp_path, objective, method, UPDATES[method][2] + more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision", [[], ["--bf16"], ["--amp"], ["--fp16", "--memory-efficient-fp16"]], ids=str
)
@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
@pytest.mark.parametrize("method", UPDATES)
def test_precisions(
    tmp_path: Path, gpu: Emulation, method: str, objective: str, precision: list[str]
) -> None:
    """No operation mixes devices."""
    if method == "accordance" and objective not in HAS_CLASSES:
        pytest.skip("refused: test_products")
    run = train(gpu, tmp_path, objective, method, *precision)
    assert isfinite(run.values["loss"]) and run.values["loss"] > 0


@pytest.mark.parametrize(("method", "precision", "most"), OPERATIONS)
def test_operations(tmp_path: Path, gpu: Emulation, method: str, precision: str, most: int) -> None:
    words = [f"--{precision}", "--encoder-layers", "12", "--optimizer", "torch_adamw"]
    run = train(gpu, tmp_path, "classes", method, *words)
    assert most // 2 < sum(run.update.operations.values()) <= most


@pytest.mark.parametrize("method", ["standard", slow("freelb")])
def test_an_update_waits_once_and_only_the_step_follows(
    tmp_path: Path, gpu: Emulation, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The log is read without waiting for the optimizer's step."""
    done: list[int] = []
    plain = Record.wait

    def wait(record: Record, kind: str) -> None:
        done.extend(sum(seen.operations.values()) for seen in record.watching)
        plain(record, kind)

    monkeypatch.setattr(Record, "wait", wait)
    words = ["--bf16", "--encoder-layers", "12", "--optimizer", "torch_adamw", "--clip-norm", "1"]
    run = train(gpu, tmp_path, "classes", method, *words)
    assert len(run.update.waits) == 1
    before, all_of_them = done[2], sum(run.update.operations.values())
    assert all_of_them <= before + 25 and before > 800, (before, all_of_them)
