"""--precision bf16 of the commands that run a trained model: close to fp32, which stays what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from glue_samples import pairs
from support import CommandMain
from tiny import kept
from trained_films import train_films

import fairseq_adv
from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.attack import Attack, attack
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.trained import load

# Of probabilities and losses of this model: bf16 keeps 8 bits of each product's factors, and a row goes
# through eight matrices, one after the other.
CLOSE = 0.02


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights are large enough that rounding shows."""
    folder = train_films(tmp_path_factory.mktemp("films"))
    path = folder / "save" / "checkpoint_best.pt"
    state = torch.load(path)
    for name, value in state["model"].items():
        if value.dim() == 2 and "embed_positions" not in name:
            value *= 4
    torch.save(state, path)
    return folder


@pytest.fixture
def checkpoint(films: Path) -> str:
    return str(films / "save" / "checkpoint_best.pt")


def probabilities(checkpoint: str, **options: str) -> Any:
    answers = fairseq_adv.load(checkpoint, device="cpu", **options).predict([first for first, _ in pairs()])
    return np.array([list(answer.probabilities.values()) for answer in answers])


def test_answers_to_texts(checkpoint: str) -> None:
    exact, near = probabilities(checkpoint), probabilities(checkpoint, precision="bf16")
    assert np.array_equal(exact, probabilities(checkpoint, precision="fp32"))
    assert 0 < np.abs(exact - near).max() < CLOSE
    assert np.ptp(exact[:, 0]) > 2 * CLOSE  # the texts differ by more than that
    with pytest.raises(DataError, match="--precision half: pass fp32 or bf16"):
        fairseq_adv.load(checkpoint, precision="half")


@pytest.fixture
def with_relu(checkpoint: str, tmp_path: Path) -> str:
    """Of such an encoder fairseq fuses the layers in evaluation; RoBERTa's gelu is a function of its own."""
    state = torch.load(checkpoint)
    state["cfg"]["model"].activation_fn = "relu"
    torch.save(state, tmp_path / "relu.pt")
    return str(tmp_path / "relu.pt")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fp32_is_computed_without_autocast(with_relu: str) -> None:
    """To the bit what the model itself computes, with fused layers, as it has been."""
    trained = load(with_relu, None, ["valid"], cpu=True)
    (sample,) = trained.batches("valid", 100)
    trained.model.eval()
    with torch.no_grad():
        expected = trained.objective.predict(trained.model, sample)
        with trained.autocast():
            assert torch.equal(trained.objective.predict(trained.model, sample), expected)
    assert not any(getattr(module, "ever_training", False) for module in trained.model.modules())


def test_every_product_is_in_bf16_and_the_weights_are_not(with_relu: str) -> None:
    """Also in fairseq's layers, whose fused form torch does not autocast."""
    trained = load(with_relu, None, ["valid"], cpu=True, precision="bf16")
    seen: dict[str, torch.dtype] = {}
    for name, module in trained.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, __, out, name=name: seen.update({name: out.dtype}))
    (sample,) = trained.batches("valid", 100)
    trained.model.eval()
    with torch.no_grad(), trained.autocast():
        trained.objective.predict(trained.model, sample)
    assert len([name for name in seen if name.endswith(".fc1")]) == 2
    assert set(seen.values()) == {torch.bfloat16}
    assert {p.dtype for p in trained.model.parameters()} == {torch.float32}


def test_scores_of_prepared_data_are_kept_apart(
    films: Path, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict = CommandMain("predict", capsys)
    words = [checkpoint, "--data", films / "data", "--split", "valid", "--out", tmp_path, "--cpu"]
    for more in ([], ["--precision", "bf16"], ["--precision", "fp32"]):
        done = predict(*words, *more)
        assert done.returncode == 0, done.stderr
    near, exact = kept(tmp_path)  # bf16 is in the name
    assert near.log_probs.dtype == exact.log_probs.dtype == near.raw.dtype == np.float32
    assert "precision" not in exact.made_from and near.made_from["precision"] == "bf16"
    difference = np.abs(np.exp(near.log_probs) - np.exp(exact.log_probs)).max()
    assert 0 < difference < CLOSE


@pytest.mark.parametrize(
    ("verb", "more", "losses"),
    [
        ("validate", [], ["loss"]),
        ("attack", ["--epsilon", "0.5", "--relative", "--steps", "3"], ["loss", "perturbed_loss"]),
    ],
)
def test_losses(
    verb: str, more: list[str], losses: list[str], checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, command = [checkpoint, *more, "--cpu", "--json"], CommandMain(verb, capsys)
    default, exact, near = (
        json.loads(command(*words, *how).stdout)
        for how in ([], ["--precision", "fp32"], ["--precision", "bf16"])
    )
    assert default == exact
    assert all(0 < abs(near[name] - exact[name]) < CLOSE for name in losses)
    assert near[losses[-1]] > near["loss"] + CLOSE or verb == "validate"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_ball_is_the_same(checkpoint: str, precision: str) -> None:
    """Its radius is a ten-thousandth of the embeddings' norm, which bf16 would round away."""
    trained = load(checkpoint, None, ["valid"], cpu=True, precision=precision)
    (sample,) = trained.batches("valid", 100)
    seen: list[torch.Tensor] = []
    trained.model.encoder.sentence_encoder.layernorm_embedding.register_forward_pre_hook(  # type: ignore
        lambda _, inputs: seen.append(inputs[0].detach())
    )
    how = Attack(1e-4, 5e-5, steps=4, relative=True)
    attack(trained.model, trained.objective, [sample], how, trained.autocast)
    assert seen[0].dtype == seen[-1].dtype == torch.float32
    moved = (seen[-1] - seen[0]).flatten(1).norm(dim=1)
    embedded = trained.model.encoder.sentence_encoder.embed_tokens(  # type: ignore
        sample["net_input"]["src_tokens"]
    )
    torch.testing.assert_close(moved, 1e-4 * embedded.flatten(1).norm(dim=1), rtol=0.05, atol=0)


def test_two_precisions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(DataError, match="--precision bf16: pass fp32 or bf16, and not both"):
        InferenceConfig(fp16=True, precision="bf16")
