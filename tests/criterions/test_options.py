"""Options out of range and runs that would be pointless are refused with a message, before training."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from support import build, command, run_command, train_args, write_task
from torch import nn


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize("method", ["freelb", "pgd"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--adv-steps", "0", "--adv-steps 0: pass 1 or more"),
        ("--adv-lr", "-0.1", "--adv-lr -0.1: pass a finite step length"),
        ("--adv-lr", "inf", "--adv-lr inf"),
        ("--adv-max-norm", "nan", "--adv-max-norm nan: pass a finite radius"),
        ("--adv-init-mag", "-1", "--adv-init-mag -1.0: pass a finite magnitude"),
        ("--adv-start-update", "-1", "--adv-start-update -1: pass 0 or more"),
    ],
)
def test_options_out_of_range(data: Path, method: str, option: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, method, f"{option}={value}"))


def test_an_unknown_norm_is_refused_by_the_parser(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build(train_args(data, None, "freelb", "--adv-norm-type", "l7"))
    assert "invalid choice: 'l7'" in capsys.readouterr().err


def test_a_missing_restore_file_stops_the_run_before_the_first_update(data: Path, tmp_path: Path) -> None:
    """fairseq 0.12.2 itself logs one line and trains from random weights."""
    missing = tmp_path / "roberta.pt"
    args = train_args(data, tmp_path / "save", "freelb", "--restore-file", str(missing))
    done = run_command(command("fairseq-train"), *args)
    assert done.returncode != 0
    assert f"--restore-file {missing}: no such file" in done.stderr
    assert "train_inner" not in done.stdout + done.stderr
    assert not (tmp_path / "save" / "crash.pt").exists()


def test_a_model_without_a_perturbable_embedding_is_refused_before_training(data: Path) -> None:
    run = build(train_args(data, None))
    with pytest.raises(ValueError, match="no single token embedding"):
        run.task.begin_epoch(1, nn.Linear(2, 2))


def test_a_model_without_the_classification_head_is_refused_before_training(data: Path) -> None:
    run = build(train_args(data, None))
    del run.model.classification_heads["sentence_classification_head"]
    with pytest.raises(ValueError, match="no classification head named 'sentence_classification_head'"):
        run.task.begin_epoch(1, run.model)


def test_a_task_with_its_own_training_step_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentencePredictionTask, "train_step", lambda *a, **k: None, raising=False)
    with pytest.raises(ValueError, match="its own training step, which --criterion freelb would replace"):
        build(train_args(data, None))


def test_the_task_s_own_begin_epoch_still_runs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(SentencePredictionTask, "begin_epoch", lambda self, epoch, model: seen.append(epoch))
    run = build(train_args(data, None))
    run.task.begin_epoch(3, run.model)
    assert seen == [3]


def test_training_starts_plainly_until_adv_start_update(data: Path) -> None:
    from support import batch

    run = build(train_args(data, None, "freelb", "--adv-start-update", "1"))
    sample = batch(run, [0, 1])
    logs = []
    for update in (0, 1):
        run.trainer.zero_grad()
        torch.manual_seed(0)
        *_, log = run.task.train_step(
            sample, run.model, run.criterion, run.trainer.optimizer, update_num=update
        )
        logs.append(log)
    assert logs[0]["nexamples"] == 0 and logs[1]["nexamples"] == 2
    # The same names in the same order, which a worker that ran out of memory sums zeros under.
    assert list(logs[0]) == list(logs[1])


@pytest.mark.parametrize("method", ["pgd", "yopo", "alum_vat", "smart", "creat"])
def test_sharded_weights_are_refused_where_passes_freeze_them(data: Path, method: str) -> None:
    words = ["--ddp-backend", "fully_sharded", "--store-ema"]
    with pytest.raises(ValueError, match=f"fully_sharded with --criterion {method}: .* pass --ddp-backend"):
        build(train_args(data, None, method, *words))


@pytest.mark.parametrize("method", ["freelb", "pgd", "freeat", "yopo", "tavat", "infobert"])
def test_every_option_has_a_help_text(method: str) -> None:
    parser = argparse.ArgumentParser()
    CRITERION_REGISTRY[method].add_args(parser)
    text = " ".join(parser.format_help().split())
    for option in ("steps", "lr", "max-norm", "init-mag", "norm-type", "start-update"):
        assert f"--adv-{option} " in text, option
    assert "--no-adv-share-dropout" in text
    if method == "freelb":
        assert "the authors' fairseq script with adv_steps=k makes k + 1 passes" in text
    assert all(action.help for action in parser._actions)
