"""SiFT against ALUM's Algorithm 1 on normalised embeddings, restated in plain torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import batch

from criterions import references
from criterions.restated import (
    OBJECTIVES,
    assert_near,
    examples_of,
    loss,
    one_step,
    parameters_of,
    predictions,
    recorded,
    run_of,
    weight_of,
)
from criterions.test_vat import FP16, ROWS, start_of, vat_options
from fairseq_adv.data.errors import DataError

EPS = 1e-12  # of the first layer norm, as if LN were applied twice and delta added in between


def built(folders: dict[str, Path], objective: str, *words: str, criterion: str = "sift") -> SimpleNamespace:
    run = run_of(folders, objective, criterion, *words)
    run.model.encoder.sentence_encoder.layernorm_embedding.eps = EPS
    return run


def shift(run: SimpleNamespace, sample: dict[str, Any], delta: torch.Tensor) -> torch.Tensor:
    """What is added to the word embeddings, so that the first layer norm gets LN(x) + delta."""
    tokens, encoder = sample["net_input"]["src_tokens"], run.model.encoder.sentence_encoder
    seen = tokens.masked_fill(sample["span"], run.task.mask_index) if "span" in sample else tokens
    words, places = encoder.embed_tokens(seen), encoder.embed_positions(seen)
    normalized = F.layer_norm(words + places, words.shape[-1:], eps=EPS)
    return torch.where(seen.ne(1).unsqueeze(-1), normalized + delta - places - words, torch.zeros_like(words))


@pytest.mark.parametrize(
    ("objective", "projection"),
    [*((objective, "smart") for objective in OBJECTIVES), ("classes", "l2"), ("masked_lm", "l2")],
)
def test_gradient_and_delta_equal_the_restated_algorithm(
    folders: dict[str, Path], objective: str, projection: str
) -> None:
    run = built(folders, objective, *vat_options(projection))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    expected, delta = references.alum(
        lambda d: predictions(run, sample, objective, shift(run, sample, d)),
        lambda d: loss(run, sample, objective, shift(run, sample, d)),
        start_of(sample, 0.1), parameters_of(run), k=2, eta=0.5, epsilon=0.2,
        alpha=3.0 * weight_of(objective), projection=projection, kind="symmetric-kl",
        examples=examples_of(sample),
    )  # fmt: skip
    # The gradient at the start of a WSC row is so small that processors differ in its direction.
    torch.testing.assert_close(deltas[-1], delta, rtol=1e-4, atol=1e-4 if objective == "wsc" else 1e-5)
    assert not torch.equal(deltas[-1], deltas[0])
    assert_near(run, expected, 2e-5)


def test_the_scale_of_the_embeddings_does_not_matter(folders: dict[str, Path]) -> None:
    """Embeddings ten times as large: the same divergence, while alum_vat's shrinks."""
    found = {}
    for criterion in ("sift", "alum_vat"):
        for scale in (1.0, 10.0):
            run = built(folders, "classes", *vat_options(), criterion=criterion)
            encoder = run.model.encoder.sentence_encoder
            with torch.no_grad():
                encoder.embed_tokens.weight.mul_(scale)
                encoder.embed_positions.weight.mul_(scale)
            _, _, log = one_step(run, batch(run, ROWS))
            found[criterion, scale] = float(log["vat_divergence"])
    assert found["sift", 10.0] == pytest.approx(found["sift", 1.0], rel=1e-4)
    assert found["alum_vat", 10.0] < 0.3 * found["alum_vat", 1.0]


@pytest.mark.parametrize("words", [[], FP16], ids=["fp32", "fp16"])
def test_delta_reaches_the_model(folders: dict[str, Path], words: list[str]) -> None:
    """In half precision too, where the layer norm is replaced for the pass."""
    run = run_of(folders, "classes", "sift", *words)
    _, _, log = one_step(run, batch(run, ROWS))
    assert float(log["vat_divergence"]) > max(1e-6, float(log["vat_divergence_zero"]))
    assert not run.model.encoder.sentence_encoder.layernorm_embedding._forward_pre_hooks


def test_refusals(folders: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"--vat-relative.*leave it out"):
        run_of(folders, "classes", "sift", "--vat-relative")
    run = run_of(folders, "classes", "sift")
    run.model.encoder.sentence_encoder.layernorm_embedding = None
    with pytest.raises(DataError, match=r"no layer norm after its embeddings.*roberta_base"):
        run.criterion.check_before_training(run.model)
