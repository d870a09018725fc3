"""What the host knows of a mini-batch gives the same numbers as asking the GPU; other criterions ask it.

On the CPU no tensor needs a copy on the host, so the tests make one as if its tensor were elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import utils
from support import ADVERSARIAL, batch, build, train_args, write_corpus, write_task, write_wsc
from torch import nn

from fairseq_adv.models.transformers_models import states_at
from fairseq_adv.perturbation import geometry, host_copies
from fairseq_adv.perturbation.geometry import Groups
from fairseq_adv.perturbation.host_copies import host_copy, known_places, places, with_host_copy

pytestmark = pytest.mark.fast
DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]


def known(tensor: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
    """``tensor``, as if it were on a GPU and the host knew it."""
    setattr(tensor, host_copies._ORIGINAL, tensor.clone() if original is None else original)
    return tensor


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    data = write_task(tmp_path_factory.mktemp("classes"))
    return build(train_args(data, None, "freelb", *ADVERSARIAL, *DROPOUT))


def moved_to_meta(run: SimpleNamespace, sample: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the trainer makes of a mini-batch where its GPU is torch's device without values."""
    monkeypatch.setattr(run.trainer, "cuda", True)
    to_meta = lambda moved: utils.apply_to_sample(lambda one: one.to("meta"), moved)  # noqa: E731
    monkeypatch.setattr(utils, "move_to_cuda", to_meta)
    return run.trainer._prepare_sample(sample)[0]


def test_a_moved_mini_batch_is_known_on_the_host(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = batch(run, [0, 1, 2])
    moved = moved_to_meta(run, sample, monkeypatch)
    for before, after in ((sample, moved), (sample["net_input"], moved["net_input"])):
        tensors = {name: one for name, one in after.items() if isinstance(one, torch.Tensor)}
        assert tensors
        for name, tensor in tensors.items():
            assert tensor.device.type == "meta" and host_copy(tensor) is before[name]
    assert run.criterion.objective.row_ids(moved) == [0, 1, 2]


def test_on_the_cpu_a_mini_batch_has_no_second_copy(run: SimpleNamespace) -> None:
    sample = batch(run, [0, 1, 2])
    prepared = run.trainer._prepare_sample(sample)[0]
    tokens = prepared["net_input"]["src_tokens"]
    assert host_copy(tokens) is tokens
    assert not hasattr(with_host_copy(tokens, tokens.clone()), host_copies._ORIGINAL)


@pytest.mark.parametrize(
    ("rows", "more"),
    [([0, 1, 2, 3], []), ([0], []), ([0, 1, 2, 3], ["--encoder-normalize-before"])],
    ids=["padding", "none", "final-norm"],
)
def test_the_encoder_computes_the_same(run: SimpleNamespace, rows: list[int], more: list[str]) -> None:
    """Scores, and the encoder's whole output, bit by bit; dropout draws the same masks."""
    if more:
        run = build(train_args(Path(run.cfg.task.data), None, "freelb", *ADVERSARIAL, *DROPOUT, *more))
    tokens = batch(run, rows)["net_input"]["src_tokens"]
    assert bool(tokens.eq(1).any()) == (len(rows) > 1)
    encoder, found = run.model.encoder.sentence_encoder, []
    run.model.train()
    for one in (tokens, known(tokens.clone())):
        torch.manual_seed(1)
        found.append(encoder(one))
    plain, ours = found
    assert plain.keys() == ours.keys()
    for name, tensors in plain.items():
        assert len(tensors) == len(ours[name]), name
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(tensors, ours[name])), name


def test_the_encoder_asks_the_host(run: SimpleNamespace) -> None:
    """A copy that says there is no padding is believed."""
    tokens = batch(run, [0, 1, 2, 3])["net_input"]["src_tokens"]
    encoder = run.model.encoder.sentence_encoder
    run.model.train()
    outputs = []
    for one in (tokens, known(tokens.clone(), torch.full_like(tokens, 5))):
        torch.manual_seed(1)
        outputs.append(encoder(one)["encoder_out"][0])
    assert not torch.equal(*outputs)


