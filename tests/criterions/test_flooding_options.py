"""Options of flooding out of range, or without effect, are refused before training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import build, train_args, write_corpus, write_questions, write_task, write_wsc
from token_data import write_spans

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
        (["--flood-level", "auto"], "--flood-level auto: also pass --accordance-interval"),
        ([*AUTO, "--accordance-interval", "-1"], "--accordance-interval -1: pass a number of updates"),
        ([*AUTO, "--accordance-batches", "1"], "--accordance-batches 1: pass 2 or more"),
        ([*AUTO, "--accordance-batch-size", "0"], "--accordance-batch-size 0: pass 1 or more"),
        ([*AUTO, "--accordance-groups", "all,body"], "--accordance-groups all,body: pass one or more of all"),
        ([*AUTO, "--accordance-groups", "all,all"], "--accordance-groups all,all: pass one or more of"),
        ([*AUTO, "--accordance-groups", "head"], "--flood-crossing-group all: add it to --accordance-groups"),
        ([*AUTO, "--ddp-backend", "fully_sharded"], "fully_sharded: .* pass --ddp-backend pytorch_ddp"),
    ],
)  # fmt: skip
def test_refused(data: Path, words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, "flooding", *words))


@pytest.mark.parametrize("task", ["regression", "commonsense_qa", "wsc", "masked_lm", "span_qa"])
def test_accordance_needs_classes(tmp_path: Path, task: str) -> None:
    """Flooding itself does not."""
    write = {"commonsense_qa": write_questions, "wsc": write_wsc, "masked_lm": write_corpus}.get(task)
    write = write_spans if task == "span_qa" else write
    data = write(tmp_path) if write else write_task(tmp_path, classes=1)
    name, classes = (task, 2) if write else ("sentence_prediction", 1)
    build(train_args(data, None, "flooding", "--flood-level", "0.1", task=name, classes=classes))
    with pytest.raises(ValueError, match="classes"):
        build(train_args(data, None, "flooding", *AUTO, task=name, classes=classes))


@pytest.mark.parametrize("method", ["freelb", "yopo", "tavat", "infobert"])
def test_a_loss_of_several_backwards_cannot_be_flooded_per_micro_batch(data: Path, method: str) -> None:
    words = ["--flood-level", "1", "--flood-scope", "micro-batch"]
    with pytest.raises(ValueError, match=f"micro-batch with --criterion {method}: .* --flood-scope update"):
        build(train_args(data, None, method, *words))


@pytest.mark.parametrize(
    "method",
    [
        "standard",
        "freelb",
        "pgd",
        "freeat",
        "yopo",
        "tavat",
        "infobert",
        "alum_vat",
        "smart",
        "noise",
        "r3f",
        "creat",
    ],
)
def test_options_out_of_range_are_refused_with_every_method(data: Path, method: str) -> None:
    with pytest.raises(ValueError, match="--flood-level auto: also pass --accordance-interval"):
        build(train_args(data, None, method, "--flood-level", "auto", "--store-ema"))


def test_base_method_is_gone_and_not_ignored(data: Path) -> None:
    with pytest.raises(ValueError, match=r"pass --criterion freelb --flood-level 0\.1$"):
        build(train_args(data, None, "flooding", "--flood-level", "0.1", "--base-method", "freelb"))


def test_too_little_data_is_refused_before_the_first_update(data: Path) -> None:
    run = build(train_args(data, None, "flooding", *AUTO, "--accordance-batch-size", "16"))
    with pytest.raises(ValueError, match="--accordance-batch"):
        run.trainer.begin_epoch(1)


def test_training_without_classes_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"this task has none.* Pass a number as --flood-level, and leave --accorda"
    ):
        build(train_args(write_questions(tmp_path), None, "flooding", *AUTO, task="commonsense_qa"))
