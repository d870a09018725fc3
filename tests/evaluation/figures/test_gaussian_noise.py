"""The loss under Gaussian noise on the embeddings, against plain torch, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from support import batch, build, train_args, write_questions, write_task

from fairseq_adv.evaluation.figures.gaussian_noise import Noise, NoiseCurve, mean_loss, noise_csv, noise_curve
from fairseq_adv.perturbation import geometry

ROWS = [0, 1, 2, 3, 4, 5]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    run = build(train_args(write_task(tmp_path / "data"), None, "standard", "--no-save-optimizer-state"))
    path = tmp_path / "run" / "checkpoint_last.pt"
    path.parent.mkdir()
    run.trainer.save_checkpoint(str(path), {})
    return path


def test_equals_noise_by_hand(tmp_path: Path) -> None:
    run = build(train_args(write_task(tmp_path), None, "standard", "--dropout", "0.5"))
    sample = batch(run, ROWS)
    found = mean_loss(run.model, run.criterion.objective, [sample], std=0.7, seed=3, draw=2)
    assert run.model.training  # as before; measured without dropout all the same

    run.model.eval()
    tokens, encoder = sample["net_input"]["src_tokens"], run.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens)
    for row, seed in enumerate(geometry.row_seeds(3, 2, sample["id"].tolist())):
        real = tokens[row].ne(run.task.source_dictionary.pad())
        noise = torch.randn(int(real.sum()), 16, generator=torch.Generator().manual_seed(seed))
        embedded[row, real] += 0.7 * noise
    features, _ = encoder.extract_features(tokens, token_embeddings=embedded)
    logits = run.model.classification_heads["sentence_classification_head"](features)
    by_hand = F.cross_entropy(logits, sample["target"].view(-1)).item()
    clean = mean_loss(run.model, run.criterion.objective, [sample])
    assert found == pytest.approx(by_hand, rel=1e-5) and abs(found - clean) > 1e-3


def test_the_same_in_other_mini_batches_and_no_gradient(tmp_path: Path) -> None:
    """Questions: each row of an example has noise of its own."""
    run = build(train_args(write_questions(tmp_path), None, "standard", task="commonsense_qa"))
    objective = run.criterion.objective
    whole = mean_loss(run.model, objective, [batch(run, ROWS)], std=0.5)
    parts = mean_loss(run.model, objective, [batch(run, [3, 1]), batch(run, [0, 5, 4, 2])], std=0.5)
    assert parts == pytest.approx(whole, rel=1e-5)
    assert whole != pytest.approx(mean_loss(run.model, objective, [batch(run, ROWS)]), rel=1e-4)
    other = mean_loss(run.model, objective, [batch(run, ROWS)], std=0.5, draw=1)
    assert other != pytest.approx(whole, rel=1e-4)
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_a_curve_is_the_mean_of_the_draws_and_is_measured_once(checkpoint: Path, tmp_path: Path) -> None:
    how = Noise([0.5, 0.0, 0.5], draws=2, cpu=True)
    kept = tmp_path / "kept"
    curve = noise_curve(checkpoint, "plain", how, kept)
    assert [std for std, _ in curve.losses] == [0.0, 0.5] and len(list(kept.iterdir())) == 2
    run = build(train_args(tmp_path / "data", None, "standard"))
    run.model.load_state_dict(load_checkpoint_to_cpu(str(checkpoint))["model"])
    sample = [batch(run, list(range(8)), "valid")]
    objective = run.criterion.objective
    draws = [mean_loss(run.model, objective, sample, std=0.5, draw=draw) for draw in (0, 1)]
    assert curve.losses[0][1] == pytest.approx(mean_loss(run.model, objective, sample), rel=1e-5)
    assert curve.losses[1][1] == pytest.approx(sum(draws) / 2, rel=1e-5)

    for file in kept.iterdir():  # what is kept is used again; a new standard deviation is measured
        found = json.loads(file.read_text())
        found["means"]["loss"] += 10
        file.write_text(json.dumps(found))
    again = noise_curve(checkpoint, "plain", Noise([0.5, 0.0, 0.1], draws=2, cpu=True), kept)
    assert [round(loss) // 10 for _, loss in again.losses] == [1, 0, 1]
    anew = noise_curve(checkpoint, "plain", Noise([0.5, 0.0], draws=3, seed=2, cpu=True), kept)
    assert max(loss for _, loss in anew.losses) < 10


def test_the_csv_has_a_column_for_each_checkpoint() -> None:
    curves = [NoiseCurve("a", [(0.0, 0.5), (0.1, 0.75)]), NoiseCurve("b, flooded", [(0.0, 1.0), (0.1, 2.0)])]
    assert noise_csv(curves) == 'noise_std,a,"b, flooded"\n0,0.5,1\n0.1,0.75,2\n'


@pytest.mark.parametrize(
    ("stds", "more", "message"),
    [
        ([0.1], {}, "--stds 0.1: pass two or more different"),
        ([0.1, 0.1], {}, "--stds 0.1,0.1: pass two"),
        ([0, -0.1], {}, "--stds 0,-0.1: pass two"),
        ([0, float("nan")], {}, "--stds 0,nan: pass two"),
        ([0, float("inf")], {}, "--stds 0,inf: pass two"),
        ([0, 0.1], {"draws": 0}, "--draws 0: pass 1 or more"),
        ([0, 0.1], {"batch_size": 0}, "--batch-size 0: pass 1 or more"),
    ],
)
def test_numbers_out_of_range_are_refused(stds: list[float], more: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Noise(stds, **more)
