"""Attacks on checkpoints of every task."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import build, train_args, write_questions, write_task, write_wsc

from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.trained import attack_checkpoint

WRITERS = {"sentence_prediction": write_task, "commonsense_qa": write_questions, "wsc": write_wsc}


@pytest.mark.filterwarnings("error:'pin_memory'")  # torch's, without a GPU
@pytest.mark.parametrize("task", WRITERS)
def test_an_attack_raises_the_loss_of_a_checkpoint(tmp_path: Path, task: str) -> None:
    """Norms over all rows of an example; the same whatever the batches are."""
    data = WRITERS[task](tmp_path / "data")
    run = build(train_args(data, None, "standard", "--no-save-optimizer-state", task=task))
    run.trainer.save_checkpoint(str(tmp_path / "model.pt"), {})
    how = Attack(epsilon=0.5, step_size=0.2, steps=3)
    found = attack_checkpoint(str(tmp_path / "model.pt"), how, cpu=True)
    assert found["examples"] == 8 and found["perturbed_loss"] > found["loss"] + 1e-3
    assert 0 <= found["perturbed_accuracy"] <= found["accuracy"] <= 100
    parts = attack_checkpoint(str(tmp_path / "model.pt"), how, batch_size=3, cpu=True)
    assert parts == pytest.approx(found, rel=1e-4)
    with pytest.raises(ValueError, match="no split 'other'"):
        attack_checkpoint(str(tmp_path / "model.pt"), how, split="other", cpu=True)
