"""Attacks on masked-LM checkpoints, which have no classes but masked positions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from corpus_shards import pretraining_args, write_shards
from support import build

from fairseq_adv.evaluation.attack import Attack, attack_checkpoint

HOW = Attack(epsilon=0.5, step_size=0.2, steps=3)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Written with fairseq's own criterion; the validation split has three mini-batches of 4 rows."""
    data = write_shards(tmp_path / "data", shards=2, valid=60)
    args = pretraining_args(
        data, tmp_path / "save", "masked_lm", "--no-save-optimizer-state", "--max-positions", "24"
    )
    run = build(args)
    run.trainer.save_checkpoint(str(tmp_path / "model.pt"), {})
    return tmp_path / "model.pt"


def clean_loss(path: Path) -> tuple[float, int]:
    """(mean loss in nats, masked positions) of the validation split, from logits at every position."""
    from fairseq import checkpoint_utils

    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    task.load_dataset("valid")
    data = task.dataset("valid")
    data.set_epoch(1)
    model = models[0].eval()
    total, count = 0.0, 0
    for i in range(len(data)):
        sample = data.collater([data[i]])
        with torch.no_grad():
            logits, _ = model(**sample["net_input"])
        total += F.cross_entropy(logits[0], sample["target"][0], ignore_index=1, reduction="sum").item()
        count += int(sample["target"].ne(1).sum())
    return total / count, count


def test_means_are_over_the_masked_positions(checkpoint: Path) -> None:
    loss, masked = clean_loss(checkpoint)
    found = attack_checkpoint(str(checkpoint), HOW, batch_size=4, cpu=True)
    assert found["examples"] == masked
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    assert found["perturbed_loss"] > found["loss"] + 1e-2
    assert found["perturbed_accuracy"] < found["accuracy"]


def test_only_so_many_batches(checkpoint: Path) -> None:
    whole = attack_checkpoint(str(checkpoint), HOW, batch_size=4, cpu=True)
    part = attack_checkpoint(str(checkpoint), HOW, batch_size=4, cpu=True, batches=1)
    assert 0 < part["examples"] < whole["examples"] / 2
    assert attack_checkpoint(str(checkpoint), HOW, batch_size=4, cpu=True, batches=999) == whole


def test_a_missing_split_is_told(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match=r"shard0: no split 'other' \(other.idx\)"):
        attack_checkpoint(str(checkpoint), HOW, split="other", cpu=True)
