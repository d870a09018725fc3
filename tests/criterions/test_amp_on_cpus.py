"""``--amp`` on CPUs: bf16 autocast, fp32 weights and optimizer, no loss scale, for whatever can be trained.

Against the restated algorithms: test_restated.py. With several processes:
tests/integration/test_precision.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from methods import OPTIONS
from support import batch, gradients
from torch import nn

from criterions.restated import (
    DROPOUT,
    change,
    one_step,
    recorded,
    run_of,
)
from criterions.test_contract import DESCENT, FEW
from fairseq_adv.perturbation.precision import layer_norm_after

STEPS = ["--adv-steps", "2"]
NO_GPU = ".*CUDA is not available"  # what torch says of CUDA's autocast and of its scaler


@contextmanager
def computed_in(*modules: nn.Module) -> Iterator[set[torch.dtype]]:
    """The types of the modules' outputs. Layers whose parts have hooks are computed by fairseq's code."""
    found: set[torch.dtype] = set()
    handles = [one.register_forward_hook(lambda m, i, output: found.add(output.dtype)) for one in modules]
    yield found
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
def test_fairseqs_own_criterions_train_in_it(folders: dict[str, Path], objective: str) -> None:
    """To the bit as standard does, whose gradient is the restated one."""
    own = {"classes": "sentence_prediction", "masked_lm": "masked_lm"}[objective]
    losses, found = [], []
    for criterion in ("standard", own):
        run = run_of(folders, objective, criterion, *DROPOUT, "--amp")
        first = [layer.fc1 for layer in run.model.encoder.sentence_encoder.layers]
        with warnings.catch_warnings(), computed_in(*first) as products:
            warnings.filterwarnings("error", message=NO_GPU)
            losses.append(one_step(run, batch(run, [0, 1, 2, 3]))[0])
        assert products == {torch.bfloat16}
        found.append(gradients(run.model))
    assert torch.equal(*losses) and found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    one_step(run, batch(run, [0, 1]), ignore_grad=True)  # a dummy batch
    assert not any(gradient.any() for gradient in gradients(run.model).values())


@pytest.mark.parametrize("method", FEW)
def test_recomputed_activations_give_the_same_update(folders: dict[str, Path], method: str) -> None:
    """In the precision in which they were computed first. Sums of fp32 in another order move some products to
    the other side of a rounding of bf16.
    """
    updates = []
    for recompute in (False, True):
        run = run_of(folders, "classes", method, *OPTIONS[method], *DESCENT, *DROPOUT, "--amp")
        for layer in run.model.encoder.sentence_encoder.layers if recompute else ():
            checkpoint_wrapper(layer)
        with computed_in(*(one.fc1 for one in run.model.encoder.sentence_encoder.layers)) as products:
            updates.append(change(run, [0, 1, 2], [3, 4]))
        assert products == {torch.bfloat16}
    assert (updates[1] - updates[0]).norm() <= 3e-4 * updates[0].norm()


@pytest.mark.parametrize("method", ["freelb", "alum_vat"])
def test_a_delta_of_1e_5_arrives_at_the_layer_norm_in_fp32(folders: dict[str, Path], method: str) -> None:
    """The layer norm's input, less that of a clean pass, is delta to fp32's rounding of their sum: embeddings
    of .15 are 1.5e-8 apart. bf16's are 1e-3 apart: delta would be gone.
    """
    sizes = {
        "freelb": [*STEPS, "--adv-lr", "0", "--adv-init-mag", "0.0001"],
        "alum_vat": ["--vat-init-std", "1e-5", "--vat-epsilon", "1e-5", "--vat-steps", "1"],
    }[method]
    run = run_of(folders, "classes", method, *sizes, "--amp")
    encoder = run.model.encoder.sentence_encoder
    with torch.no_grad():
        encoder.embed_tokens.weight.copy_(torch.randn(encoder.embed_tokens.weight.shape) * 0.15)
    norm, inputs = layer_norm_after(run.model, encoder.embed_tokens), []
    assert norm is not None
    norm.register_forward_pre_hook(lambda m, i: inputs.append(i[0].detach()))
    sample = batch(run, [0, 1, 2, 3])
    with recorded() as deltas, computed_in(norm) as outputs:
        one_step(run, sample)
        run.criterion(run.model, sample)  # a clean pass, as validation makes it
    delta, moved = deltas[-1], inputs[-2] - inputs[-1]
    assert {x.dtype for x in inputs} == outputs == {torch.float32}
    assert 1e-6 < delta[0].abs().max() < 2e-5
    assert (moved - delta).norm() <= 5e-3 * delta.norm()
