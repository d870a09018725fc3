"""Pre-training on shards that is stopped or killed goes on as if it had not been: losses and weights to the
bit.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from support import fairseq_train, killed_training, weights

from fairseq_adv.fairseq_patches.checkpoint_files import is_inference_copy

# Adam and a schedule, so that a wrong state shows. Checkpoints lie in the middle of the shards: their ends
# are updates 9, 20, 31 (7, 15, 23, 30 with two workers), and none of them saves.
RUN = [
    "--lr", "0.003", "--lr-scheduler", "polynomial_decay", "--total-num-update", "60",
    "--warmup-updates", "5", "--save-interval-updates", "8", "--keep-interval-updates", "1",
    "--no-epoch-checkpoints", "--save-interval", "100", "--max-update", "42",
]  # fmt: skip
VAT = ["--vat-alpha", "10", "--vat-steps", "1"]
# What a line of the log says of the machine and of earlier updates, not of its own update.
CLOCKS = ("wps", "ups", "wpb", "bsz", "wall", "train_wall", "gb_free", "epoch")
LOGGED = re.compile(r"\| train_inner \| (\{.*\})")

Losses = dict[int, dict[str, str]]


def losses(text: str) -> Losses:
    """Every number that fairseq logged of an update, by the number of the update."""
    found: Losses = {}
    for line in LOGGED.findall(text):
        values = json.loads(line)
        found[int(values["num_updates"])] = {k: v for k, v in values.items() if k not in CLOCKS}
    return found


def killed(args: list[str], workers: int, after: int) -> Losses:
    """A run whose processes all get SIGKILL once it has logged an update; what it had logged."""
    text = killed_training(args, workers, lambda line: max(losses(line), default=0) >= after)
    assert max(losses(text), default=0) >= after, text[-3000:]
    assert "done training" not in text, "the run was over before it was killed"
    return losses(text)


def checkpoint(save: Path) -> tuple[int, int, int]:
    """Update, shard and batches of the shard that a run's last checkpoint has behind it."""
    state = torch.load(save / "checkpoint_last.pt")
    place = state["extra_state"]["train_iterator"]
    return state["optimizer_history"][-1]["num_updates"], place["epoch"], place["iterations_in_epoch"]


def assert_same(found: Losses, expected: Losses) -> None:
    for update, values in found.items():
        assert values == expected[update], f"update {update}"


def assert_ends_alike(one: Path, other: Path) -> None:
    left, right = weights(one / "checkpoint_last.pt"), weights(other / "checkpoint_last.pt")
    assert left.keys() == right.keys()
    for name in right:  # fairseq's own masked_lm saves copies for inference, made when a run is restarted
        assert is_inference_copy(name, right) or torch.equal(left[name], right[name]), name


@pytest.mark.slow  # stopped there, a test below; killed, test_equal_updates.py
@pytest.mark.parametrize(("criterion", "workers", "loaders"), [("masked_lm", 1, 1), ("alum_vat", 2, 0)])
@pytest.mark.timing
def test_kill_9_in_the_middle_of_a_shard(tmp_path: Path, criterion: str, workers: int, loaders: int) -> None:
    """Three shards twice. The run is killed twice, each time in the middle of a shard."""
    data = write_shards(tmp_path / "data", 3, rows=70)
    extra = [
        *RUN, *(VAT if criterion != "masked_lm" else []), "--max-epoch", "6", "--num-workers", str(loaders),
        "--batch-size", "3" if workers == 1 else "2",
    ]  # fmt: skip
    straight = pretraining_args(data, tmp_path / "straight", criterion, *extra)
    whole = losses(fairseq_train(*straight, workers=workers).stdout)
    args = pretraining_args(data, tmp_path / "killed", criterion, *extra)
    first = killed(args, workers, after=12)
    update, shard, batches = checkpoint(tmp_path / "killed")
    assert shard >= 1 and batches > 0 and update <= max(first) + 1, "the checkpoint is not from mid-shard"
    second = killed(args, workers, after=27)
    assert min(second) == update + 1, "the second run went on from the first's checkpoint"
    third = losses(fairseq_train(*args, workers=workers).stdout)
    assert max(third) == max(whole) and len(whole) == max(whole) == 42
    for part in (first, second, third):
        assert_same(part, whole)
    assert_ends_alike(tmp_path / "killed", tmp_path / "straight")


def test_the_curriculum_of_one_run_stopped_before_and_after_its_switch(tmp_path: Path) -> None:
    """Masking rates by shard and plain training before VAT, as BERT from scratch; stopped twice."""
    data = write_shards(tmp_path / "data", 2, rows=70)
    extra = [
        *RUN, *VAT, "--vat-start-update", "14", "--mask-prob-schedule", "0.1,0.2,0.3", "--max-epoch", "6",
        "--num-workers", "0", "--batch-size", "4",
    ]  # fmt: skip
    task = "scheduled_masked_lm"
    done = fairseq_train(*pretraining_args(data, tmp_path / "straight", "alum_vat", *extra, task=task))
    whole = losses(done.stdout)
    assert ["vat_norm_inf" in whole[update] for update in sorted(whole)] == [u > 14 for u in sorted(whole)]
    args = pretraining_args(data, tmp_path / "stopped", "alum_vat", *extra, task=task)
    last = 0
    for stop in (10, 18, max(whole)):
        done = fairseq_train(*args, "--max-update", str(stop))
        part = losses(done.stdout)
        assert (min(part), max(part)) == (last + 1, stop)
        assert_same(part, whole)
        if stop < max(whole):
            update, _, batches = checkpoint(tmp_path / "stopped")
            assert update == stop and batches > 0, "stopped in the middle of a shard"
        last = stop
    assert_ends_alike(tmp_path / "stopped", tmp_path / "straight")
