"""A measurement against plain torch, and that it changes nothing of the training it looks into."""

from __future__ import annotations

import math
import random
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import batch, build, train_args, write_task

from fairseq_adv.accordance import AccordanceProbe
from fairseq_adv.accordance.probe import draw_rows
from fairseq_adv.accordance.sums import GroupedSums

BATCHES, SIZE, SEED = 7, 4, 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes: in batches of 4, one is often missing."""
    return write_task(tmp_path_factory.mktemp("classes"), train=40, classes=3)


def built(data: Path, *extra: str, classes: int = 3) -> SimpleNamespace:
    """A tiny RoBERTa whose head is large enough for the classes' gradients not to be all alike."""
    run = build(train_args(data, None, "standard", *extra, classes=classes))
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            if "classification_heads" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    return run


def probe(run: SimpleNamespace, **changes: Any) -> AccordanceProbe:
    options = {"batches": BATCHES, "batch_size": SIZE, "seed": SEED, **changes}
    return AccordanceProbe(run.criterion.objective, run.task, "train", **options)


def gradients_in_plain_torch(run: SimpleNamespace) -> tuple[list[dict[int, dict[str, torch.Tensor]]], float]:
    """For each batch and class the gradient of the mean cross-entropy; and the mean loss of all rows."""
    run.model.eval()
    for layer in run.model.encoder.sentence_encoder.layers:
        layer.ever_training = True  # the layer that has a gradient
    found, losses = [], []
    parameters = {n: p for n, p in run.model.named_parameters() if p.requires_grad}
    for rows in draw_rows(40, BATCHES, SIZE, SEED, "train"):
        sample = batch(run, rows)
        logits, _ = run.model(
            **sample["net_input"], features_only=True, classification_head_name="sentence_classification_head"
        )
        each = F.cross_entropy(logits, sample["target"].view(-1), reduction="none")
        losses += each.tolist()
        of_class = {}
        for k in sample["target"].unique().tolist():
            gradient = torch.autograd.grad(
                each[sample["target"].view(-1) == k].mean(), list(parameters.values()),
                retain_graph=True, allow_unused=True,
            )  # fmt: skip
            of_class[k] = {name: g for name, g in zip(parameters, gradient) if g is not None}
        found.append(of_class)
    return found, sum(losses) / len(losses)


def over_all_pairs(batches: list[dict[int, dict[str, torch.Tensor]]], group: str) -> tuple[float, int]:
    def flat(gradient: dict[str, torch.Tensor]) -> torch.Tensor:
        heads = [name.startswith("classification_heads.") for name in gradient]
        wanted = [group == "all" or head == (group == "head") for head in heads]
        return torch.cat([g.double().flatten() for g, w in zip(gradient.values(), wanted) if w])

    cosines = [
        float(torch.cosine_similarity(flat(batches[s][i]), flat(batches[t][j]), dim=0))
        for s, t in product(range(len(batches)), repeat=2)
        for i, j in product(batches[s], batches[t])
        if s < t and i != j
    ]
    return sum(cosines) / len(cosines), len(cosines)


def test_equals_plain_torch(data: Path) -> None:
    """Class gradients cut from whole batches by autograd, all pairs in fp64: fp32's rounding is the
    difference.
    """
    run = built(data)
    found = probe(run).measure(run.model)
    batches, loss = gradients_in_plain_torch(run)
    assert len({len(classes) for classes in batches}) > 1  # some lack a class
    for group in ("all", "encoder", "head"):
        expected, pairs = over_all_pairs(batches, group)
        assert found.cosine[group] == pytest.approx(expected, abs=1e-5), group
        assert found.pairs == pairs
    assert len({round(value, 3) for value in found.cosine.values()}) == 3
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert found.batches == BATCHES


