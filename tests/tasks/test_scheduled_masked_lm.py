"""Task scheduled_masked_lm: shares of masked tokens, their targets, restarts, and what has no schedule."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from fairseq.dataclass.initialize import add_defaults, hydra_init
from hydra.core.global_hydra import GlobalHydra
from hydra.experimental import compose, initialize_config_dir
from support import PLUGIN, build, fairseq_train, logged, slow

TASK = "scheduled_masked_lm"
RATES = [0.05, 0.10, 0.15, 0.20, 0.25]
SCHEDULE = ["--mask-prob-schedule", "0.05,0.10,0.15,0.20,0.25", "--max-epoch", "5"]


def start(
    data: Path, save: Path, *extra: str, task: str = TASK, criterion: str = "masked_lm"
) -> SimpleNamespace:
    return build(pretraining_args(data, save, criterion, "--no-save", *extra, task=task))


def batches(
    run: SimpleNamespace, epochs: int, first: int = 1, workers: int = 0
) -> Iterator[list[dict[str, Any]]]:
    """The batches of each epoch, drawn as fairseq's trainer does: a new data set where the data are
    shards.
    """
    run.cfg.dataset.num_workers = workers
    sharded = run.task.has_sharded_data("train")
    iterator = run.trainer.get_train_iterator(first, disable_iterator_cache=sharded)
    while iterator.next_epoch_idx < first + epochs:
        yield list(iterator.next_epoch_itr())
        iterator = run.trainer.get_train_iterator(
            iterator.next_epoch_idx, load_dataset=sharded, disable_iterator_cache=sharded
        )


def masked(batch: dict[str, Any]) -> torch.Tensor:
    """Where there is a target."""
    return batch["target"] != 1


def words(run: SimpleNamespace) -> dict[int, list[int]]:
    """Every row of the training split before it is masked."""
    plain = run.task.dataset("train").dataset
    return {i: plain[i].tolist() for i in range(len(plain))}


@pytest.mark.parametrize("shards", [1, 2])
def test_the_share_of_masked_tokens_is_that_of_the_epoch(tmp_path: Path, shards: int) -> None:
    """Within five standard deviations of drawing each token alone (fairseq's rounding per row varies less).

    The inputs' share too: of the masked tokens 80% become <mask>.
    """
    data = write_shards(tmp_path, shards, rows=600)
    run = start(data, tmp_path / "save", *SCHEDULE, "--batch-size", "64")
    for rate, epoch in zip(RATES, batches(run, 5)):
        tokens = sum(int(batch["ntokens"]) for batch in epoch)
        targets = sum(int(masked(batch).sum()) for batch in epoch)
        mask = sum(int((batch["net_input"]["src_tokens"] == run.task.mask_idx).sum()) for batch in epoch)
        for count, share in ((targets, rate), (mask, 0.8 * rate)):
            assert abs(count - tokens * share) < 5 * math.sqrt(tokens * share * (1 - share)), (rate, share)


@pytest.mark.parametrize("workers", [0, slow(2)])
def test_source_and_target_agree_in_every_epoch(tmp_path: Path, workers: int) -> None:
    """Without a target the input is the text; with one, the target is. One shard: the same data set all
    along.
    """
    # A source that masks more than the fixed rate would have masks without a target.
    run = start(write_shards(tmp_path, 1), tmp_path / "save", *SCHEDULE, "--mask-prob", "0.01")
    for epoch in batches(run, 5, workers=workers):
        text = words(run)
        assert sum(int(masked(batch).sum()) for batch in epoch) > 5
        for batch in epoch:
            source, there = batch["net_input"]["src_tokens"], masked(batch)
            rows = [text[int(i)] for i in batch["id"]]
            for found, target, where, row in zip(source, batch["target"], there, rows):
                n = len(row)
                expected = torch.tensor(row)
                assert torch.equal(found[:n][~where[:n]], expected[~where[:n]]), (
                    "a masked input has no target"
                )
                assert torch.equal(target[:n][where[:n]], expected[where[:n]])


def test_no_row_of_an_epoch_is_left_over_from_the_one_before(tmp_path: Path) -> None:
    """fairseq's own data set keeps its last rows in a cache that isn't keyed by the epoch."""
    run = start(write_shards(tmp_path, 1, rows=8), tmp_path / "save", *SCHEDULE, "--batch-size", "1")
    uninterrupted = list(batches(run, 5))
    for first in range(2, 6):
        (alone,) = batches(
            start(Path(run.cfg.task.data), tmp_path / "save", *SCHEDULE, "--batch-size", "1"), 1, first
        )
        assert_same(alone, uninterrupted[first - 1])


def assert_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert torch.equal(one["id"], other["id"]) and torch.equal(one["target"], other["target"])
        assert torch.equal(one["net_input"]["src_tokens"], other["net_input"]["src_tokens"])


def test_validation_keeps_its_rate(tmp_path: Path) -> None:
    """The same masks in every epoch, at --mask-prob, those of stock masked_lm."""
    data = write_shards(tmp_path, 2, valid=200)
    run, stock = start(data, tmp_path / "save", *SCHEDULE), start(data, tmp_path / "save", task="masked_lm")
    expected = list(
        stock.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False, set_dataset_epoch=False)
    )
    for _ in batches(run, 3):
        found = run.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False, set_dataset_epoch=False)
        assert_same(list(found), expected)


def test_the_log_tells_the_rate(tmp_path: Path) -> None:
    data = write_shards(tmp_path, 1)
    done = fairseq_train(
        *pretraining_args(data, tmp_path / "save", "masked_lm", *SCHEDULE, "--no-save", task=TASK)
    )
    assert [log["train_mask_prob"] for log in logged(done, "train")] == RATES
    assert "epoch 2: 0.1 of the tokens are masked" in done.stdout + done.stderr
    assert not [log for log in logged(done, "valid") if "valid_mask_prob" in log]


def test_a_yaml_composes(tmp_path: Path) -> None:
    """max_epoch comes from optimization, in hydra as on the command line."""
    data = write_shards(tmp_path / "data", 1)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.yaml").write_text(
        f"# @package _group_\ncommon:\n  user_dir: {PLUGIN}\ntask:\n  _name: {TASK}\n  data: {data}\n  "
        "tokens_per_sample: 24\n  mask_prob_schedule: null\nmodel:\n  _name: roberta_base\noptimization:\n  "
        "max_epoch: 4\ncriterion:\n  _name: standard\noptimizer:\n  _name: adam\n"
    )
    from fairseq import tasks

    GlobalHydra.instance().clear()
    try:
        hydra_init("run")
        with initialize_config_dir(config_dir=str(tmp_path / "config")):
            cfg = compose(config_name="run", overrides=["task.mask_prob_schedule='0.1@1,0.2@3'"])
        add_defaults(cfg)
        task = tasks.setup_task(cfg.task)
    finally:
        GlobalHydra.instance().clear()
    assert task.cfg.max_epoch == 4 and task.cfg.train_subset == "train"
    assert [task.schedule.rate(epoch) for epoch in (1, 2, 3, 4)] == [0.1, 0.1, 0.2, 0.2]
