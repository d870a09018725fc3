"""The gradient accordance of saved checkpoints."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from support import batch, build, train_args, write_questions, write_task

from fairseq_adv.evaluation.figures.accordance_checkpoints import Probing, probe_checkpoints
from fairseq_adv.evaluation.figures.gaussian_noise import mean_loss
from fairseq_adv.evaluation.trained import Trained, load
from fairseq_adv.flooding_x import AccordanceProbe

HOW = Probing(batches=4, batch_size=4, seed=3)


def save(run: SimpleNamespace, path: Path, updates: int) -> Path:
    """A checkpoint after so many updates, with weights of its own."""
    generator = torch.Generator().manual_seed(updates)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    run.trainer.set_num_updates(updates)
    path.parent.mkdir(exist_ok=True)
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return path


@pytest.fixture
def run(tmp_path: Path) -> SimpleNamespace:
    return build(train_args(write_task(tmp_path / "data"), None, "standard"))


def test_each_checkpoint_is_measured_as_the_probe_does(run: SimpleNamespace, tmp_path: Path) -> None:
    paths = [save(run, tmp_path / "run" / f"checkpoint{n}.pt", n) for n in (20, 5)]
    curve = probe_checkpoints(paths, HOW, tmp_path / "kept", "run", cpu=True)
    assert [one.update for one in curve.measurements] == [5, 20] and curve.name == "run"
    for path, one, (update, dev_loss) in zip(paths[::-1], curve.measurements, curve.dev_loss):
        run.model.load_state_dict(load_checkpoint_to_cpu(str(path))["model"])
        objective = run.criterion.objective
        probe = AccordanceProbe(objective, run.task, "train", batches=4, batch_size=4, seed=3)
        expected = probe.measure(run.model)
        assert one.cosine == pytest.approx(expected.cosine, rel=1e-4)
        assert one.train_loss == pytest.approx(expected.loss, rel=1e-5)
        whole = [batch(run, list(range(8)), "valid")]
        assert (update, dev_loss) == (
            one.update,
            pytest.approx(mean_loss(run.model, objective, whole), rel=1e-5),
        )
    first, second = (one.cosine["all"] for one in curve.measurements)
    assert first != pytest.approx(second, rel=1e-3)


def test_what_was_measured_is_kept_and_other_settings_are_measured_anew(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(run, tmp_path / "run" / "checkpoint1.pt", 5)
    kept = tmp_path / "kept"
    first = probe_checkpoints([path], HOW, kept, "run", cpu=True)
    loads: list[str] = []

    def counted(path: str, *rest: Any) -> Trained:
        loads.append(path)
        return load(path, *rest)

    monkeypatch.setattr("fairseq_adv.evaluation.figures.accordance_checkpoints.load", counted)
    assert probe_checkpoints([path], HOW, kept, "run", cpu=True) == first and not loads
    other = probe_checkpoints([path], Probing(batches=4, batch_size=4, seed=4), kept, "run", cpu=True)
    assert other.measurements[0].cosine != first.measurements[0].cosine and len(loads) == 1
    save(run, path, 6)
    assert probe_checkpoints([path], HOW, kept, "run", cpu=True).measurements[0].update == 6
    assert len(loads) == 2


def test_of_two_after_the_same_update_the_first_counts(
    run: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [save(run, tmp_path / "run" / name, 5) for name in ("checkpoint1.pt", "checkpoint_last.pt")]
    with caplog.at_level(logging.WARNING):
        curve = probe_checkpoints(paths, HOW, tmp_path / "kept", "run", cpu=True)
    alone = probe_checkpoints(paths[:1], HOW, tmp_path / "kept", "run", cpu=True)
    assert curve == alone
    assert "checkpoint_last.pt: left out" in caplog.text and "also has 5 updates" in caplog.text


def test_rows_that_are_too_long_for_the_model_are_left_out_as_in_training(tmp_path: Path) -> None:
    """The data have rows of 5 to 10 tokens; the model has no position for the eighth."""
    short = ["--max-positions", "7", "--skip-invalid-size-inputs-valid-test"]
    run = build(train_args(write_task(tmp_path / "data", train=40), None, "standard", *short))
    path = save(run, tmp_path / "run" / "checkpoint1.pt", 5)
    curve = probe_checkpoints([path], Probing(batches=3, batch_size=4), tmp_path / "kept", "run", cpu=True)
    rows = [row for row in range(8) if run.task.dataset("valid").size(row) <= 7]
    assert 0 < len(rows) < 8
    expected = mean_loss(run.model, run.criterion.objective, [batch(run, rows, "valid")])
    assert curve.dev_loss == [(5, pytest.approx(expected, rel=1e-5))]


def test_what_cannot_be_measured_is_said(run: SimpleNamespace, tmp_path: Path) -> None:
    path = save(run, tmp_path / "run" / "checkpoint1.pt", 5)
    with pytest.raises(FileNotFoundError, match=r"gone\.pt: no such checkpoint"):
        probe_checkpoints([tmp_path / "gone.pt"], HOW, tmp_path / "kept", "run", cpu=True)
    with pytest.raises(ValueError, match="no split 'dev'"):
        probe_checkpoints([path], Probing(valid_split="dev"), tmp_path / "kept", "run", cpu=True)
    data = write_questions(tmp_path / "questions")
    ranking = build(train_args(data, None, "standard", task="commonsense_qa"))
    path = save(ranking, tmp_path / "ranking" / "checkpoint1.pt", 5)
    with pytest.raises(ValueError, match="classes"):
        probe_checkpoints([path], HOW, tmp_path / "kept", "run", cpu=True)
    assert not (tmp_path / "kept").exists()
