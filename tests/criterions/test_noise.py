"""Noise on the embeddings in fairseq's trainer: the loss at X + noise, on every objective."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import batch, flat_gradient

from criterions.restated import (
    DROPOUT,
    examples_of,
    one_step,
    recorded,
    run_of,
)

ROWS = [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_the_noise_of_an_example_does_not_depend_on_its_batch_mates(
    folders: dict[str, Path], kind: str
) -> None:
    """And is another in each update, 0 on padding."""
    run = run_of(folders, "classes", "noise", "--noise-kind", kind)
    whole = batch(run, ROWS)
    longest = whole["net_input"]["src_tokens"].size(1)
    lengths = whole["net_input"]["src_tokens"].ne(1).sum(dim=1).tolist()
    assert min(lengths) < longest
    with recorded() as deltas:
        one_step(run, whole)
        for row in ROWS:
            one_step(run, batch(run, [row]))
        one_step(run, whole, update=1)
    together, *alone, later = deltas
    for row, length in enumerate(lengths):
        assert torch.equal(together[row, :length], alone[row][0]) and together[row, :length].all()
        assert not together[row, length:].any()
    assert not torch.isclose(together, later)[together != 0].any()


@pytest.mark.parametrize("objective", ["classes", "commonsense_qa"])
def test_uniform_noise_is_freelb_of_one_pass_from_a_random_start(
    folders: dict[str, Path], objective: str
) -> None:
    found = []
    for words in (["noise", "--noise-size", "0.6"], ["freelb", "--adv-steps", "1", "--adv-init-mag", "0.6"]):
        run = run_of(folders, objective, *words, *DROPOUT)
        one_step(run, batch(run, ROWS))
        found.append(flat_gradient(run.model))
    assert torch.equal(*found) and found[0].any()


@pytest.mark.parametrize(("kind", "norm"), [("uniform", 0.1 / 3**0.5), ("normal", 0.1)])
@pytest.mark.parametrize("objective", ["classes", "commonsense_qa"])
def test_relative_noise_is_a_share_of_the_embeddings(
    folders: dict[str, Path], objective: str, kind: str, norm: float
) -> None:
    """The expected norm of each example's noise; half a hundred numbers and more in each."""
    words = ["--noise-kind", kind, "--noise-size", "0.1", "--noise-relative"]
    run = run_of(folders, objective, "noise", *words)
    run.model.encoder.sentence_encoder.embed_tokens.weight.data[1] = 0.5  # padding has no size
    sample = batch(run, ROWS)
    with recorded() as deltas:
        log = one_step(run, sample)[2]
    tokens = sample["net_input"]["src_tokens"]
    embedded = run.model.encoder.sentence_encoder.embed_tokens(tokens).detach() * tokens.ne(1).unsqueeze(-1)
    shares = [float(deltas[0][rows].norm() / embedded[rows].norm()) for rows in examples_of(sample)]
    assert shares == pytest.approx([norm] * len(ROWS), rel=0.2)
    assert float(log["adv_ratio"]) == pytest.approx(sum(shares), rel=1e-5)
    norms = [float(deltas[0][rows].norm()) for rows in examples_of(sample)]
    assert float(log["adv_norm"]) == pytest.approx(sum(norms), rel=1e-5) and log["nexamples"] == len(ROWS)
