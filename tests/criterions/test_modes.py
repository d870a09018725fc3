"""Every method with re-computed activations, LayerDrop and half precision: the update is that of plain fp32.

With several processes and micro-batches: tests/integration/test_equal_updates.py, test_torch_ddp.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from support import ADVERSARIAL, CREAT_ARGS, NOISED, NOISY, VIRTUAL, batch, build, train_args, write_task

from criterions.test_methods import FP16, ROWS
from fairseq_adv.criterions.mini_batch import ModelParts

OPTIONS = {
    "standard": [],
    "freelb": ADVERSARIAL,
    "pgd": ADVERSARIAL,
    "freeat": ADVERSARIAL,
    "yopo": [*ADVERSARIAL, "--yopo-steps", "3"],
    "tavat": ADVERSARIAL,
    "infobert": ADVERSARIAL,
    "alum_vat": VIRTUAL,
    "smart": [*VIRTUAL, "--store-ema", "--ema-decay", "0.5", "--ema-fp32"],
    "noise": NOISY,
    "r3f": NOISED,
    "creat": CREAT_ARGS,
    "flooding": ["--flood-level", "5"],  # it climbs
}
METHODS = list(OPTIONS)
PASSES = {"flooding": 1, "noise": 1, "r3f": 2}  # the others make 3 or more
DROPOUT = ["--dropout", "0.2", "--attention-dropout", "0.2"]
LAYERDROP = ["--encoder-layerdrop", "0.5", "--encoder-layers", "4"]
# Memory-efficient fp16 takes no SGD; Adam with this eps is gradient descent with a rate of 0.5.
DESCENT = ["--optimizer", "adam", "--adam-betas", "(0.0,0.0)", "--adam-eps", "1e3", "--lr", "500"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


def change(data: Path, method: str, *words: str, recompute: bool = False) -> torch.Tensor:
    """What one group of mini-batches does to the weights, in fp64."""
    run = build(train_args(data, None, method, *OPTIONS[method], *DESCENT, *words))
    if recompute:  # as model.checkpoint_activations in a yaml does
        for layer in run.model.encoder.sentence_encoder.layers:
            checkpoint_wrapper(layer)
    before = flat(run)
    run.trainer.train_step([batch(run, ROWS)])
    return flat(run) - before


def flat(run: SimpleNamespace) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten().clone() for p in run.model.parameters()])


@pytest.mark.parametrize("precision", [[], [FP16]], ids=["fp32", "fp16"])
@pytest.mark.parametrize("method", [m for m in METHODS if m != "infobert"])  # which refuses them
def test_recomputed_activations_give_the_same_update(data: Path, method: str, precision: list[str]) -> None:
    """With dropout, whose masks the re-computation has to repeat as well. The sums are the same ones."""
    plain = change(data, method, *DROPOUT, *precision)
    ours = change(data, method, *DROPOUT, *precision, recompute=True)
    assert plain.norm() > 0
    assert (ours - plain).norm() <= 1e-6 * plain.norm()


@pytest.mark.parametrize("mode", [LAYERDROP, ["--amp"], [FP16]], ids=["layerdrop", "amp", "fp16"])
@pytest.mark.parametrize("method", METHODS)
def test_kept_masks_give_the_same_update_to_the_bit(
    data: Path, monkeypatch: pytest.MonkeyPatch, method: str, mode: list[str]
) -> None:
    kept = change(data, method, *DROPOUT, *mode)
    monkeypatch.setattr(ModelParts, "dropout_layers", [])
    drawn = change(data, method, *DROPOUT, *mode)
    assert kept.norm() > 0
    assert torch.equal(kept, drawn)


def test_masks_of_dropout_layers_are_kept_on_a_cpu_but_not_with_recomputed_activations(data: Path) -> None:
    run = build(train_args(data, None, "freelb"))
    layers = ModelParts(run.model).dropout_layers
    assert len(layers) == 2 * 3 + 2 and layers[0] is run.model.encoder.sentence_encoder.dropout_module
    checkpoint_wrapper(run.model.encoder.sentence_encoder.layers[1])
    assert not ModelParts(run.model).dropout_layers


@pytest.mark.parametrize("mode", [[], LAYERDROP], ids=["plain", "layerdrop"])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_gives_nearly_the_same_update(data: Path, method: str, mode: list[str]) -> None:
    """fp16 has 11 significant bits (5e-4); passes at slightly other deltas add up. A wrong loss scale, or
    layers dropped in one pass and not in the next, would be of the order of 1.
    """
    full = change(data, method, *mode)
    half = change(data, method, *mode, FP16, "--fp16-init-scale", "4")
    assert full.norm() > 0
    assert (half - full).norm() <= 0.03 * full.norm()


@pytest.mark.parametrize("method", [m for m in METHODS if m != "standard"])
def test_the_passes_of_an_update_drop_the_same_layers(data: Path, method: str) -> None:
    """As they share dropout masks; freeat's passes are updates, with draws of their own."""
    run = build(train_args(data, None, method, *OPTIONS[method], *DESCENT, *LAYERDROP))
    passes: list[list[int]] = []
    run.model.encoder.register_forward_pre_hook(lambda *_: passes.append([]))
    for i, layer in enumerate(run.model.encoder.sentence_encoder.layers):
        layer.register_forward_hook(lambda *_, i=i: passes[-1].append(i))
    differing = 0
    updates: set[tuple[int, ...]] = set()
    for _ in range(4):
        passes.clear()
        run.trainer.train_step([batch(run, ROWS)])
        first = passes[0]
        # A shallow pass of yopo ends after the first layer.
        differing += sum(layers not in (first, first[:1]) for layers in passes)
        updates.add(tuple(first))
        assert len(passes) >= PASSES.get(method, 3)
    assert len(updates) > 1
    assert (differing > 0) is (method == "freeat")


def test_all_methods_of_the_project_are_here() -> None:
    from fairseq.criterions import CRITERION_REGISTRY

    ours: Any = {n for n, c in CRITERION_REGISTRY.items() if c.__module__.startswith("fairseq_adv.")}
    assert ours == set(METHODS)
