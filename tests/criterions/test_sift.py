"""SiFT: what differs from ALUM. Its gradient: test_restated.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import batch

from criterions.restated import (
    one_step,
    run_of,
)
from criterions.test_vat import FP16, ROWS, vat_options
from fairseq_adv.data.errors import DataError


def test_the_scale_of_the_embeddings_does_not_matter(folders: dict[str, Path]) -> None:
    """Embeddings ten times as large: the same divergence, while alum_vat's shrinks."""
    found = {}
    for criterion in ("sift", "alum_vat"):
        for scale in (1.0, 10.0):
            run = run_of(folders, "classes", criterion, *vat_options())
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
    run = run_of(folders, "classes", "sift")
    run.model.encoder.sentence_encoder.layernorm_embedding = None
    with pytest.raises(DataError, match=r"no layer norm after its embeddings.*roberta_base"):
        run.criterion.check_before_training(run.model)