def test_one_backward_for_each_class_of_each_batch(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sentences go through the model as the batches have."""
    run = built(data)
    measuring = probe(run)
    batches, _ = gradients_in_plain_torch(run)
    backwards, sentences = [], []
    real = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: (backwards.append(loss), real(loss)))
    run.model.register_forward_hook(lambda module, inputs, output: sentences.append(len(output[0])))
    measuring.measure(run.model)
    assert len(backwards) == len(sentences) == sum(len(classes) for classes in batches)
    assert sum(sentences) == BATCHES * SIZE


def rng_states() -> list[Any]:
    numpy_state = np.random.get_state()
    return [random.getstate(), numpy_state[1].tolist(), numpy_state[2], torch.get_rng_state().tolist()]


def flags(model: torch.nn.Module) -> list[Any]:
    return [(m.training, m.__dict__.get("ever_training")) for m in model.modules()]


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_all_else_is_as_it_was(
    data: Path, monkeypatch: pytest.MonkeyPatch, dropout: bool, fails: bool
) -> None:
    """Gradients (the same tensors, None where there was none), random numbers, flags and buffers; also after
    an error in the middle.
    """
    run = built(data, "--dropout", "0.3", "--spectral-norm-classification-head")
    run.model.train()
    run.model.encoder.sentence_encoder.layers[0].eval()  # a part that someone holds still
    named = dict(run.model.named_parameters())
    named["encoder.sentence_encoder.layers.0.fc1.weight"].grad = torch.ones(32, 16)
    weights = {name: p.detach().clone() for name, p in named.items()}
    grads = {name: p.grad for name, p in named.items()}
    buffers = {name: b.clone() for name, b in run.model.named_buffers()}
    assert buffers
    if fails:
        real, calls = GroupedSums.add, []

        def add(sums: GroupedSums, *words: Any, **more: Any) -> None:
            calls.append(0)
            if len(calls) == 3:
                random.random(), np.random.rand(), torch.rand(1)
                raise MemoryError("no room")
            real(sums, *words, **more)

        monkeypatch.setattr(GroupedSums, "add", add)
    before = rng_states(), flags(run.model)
    measuring = probe(run, dropout=dropout)
    if fails:
        with pytest.raises(MemoryError):
            measuring.measure(run.model)
    else:
        assert math.isfinite(measuring.measure(run.model).cosine["all"])
    assert (rng_states(), flags(run.model)) == before
    assert all(p.grad is grads[name] for name, p in named.items())
    assert torch.equal(named["encoder.sentence_encoder.layers.0.fc1.weight"].grad, torch.ones(32, 16))
    assert all(torch.equal(p, weights[name]) for name, p in named.items())
    assert all(torch.equal(b, buffers[name]) for name, b in run.model.named_buffers())


def test_a_model_that_never_trained_can_be_measured(data: Path) -> None:
    """fairseq would take its fused layer, which has no gradient; afterwards it takes it again."""
    run = built(data)
    trained = probe(run).measure(run.model)
    for layer in run.model.encoder.sentence_encoder.layers:
        assert layer.ever_training is False
    run.model.eval()
    assert probe(run).measure(run.model) == trained
    assert not run.model.training


def test_dropout_masks_depend_on_nothing_but_seed_batch_and_class(data: Path) -> None:
    run = built(data, "--dropout", "0.3", "--encoder-layerdrop", "0.2")
    off = probe(run).measure(run.model)
    on = probe(run, dropout=True).measure(run.model)
    torch.manual_seed(99)
    assert probe(run, dropout=True).measure(run.model) == on
    assert abs(on.cosine["all"] - off.cosine["all"]) > 1e-3
    few = probe(run, dropout=True, batches=2).measure(run.model)
    other = probe(run, dropout=True, batches=2)
    other.seed += 1  # other masks for the same rows
    assert other.measure(run.model).loss != few.loss


def test_the_loss_scale_keeps_gradients_from_underflowing(data: Path) -> None:
    """No result depends on it. Gradients of fp16 that are rounded to 0, or to infinity, count as absent."""
    run = built(data)
    expected = probe(run).measure(run.model)
    assert probe(run).measure(run.model, loss_scale=1024.0).cosine == pytest.approx(expected.cosine, abs=1e-6)
    half = built(data, "--memory-efficient-fp16")
    gone = probe(half).measure(half.model, loss_scale=1e-9)
    assert gone.pairs == 0
    near = probe(half).measure(half.model, loss_scale=128.0)
    assert near.cosine == pytest.approx(expected.cosine, abs=0.01)
    assert all(math.isnan(value) for value in gone.cosine.values())
    over = probe(half).measure(half.model, loss_scale=1e9)
    assert over.pairs == 0
    assert over.loss == pytest.approx(expected.loss, rel=0.01)


def test_a_frozen_encoder_leaves_the_head_s_value(data: Path) -> None:
    run = built(data)
    expected = probe(run).measure(run.model)
    for parameter in run.model.encoder.parameters():
        parameter.requires_grad_(False)
    found = probe(run).measure(run.model)
    assert found.cosine["head"] == found.cosine["all"] == pytest.approx(expected.cosine["head"], abs=1e-6)
    assert math.isnan(found.cosine["encoder"])
    assert found.pairs == expected.pairs


def test_a_split_that_cant_be_measured_is_refused(data: Path) -> None:
    """fairseq loads one without labels, as GLUE's test splits are, without a word."""
    run = built(data)
    message = "--accordance-batch-size 21: the split 'train' has 40 examples that fit .* Pass 20 or less"
    with pytest.raises(ValueError, match=message):
        probe(run, batch_size=21)
    with pytest.raises(ValueError, match="the split 'test' is not loaded, only train, valid"):
        AccordanceProbe(run.criterion.objective, run.task, "test", batches=2, batch_size=2, seed=0)
    del run.task.datasets["train"].dataset.defn["target"]
    with pytest.raises(ValueError, match="the split 'train' has no labels"):
        probe(run, batches=2)


def test_rows_are_drawn_once_without_replacement_and_by_the_seed_alone() -> None:
    rows = draw_rows(40, 5, 8, 3, "train")
    assert sorted(row for some in rows for row in some) == list(range(40))
    np.random.seed(1)
    assert draw_rows(40, 5, 8, 3, "train") == rows
    assert draw_rows(40, 5, 8, 4, "train") != rows
    assert draw_rows(40, 2, 8, 3, "train") == rows[:2]
    assert [len(some) for some in draw_rows(39, 10, 8, -1, "train")] == [8] * 4  # whole batches only
