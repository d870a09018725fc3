"""Options of flooding out of range, or without effect, are refused before training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import build, train_args, write_corpus, write_questions, write_task, write_wsc

AUTO = ["--flood-level", "auto", "--accordance-interval", "5"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --flood-level: pass b in nats"),
        (["--flood-level", "x"], "--flood-level x: pass a finite number of nats"),
        (["--flood-level=-0.1"], "--flood-level -0.1: pass a finite number"),
        (["--flood-level", "nan"], "--flood-level nan"),
        (["--flood-level", "inf"], "--flood-level inf"),
        (["--flood-level", "auto"], "--flood-level auto: pass --accordance-interval"),
        ([*AUTO, "--accordance-interval", "-1"], "--accordance-interval -1: pass a number of updates"),
        ([*AUTO, "--accordance-batches", "1"], "--accordance-batches 1: pass 2 or more"),
        ([*AUTO, "--accordance-batch-size", "0"], "--accordance-batch-size 0: pass 1 or more"),
        ([*AUTO, "--accordance-groups", "all,body"], "--accordance-groups all,body: pass some of all"),
        ([*AUTO, "--accordance-groups", "all,all"], "--accordance-groups all,all: pass some of"),
        ([*AUTO, "--accordance-groups", "head"], "--flood-crossing-group all: add it to --accordance-groups"),
        ([*AUTO, "--ddp-backend", "fully_sharded"], "fully_sharded: .* pass --ddp-backend pytorch_ddp"),
        (["--flood-level", "1", "--adv-lr", "0.3"], "--adv-lr has no effect with --base-method standard: "
         "pass --base-method freelb or pgd"),
        (["--flood-level", "1", "--no-adv-share-dropout"], "--no-adv-share-dropout has no effect"),
        (["--flood-level", "1", "--base-method", "freelb", "--vat-alpha", "3"],
         "--vat-alpha has no effect with --base-method freelb: pass --base-method alum_vat or smart"),
        (["--flood-level", "1", "--base-method", "alum_vat", "--smart-mu", "3"],
         "--smart-mu has no effect .* pass --base-method smart"),
        (["--flood-level", "1", "--base-method", "freelb", "--flood-scope", "micro-batch"],
         "--flood-scope micro-batch --base-method freelb: .* pass --flood-scope update"),
        (["--flood-level", "1", "--base-method", "freelb", "--adv-steps", "0"], "--adv-steps 0"),
        (["--flood-level", "1", "--base-method", "smart"], "needs the average of the weights"),
    ],
)  # fmt: skip
def test_refused(data: Path, words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, "flooding", *words))


@pytest.mark.parametrize("task", ["regression", "commonsense_qa", "wsc", "masked_lm"])
def test_accordance_needs_classes(tmp_path: Path, task: str) -> None:
    """Flooding itself does not."""
    write = {"commonsense_qa": write_questions, "wsc": write_wsc, "masked_lm": write_corpus}.get(task)
    data = write(tmp_path) if write else write_task(tmp_path, classes=1)
    name, classes = (task, 2) if write else ("sentence_prediction", 1)
    build(train_args(data, None, "flooding", "--flood-level", "0.1", task=name, classes=classes))
    with pytest.raises(ValueError, match="classes"):
        build(train_args(data, None, "flooding", *AUTO, task=name, classes=classes))


def test_a_switch_that_yaml_has_as_a_boolean_is_the_default(data: Path) -> None:
    words = ["--flood-level", "1", "--vat-share-dropout", "True"]
    build(train_args(data, None, "flooding", *words))


def test_too_little_data_is_refused_before_the_first_update(data: Path) -> None:
    run = build(train_args(data, None, "flooding", *AUTO, "--accordance-batch-size", "16"))
    with pytest.raises(ValueError, match="--accordance-batch"):
        run.trainer.begin_epoch(1)
