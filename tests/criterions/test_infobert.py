"""InfoBERT in fairseq's trainer: its bounds by hand, and its network. Its gradient: test_restated.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from support import (
    batch,
    build,
    fairseq_train,
    flat_gradient,
    train_args,
)

from criterions.restated import (
    OBJECTIVES,
    ROWS,
    one_step,
    options,
    run_of,
)
from criterions.restatements import BOUNDS
from fairseq_adv.criterions import information


def infobert(data: Path, *words: str, method: str = "infobert") -> SimpleNamespace:
    return build(train_args(data, None, method, *words))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_both_bounds_and_without_weights_it_is_freelb_to_the_bit(
    folders: dict[str, Path], objective: str
) -> None:
    off = ["--infobert-alpha", "0", "--infobert-beta", "0"]
    runs = [
        run_of(folders, objective, method, *options(), *words)
        for method, words in (("freelb", []), ("infobert", off), ("infobert", BOUNDS))
    ]
    logs = [one_step(run, batch(run, ROWS))[2] for run in runs]
    freelb, without, ours = (flat_gradient(run.model) for run in runs)
    assert torch.equal(without, freelb) and not torch.equal(ours, freelb)
    assert logs[1]["infobert_upper"] == 0 and logs[2]["infobert_upper"] > 0
    assert logs[2]["infobert_lower"].isfinite() and logs[2]["infobert_lower"] != 0
    assert runs[2].criterion.estimate.first.weight.grad.any()


def test_the_upper_bound_by_hand() -> None:
    """Two words and padding: each is paired with itself, or both with the other."""
    states = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [99.0, 99.0]]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    draws = torch.Generator().manual_seed(0)
    found = [information.upper_bound(states, mask, draws) for _ in range(60)]
    assert {bound.item() for bound in found} == {0.0, 12.5}
    share = sum(bound > 0 for bound in found) / len(found)
    assert 0.25 < float(share) < 0.75  # a fresh permutation each time
    sum(found).backward()  # type: ignore[union-attr]
    assert states.grad is not None and states.grad[0, :2].any() and not states.grad[0, 2].any()
    nothing = information.upper_bound(states, torch.zeros_like(mask), draws)
    assert nothing == 0


def test_anchored_tokens_by_hand() -> None:
    """Of 5 words those of rank ceil(2.5) = 3 and 4 of the gradient's norm; of 2 that of rank 1. At .8 rank 4
    of the 5 is one too many.
    """
    norms = torch.tensor([[5.0, 1.0, 0.0, 4.0, 2.0, 3.0], [9.0, 8.0, 1.0, 2.0, 3.0, 0.0]])
    mask = torch.tensor([[True, True, False, True, True, True], [True, True, False, False, False, False]])
    gradient = norms.unsqueeze(-1) * torch.tensor([0.6, 0.8])
    assert information.anchored(gradient, mask, 0.5, 0.9).nonzero().tolist() == [[0, 0], [0, 3], [1, 0]]
    assert information.anchored(gradient, mask, 0.5, 0.8).nonzero().tolist() == [[0, 3], [1, 0]]
    assert not information.anchored(gradient, torch.zeros_like(mask), 0.5, 0.9).any()


def test_the_lower_bound_of_chunks_that_are_not_full_and_of_none() -> None:
    """5 pairs in chunks of 2 rows' size, the last with one: it tells nothing. No pair: 0, with a gradient."""
    torch.manual_seed(1)
    network = information.InfoNCE(4)
    x, y = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    real = torch.tensor([[True, True], [True, True], [True, False]])
    scores = F.softplus(
        network.last(
            F.relu(
                network.first(
                    torch.cat([x.unsqueeze(1).expand(3, 2, 2, 4), y.unsqueeze(2).expand(3, 2, 2, 4)], -1)
                )
            )
        )
    ).squeeze(-1)
    bounds = [sum(scores[c, a, a] - scores[c, a].exp().mean().log() for a in range(2)) / 2 for c in range(2)]
    torch.testing.assert_close(network(x, y, real), (bounds[0] + bounds[1] + 0) / 3)
    nothing = network(x, y, torch.zeros_like(real))
    nothing.backward()
    assert nothing == 0 and all(not p.grad.any() for p in network.parameters())


