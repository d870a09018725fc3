"""What the host knows of a mini-batch gives the same numbers as asking the GPU; other criterions ask it.

Gradients of whole updates: tests/gpu/test_cuda.py. On the CPU no tensor needs a copy on the host, so the
tests make one as if its tensor were elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import utils
from support import ADVERSARIAL, batch, build, train_args, write_task

from fairseq_adv.fairseq_patches.gpu_waits import encode_without_waiting
from fairseq_adv.perturbation import host_copies
from fairseq_adv.perturbation.host_copies import host_copy, with_host_copy

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


@pytest.mark.parametrize("case", ["unknown", "hidden states", "fused"])
def test_other_passes_of_the_encoder_are_fairseqs_own(tmp_path: Path, case: str) -> None:
    fresh = build(train_args(write_task(tmp_path), None, "freelb", *ADVERSARIAL))
    tokens = batch(fresh, [0, 1, 2])["net_input"]["src_tokens"]
    fresh.model.train(case != "fused")
    encoder = fresh.model.encoder.sentence_encoder
    tokens, hidden = tokens if case == "unknown" else known(tokens), case == "hidden states"
    assert encode_without_waiting(lambda *_: "fairseq's", encoder, tokens, None, hidden) == "fairseq's"
