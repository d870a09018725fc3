"""``--compile``: an update with compiled layers is that of fairseq's layers, to rounding.

Some of the slow tests trace forward and backward without generating code, with dropout as in eager mode;
those with ``inductor`` in their names compile, with other masks, which are repeated to the bit.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from methods import OPTIONS
from support import batch, flat_gradient
from torch import Tensor
from torch._dynamo.utils import counters

from criterions.restated import (
    DROPOUT,
    OBJECTIVES,
    change,
    run_of,
)
from criterions.test_contract import DESCENT, LAYERDROP
from criterions.test_restated import CLASSES_ONLY
from fairseq_adv.models import compiled_layers
from fairseq_adv.perturbation import DropoutReplay, Perturbation, find_layers

# Not those whose passes differ in their weights.
REPLAYS = ["freelb", "pgd", "yopo", "tavat", "infobert", "alum_vat", "sift", "r3f", "creat"]
TRACED: dict[str, Any] = {"backend": "aot_eager"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing compiled before; ``inductor`` in a test's name keeps the compiler that users have."""
    torch._dynamo.reset()
    compiled_layers._torch_compile.cache_clear()
    counters.clear()
    if "inductor" not in request.node.name:
        monkeypatch.setattr(compiled_layers, "HOW", TRACED)
    yield
    torch._dynamo.reset()
    compiled_layers._torch_compile.cache_clear()


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def updates(run: SimpleNamespace) -> torch.Tensor:
    """What two updates with mini-batches of several lengths and sizes do to the weights."""
    return change(run, [0, 1, 2], [3, 4]) + change(run, [4, 5, 0, 1], [2, 3])


def compare(folders: dict[str, Path], objective: str, method: str, *words: str) -> SimpleNamespace:
    words = (*OPTIONS[method], *DESCENT, *words)
    eager = updates(run_of(folders, objective, method, *words))
    assert graphs() == 0
    run = run_of(folders, objective, method, *words, "--compile")
    compiled = updates(run)
    assert graphs() > 0
    assert (compiled - eager).norm() <= 1e-4 * eager.norm() > 0
    return run


@pytest.mark.slow
@pytest.mark.parametrize(("method", "objective"), list(zip(OPTIONS, itertools.cycle(OBJECTIVES))))
def test_an_update_with_dropout_is_that_of_eager_layers(
    folders: dict[str, Path], method: str, objective: str
) -> None:
    compare(folders, objective if method not in CLASSES_ONLY else "classes", method, *DROPOUT)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], LAYERDROP, ["--task", "text_classification"]], ids=" ".join)
def test_inductors_code_gives_the_same_update(folders: dict[str, Path], words: list[str]) -> None:
    compare(folders, "classes", "freelb", *words)


@pytest.mark.slow
def test_inductors_masks_are_repeated(folders: dict[str, Path]) -> None:
    """Outputs and gradients of a pass with the same masks are equal to the bit, those with others aren't."""
    run = run_of(folders, "classes", "freelb", *OPTIONS["freelb"], *DROPOUT, "--compile")
    for rows in ([0, 1, 2], [3, 4], [4, 5, 0, 1]):
        sample, found = batch(run, rows), []
        for enabled in (True, False):
            replay = DropoutReplay([torch.device("cpu")], enabled)
            for _ in range(3):
                run.model.zero_grad()
                with replay:
                    output = run.criterion.objective.predict(run.model.train(), sample)
                output.square().sum().backward()
                found.append(torch.cat([output.detach().flatten(), flat_gradient(run.model)]))
        assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
        assert not torch.equal(found[4], found[5])
    assert graphs() > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", REPLAYS)
def test_every_method_repeats_inductors_masks(
    folders: dict[str, Path], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With delta = 0 in all passes, all give the same states."""
    begin, move, states = Perturbation._begin, Perturbation.move_to, []

    def begin_at_x(delta: Perturbation, *args: Tensor) -> None:
        begin(delta, *args)
        move(delta, torch.zeros_like(delta.value()))

    monkeypatch.setattr(Perturbation, "_begin", begin_at_x)
    monkeypatch.setattr(Perturbation, "move_to", lambda delta, to: move(delta, torch.zeros_like(to)))
    run = run_of(folders, "classes", method, *OPTIONS[method], *DESCENT, *DROPOUT, "--compile")
    layer = find_layers(run.model)[-1]
    layer.register_forward_hook(lambda module, inputs, output: states.append(output[0].detach().clone()))
    for rows in ([0, 1, 2], [3, 4, 5, 0]):
        states.clear()
        change(run, rows)
        assert len(states) >= 2 and all(torch.equal(states[0], one) for one in states)


@pytest.mark.slow
def test_other_lengths_and_validation_compile_nothing_more(folders: dict[str, Path]) -> None:
    run = compare(folders, "classes", "freelb", *DROPOUT)
    before = graphs()
    change(run, [0, 2, 5], [1, 3, 4])
    run.trainer.valid_step(batch(run, [0, 1, 2], "valid"))
    assert graphs() == before


def test_a_missing_triton_is_named(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.exc import TritonMissing

    def backend(*args: Any) -> Any:
        raise TritonMissing(sys._getframe())

    monkeypatch.setattr(compiled_layers, "HOW", {"backend": backend})
    run = run_of(folders, "classes", "freelb", *OPTIONS["freelb"], *DESCENT, "--compile")
    with pytest.raises(ValueError, match=r"fails here .Cannot find a working triton.*\. Install them, or l"):
        change(run)


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_the_mode_is_torchs(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    seen = []
    monkeypatch.setattr(torch, "compile", lambda part, **options: seen.append(options["mode"]) or part)
    words = [
        *OPTIONS["freelb"],
        *DESCENT,
        "--compile",
        *([] if mode == "default" else ["--compile-mode", mode]),
    ]
    change(run_of(folders, "classes", "freelb", *words))
    assert {*seen} == {mode}


def test_what_it_cant_do_is_refused(folders: dict[str, Path]) -> None:
    words = [*OPTIONS["freelb"], *DESCENT]
    with pytest.raises(ValueError, match="--compile with --quant-noise-pq is untested"):
        run_of(folders, "classes", "freelb", *words, "--compile", "--quant-noise-pq", "0.1")
    model = run_of(folders, "classes", "freelb", *words).model
    checkpoint_wrapper(model.encoder.sentence_encoder.layers[0])
    with pytest.raises(ValueError, match="--compile with activation checkpointing"):
        compiled_layers.compile_layers(model)