@pytest.mark.parametrize("case", ["unknown", "hidden states", "fused"])
def test_other_passes_of_the_encoder_are_fairseqs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    fresh = build(train_args(write_task(tmp_path), None, "freelb", *ADVERSARIAL))
    called = []
    ours = "fairseq_adv.fairseq_patches.gpu_waits._encoded"
    monkeypatch.setattr(ours, lambda *_: called.append(1))
    tokens = batch(fresh, [0, 1, 2])["net_input"]["src_tokens"]
    fresh.model.train(case != "fused")
    encoder = fresh.model.encoder.sentence_encoder
    encoder(tokens if case == "unknown" else known(tokens), return_all_hiddens=case == "hidden states")
    assert not called


def test_the_masked_positions_of_the_head_are_the_same(tmp_path: Path) -> None:
    """Logits and gradients bit by bit, with a mask and with known places."""
    lm = build(train_args(write_corpus(tmp_path), None, "freelb", *ADVERSARIAL, task="masked_lm"))
    mask = batch(lm, [0, 1, 2])["target"].ne(1)
    head, found = lm.model.encoder.lm_head, []
    for is_known in (False, True):
        one = mask.clone()
        assert known_places(one) is None
        if is_known:
            assert torch.equal(torch.stack(places(known(one))), mask.nonzero().t())
        features = torch.randn(*mask.shape, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
        logits = head(features, one)
        (gradient,) = torch.autograd.grad(logits.square().sum(), features)
        found.append((logits, gradient))
    assert len(found[0][0]) == int(mask.sum()) > 3
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_an_encoder_of_transformers_looks_for_no_known_places() -> None:
    class Encoder(nn.Module):
        def forward(self, states: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"last_hidden_state": states}

    states, mask = torch.randn(2, 2, 3), torch.tensor([[True, False], [True, True]])
    other = torch.tensor([[False, True], [True, True]])  # shows who was asked
    encoder, told = Encoder(), known(mask.clone(), other)
    places(told)
    for chosen, expected in ((mask, mask), (told, other)):
        with states_at(encoder, chosen):
            assert torch.equal(encoder(states)["last_hidden_state"], states[expected].unsqueeze(0))


def test_places_are_looked_for_once() -> None:
    mask = known(torch.tensor([[True, False], [True, True]]), torch.tensor([[False, True], [True, True]]))
    first = places(mask)
    assert [one.tolist() for one in first] == [[0, 1, 1], [1, 0, 1]]  # the host's
    assert places(mask) is first


def test_noise_draws_for_the_lengths_that_the_host_knows() -> None:
    """The same noise as before, and from the copy."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    plain = geometry.uniform_start(mask, 4, 0.5, [3, 4])
    assert torch.equal(geometry.uniform_start(known(mask.clone()), 4, 0.5, [3, 4]), plain)
    other = torch.tensor([[True, False, False], [True, True, True]])
    assert not torch.equal(geometry.uniform_start(known(mask.clone(), other), 4, 0.5, [3, 4]), plain)


def test_the_rows_of_an_example_are_known_too() -> None:
    index = torch.tensor([0, 0, 1])
    seeds = geometry.row_seeds(1, 2, [5, 5, 6], Groups(index, 2))
    assert geometry.row_seeds(1, 2, [5, 5, 6], Groups(known(index.clone()), 2)) == seeds
    split = known(index.clone(), torch.tensor([0, 1, 2]))
    assert geometry.row_seeds(1, 2, [5, 5, 6], Groups(split, 3)) != seeds


@pytest.mark.parametrize("task", ["masked_lm", "wsc"])
def test_a_mini_batch_has_the_same_loss_if_it_is_known(tmp_path: Path, task: str) -> None:
    write = {"masked_lm": write_corpus, "wsc": write_wsc}[task]
    run = build(train_args(write(tmp_path), None, "freelb", *ADVERSARIAL, *DROPOUT, task=task))
    run.model.train()
    losses, objective = [], run.criterion.objective
    for is_known in (False, True):
        sample = batch(run, [0, 1, 2])
        if is_known:
            for part in (sample, sample["net_input"]):
                for one in part.values():
                    if isinstance(one, torch.Tensor):
                        known(one)
        torch.manual_seed(1)
        losses.append(objective.loss(objective.predict(run.model, sample), sample))
    assert torch.equal(*losses) and losses[0] > 0
