"""SiFT against ALUM's Algorithm 1 on normalised embeddings, restated in plain torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from support import batch, gradients, write_corpus, write_task

from criterions import references
from criterions.test_methods import one_step, recorded
from criterions.test_vat import FP16, ROWS, built, loss_of, predict, start_of, vat_options
from fairseq_adv.data.errors import DataError


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "classes": write_task(tmp_path_factory.mktemp("classes"), classes=3),
        "masked_lm": write_corpus(tmp_path_factory.mktemp("corpus")),
    }


OPTIONS = vat_options()


def built_without_eps(folders: dict[str, Path], objective: str, *words: str) -> SimpleNamespace:
    """The first layer norm adds next to no eps, as if LN were applied twice and delta added in between."""
    run = built(folders, objective, *words, criterion="sift")
    run.model.encoder.sentence_encoder.layernorm_embedding.eps = 1e-12
    return run


def shift(run: SimpleNamespace, tokens: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """What is added to the word embeddings, so that the first layer norm gets LN(x) + delta."""
    encoder = run.model.encoder.sentence_encoder
    words, places = encoder.embed_tokens(tokens), encoder.embed_positions(tokens)
    real = tokens.ne(1).unsqueeze(-1)
    normalized = F.layer_norm(words + places, words.shape[-1:], eps=1e-12)
    return torch.where(real, normalized + delta - places - words, torch.zeros_like(words))


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
@pytest.mark.parametrize("projection", ["smart", "l2"])
def test_gradient_and_delta_equal_the_restated_algorithm(
    folders: dict[str, Path], objective: str, projection: str
) -> None:
    run = built_without_eps(folders, objective, *vat_options(projection))
    sample = batch(run, ROWS)
    tokens = sample["net_input"]["src_tokens"]
    with recorded() as deltas:
        one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in ours))
    expected, delta = references.alum(
        lambda d: predict(run, sample, objective, shift(run, tokens, d)),
        lambda d: loss_of(run, sample, objective, shift(run, tokens, d)),
        start_of(sample, objective, 0.1), parameters, k=2, eta=0.5, epsilon=0.2, alpha=3.0,
        projection=projection, kind="symmetric-kl",
    )  # fmt: skip
    torch.testing.assert_close(deltas[-1], delta, rtol=1e-4, atol=1e-5)
    assert not torch.equal(deltas[-1], deltas[0])
    whole = torch.cat([g.flatten() for g in expected])
    difference = torch.cat([(ours[n] - g).flatten() for n, g in zip(names, expected)])
    assert difference.norm() <= 2e-5 * whole.norm()


def test_the_scale_of_the_embeddings_does_not_matter(folders: dict[str, Path]) -> None:
    """Embeddings ten times as large: the same divergence, while alum_vat's shrinks."""
    found = {}
    for criterion in ("sift", "alum_vat"):
        for scale in (1.0, 10.0):
            run = built(folders, "classes", *OPTIONS, criterion=criterion)
            encoder = run.model.encoder.sentence_encoder
            encoder.layernorm_embedding.eps = 1e-12
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
    run = built(folders, "classes", *words, criterion="sift")
    _, _, log = one_step(run, batch(run, ROWS))
    assert float(log["vat_divergence"]) > 1e-6 and float(log["vat_divergence"]) > float(
        log["vat_divergence_zero"]
    )
    assert not run.model.encoder.sentence_encoder.layernorm_embedding._forward_pre_hooks


def test_refusals(folders: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"--vat-relative.*leave it out"):
        built(folders, "classes", "--vat-relative", criterion="sift")
    run = built(folders, "classes", criterion="sift")
    run.model.encoder.sentence_encoder.layernorm_embedding = None
    with pytest.raises(ValueError, match=r"no layer norm after its embeddings.*roberta_base"):
        run.criterion.check_before_training(run.model)
