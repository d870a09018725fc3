"""On a GPU: ``python -m pytest -m gpu tests/gpu``. Where there is none, on the emulated one."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from emulated_gpu import emulated
from fairseq.logging import metrics
from methods import METHODS
from support import batch, build, flat_gradient, train_args, write_task

from fairseq_adv.perturbation import DropoutReplay, geometry

pytestmark = pytest.mark.gpu
# Of passes that end after the first layer; less that of an update with a log.
MORE_PASSES = {"yopo": 2, "alum_vat": -1}
TRIED = ["standard", "freelb", "pgd", "yopo", "tavat", "infobert", "alum_vat"]
OWN = {"tavat": 1, "infobert": 1}  # which words the update had; the seed of its draws


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU, if need be an emulated one, without TF32: its gradients are compared with a CPU's."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    if torch.cuda.is_available():
        yield
        return
    with emulated():
        yield


def on_gpu(folder: Path, criterion: str, words: Sequence[str], *more: str) -> SimpleNamespace:
    """A run in fairseq's trainer on the GPU, after its first update."""
    args = train_args(write_task(folder), None, criterion, *words, "--log-interval", "1000", *more)
    run = build([word for word in args if word != "--cpu"])
    run.trainer.begin_epoch(1)
    metrics.reset()
    run.trainer.train_step([batch(run, [0, 1, 2])])
    return run


def waits(run: SimpleNamespace) -> int:
    """How often torch says that an update has waited for the GPU."""
    sample = batch(run, [0, 1, 2])
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run.trainer.train_step([sample])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in said)


@cache
def waits_of_fairseqs_own() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return waits(on_gpu(Path(folder) / "own", "sentence_prediction", []))


@pytest.mark.parametrize("method", TRIED)
def test_an_update_waits_once_more_than_fairseqs_own_passes(tmp_path: Path, method: str) -> None:
    words, passes = METHODS[method].words, METHODS[method].forwards + MORE_PASSES.get(method, 0)
    own = waits_of_fairseqs_own() + OWN.get(method, 0)
    two_a_pass = 2  # the encoder's
    assert waits(on_gpu(tmp_path / "ours", method, words)) <= own + (passes - 1) * two_a_pass + 1


@pytest.mark.parametrize("method", ["standard", "freelb", "pgd", "yopo", "tavat"])
def test_the_gradient_is_the_cpus(tmp_path: Path, method: str) -> None:
    """Without noise, which each device draws for itself."""
    words = [*METHODS[method].words, *(["--adv-init-mag", "0"] if method != "standard" else [])]
    gradients = []
    for name, drop in (("cpu", ()), ("cuda", ("--cpu",))):
        args = train_args(write_task(tmp_path / name), None, method, *words)
        run = build([word for word in args if word not in drop])
        sample = run.trainer._prepare_sample(batch(run, [0, 1, 2]))[0]
        run.task.train_step(sample, run.trainer.model, run.criterion, run.trainer.optimizer, 0)
        gradients.append(flat_gradient(run.model).cpu())
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-5)


def test_dropout_masks_are_repeated() -> None:
    x = torch.ones(64, 64, device="cuda")
    replay = DropoutReplay([x.device], enabled=True)
    masks = []
    for _ in range(3):
        with replay:
            masks.append(torch.nn.functional.dropout(x, 0.5))
    assert torch.equal(masks[0], masks[1]) and torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], torch.nn.functional.dropout(x, 0.5))


def test_noise_lies_on_real_tokens_and_is_drawn_by_its_seed() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]], device="cuda")
    start = geometry.uniform_start(mask, 8, 0.5, [3, 4], "l2")
    assert (start[~mask] == 0).all() and (start[mask] != 0).all()
    assert torch.equal(start, geometry.uniform_start(mask, 8, 0.5, [3, 4], "l2"))
    swapped = geometry.uniform_start(mask, 8, 0.5, [4, 3], "l2")
    assert not torch.equal(start[0], swapped[0])