@pytest.mark.parametrize(("level", "is_flooded"), [("0", False), ("0.01", True)])
def test_a_loss_below_0_is_flooded_only_with_a_level(data: Path, level: str, is_flooded: bool) -> None:
    """J = L + beta I - alpha I_low may be below 0, and --flood-level 0 floods nothing."""
    run = infobert(data, *options(), *BOUNDS, "--flood-level", level, "--optimizer", "sgd", "--lr", "0")
    flood, signs = run.criterion.flood, []
    flood.add({"loss": torch.tensor(-2.0), "sample_size": 4})
    run.trainer.optimizer.multiply_grads = signs.append
    flood.before_step(run.trainer.optimizer, run.model)
    assert signs == [-1.0] * is_flooded


def test_the_network_is_trained_and_has_its_own_seed(data: Path) -> None:
    run = infobert(data, *options(), *BOUNDS, "--optimizer", "sgd", "--lr", "0.1")
    before = [p.detach().clone() for p in run.criterion.parameters()]
    again, other = (infobert(data, *options(), "--seed", seed).criterion for seed in ("7", "8"))
    assert torch.equal(before[0], again.estimate.first.weight)
    assert not torch.equal(before[0], other.estimate.first.weight)
    run.trainer.train_step([batch(run, ROWS)])
    assert all(not torch.equal(p, old) for p, old in zip(run.criterion.parameters(), before))


@pytest.mark.parametrize(
    ("method", "option"), [("freelb", "--finetune-from-model"), ("infobert", "--restore-file")]
)
def test_a_new_run_starts_from_any_checkpoint_with_a_new_network(
    data: Path, tmp_path: Path, option: str, method: str
) -> None:
    """One that has no network, and one that has."""
    fairseq_train(*train_args(data, tmp_path / "first", method, *options(), "--max-epoch", "1"))
    start = tmp_path / "first" / "checkpoint_last.pt"
    resets = ["--reset-optimizer", "--reset-dataloader", "--reset-lr-scheduler", "--reset-meters"]
    words = [option, str(start), *(resets if option == "--restore-file" else []), *options()]
    run = build(train_args(data, tmp_path / "second", "infobert", *words))
    fresh = run.criterion.estimate.first.weight.detach().clone()
    checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
    assert torch.equal(run.criterion.estimate.first.weight, fresh)


def test_a_run_that_goes_on_has_its_network_and_another_method_starts_from_it(
    data: Path, tmp_path: Path
) -> None:
    words = [*options(), *BOUNDS, "--max-epoch", "1", "--lr", "0.01", "--optimizer", "adam"]
    fairseq_train(*train_args(data, tmp_path, "infobert", *words))
    kept = torch.load(tmp_path / "checkpoint_last.pt")
    run = build(train_args(data, tmp_path, "infobert", *words))
    fresh = run.criterion.estimate.first.weight.detach().clone()
    checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
    assert torch.equal(
        run.criterion.estimate.first.weight, kept["criterion"]["estimate.first.weight"].to(fresh)
    )
    assert not torch.equal(run.criterion.estimate.first.weight, fresh)
    assert not [name for name in kept["model"] if "estimate" in name]
    other = ["--finetune-from-model", str(tmp_path / "checkpoint_last.pt"), *options()]
    run = build(train_args(data, tmp_path / "other", "freelb", *other))
    checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "checkpoint_last.pt")])
    name = "encoder.sentence_encoder.embed_tokens.weight"
    assert torch.equal(models[0].state_dict()[name], run.model.state_dict()[name])


def test_recomputed_activations_are_refused_before_training(data: Path) -> None:
    run = infobert(data)
    for layer in run.model.encoder.sentence_encoder.layers:
        checkpoint_wrapper(layer)
    with pytest.raises(ValueError, match=r"activation checkpointing, .* Leave checkpoint_activations out"):
        run.trainer.begin_epoch(1)
