"""Commands that are called again, with other options, in a folder that has a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from support import (
    ADVERSARIAL,
    command,
    fairseq_train,
    fork_command,
    launched,
    logged,
    run_command,
    slow,
    train_args,
    weights,
    write_task,
)

# Plain gradient descent shows differences of rounding as what they are.
PLAIN = ["--optimizer", "sgd", "--lr", "0.1", "--no-epoch-checkpoints"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", train=16)


@pytest.fixture(scope="module")
def stopped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint of three updates; an epoch has four."""
    folder = tmp_path_factory.mktemp("save")
    fairseq_train(*args(data, folder, "--max-update", "3"))
    return folder


@pytest.fixture
def save(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path / "save")
    return tmp_path / "save"


def args(data: Path, save: Path, *more: str) -> list[str]:
    return train_args(data, save, "freelb", *ADVERSARIAL, *PLAIN, *more)


def last(save: Path) -> dict[str, torch.Tensor]:
    return weights(save / "checkpoint_last.pt")


@pytest.mark.parametrize("workers", [slow(1), 2])
def test_they_are_refused_with_one_line(data: Path, save: Path, workers: int) -> None:
    """All workers end together, and only the first says why."""
    before = (save / "checkpoint_last.pt").read_bytes()
    words = args(data, save, "--lr", "0.2", "--batch-size", str(4 // workers), "--adv-steps", "2")
    done = run_command(*launched([command("fairseq-train"), *words], workers))
    assert done.returncode == 1 and not logged(done, "train_inner")
    assert (
        f"error: {save}/checkpoint_last.pt was made with other options, and this run would resume from it "
        "(--lr: 0.1 -> 0.2; --adv-steps: 3 -> 2). Pass another --save-dir (checkpoint.save_dir; in a sweep "
        "one per job), or --allow-changed-options (criterion.allow_changed_options=true) to go on with the "
        "new options, which the checkpoint will record\n"
    ) in done.stderr
    assert done.stderr.count("made with other options") == 1
    assert "rank1]: Traceback" not in done.stderr and "trainer.py" not in done.stderr
    if workers == 1:
        assert "Traceback" not in done.stderr
    assert (save / "checkpoint_last.pt").read_bytes() == before


def test_more_epochs_go_on_to_the_end_of_a_longer_run(data: Path, save: Path, tmp_path: Path) -> None:
    """With a fixed schedule, bit for bit."""
    fairseq_train(*args(data, save, "--max-epoch", "3"))
    fairseq_train(*args(data, tmp_path / "whole", "--max-epoch", "3"))
    found, expected = last(save), last(tmp_path / "whole")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("rows", "before", "now", "updates"),
    [
        # Three mini-batches of four: the second half of the epoch is one update.
        (16, ["--batch-size", "4"], ["--update-freq", "2"], [4, 5, 6]),
        # fairseq makes 8 rows of 12 by default, so that 40 of 48 rows are seen.
        (
            48,
            ["--batch-size", "12", "--required-batch-size-multiple", "8"],
            ["--batch-size", "24"],
            [6, 7, 8],
        ),
    ],
    ids=["update-freq", "batch-size"],
)
def test_an_epoch_goes_on_near_the_same_example(
    rows: int, before: list[str], now: list[str], updates: list[int], tmp_path: Path
) -> None:
    data, save = write_task(tmp_path / "bin", train=rows), tmp_path / "save"
    fairseq_train(*args(data, save, *before, "--max-update", str(updates[0] - 1)))
    done = fairseq_train(*args(data, save, *before, *now, "--max-epoch", "2", "--allow-changed-options"))
    assert [log["num_updates"] for log in logged(done, "train_inner")] == updates


def test_a_position_past_the_end_is_the_end(data: Path, tmp_path: Path) -> None:
    """The number of mini-batches that --max-tokens makes is not known before."""
    own = args(data, tmp_path, "--batch-size", "100", "--max-epoch", "2")
    fairseq_train(*own, "--max-tokens", "18", "--max-update", "10")
    done = fairseq_train(*own, "--max-tokens", "10", "--allow-changed-options")
    epochs = [log["epoch"] for log in logged(done, "train_inner")]
    assert epochs == [2] * 16


def test_past_the_end_of_fewer_rows_is_the_end(tmp_path: Path) -> None:
    """Prepared anew at the same path, and the user agrees."""
    data, save = write_task(tmp_path / "bin", train=16), tmp_path / "save"
    fairseq_train(*args(data, save, "--max-update", "3"))
    write_task(data, train=8)
    done = fairseq_train(*args(data, save, "--max-epoch", "2", "--allow-changed-options"))
    assert [log["epoch"] for log in logged(done, "train_inner")] == [2, 2]
    told = f"resumes after update 3 with data: {data} has other rows in train and valid"
    assert (done.stdout + done.stderr).count(told) == 1


def test_past_the_end_of_a_shard_comes_the_next(tmp_path: Path) -> None:
    data = write_shards(tmp_path, 3, longest=20)
    own = [*pretraining_args(data, tmp_path / "save", "standard"), "--batch-size", "100"]
    begun = fairseq_train(*own, "--max-tokens", "24", "--max-update", "26")
    assert begun.stdout.count("loading train data") == 1
    done = fairseq_train(*own, "--max-tokens", "48", "--max-epoch", "2", "--allow-changed-options")
    before, begins, _ = done.stdout.partition("begin training epoch 2")
    assert begins and "begin training epoch 1" not in before
    assert before.rindex("shard1/train") > before.rindex("shard0/train")


@pytest.mark.parametrize("after", ["1", "2"])
def test_a_resumed_epoch_leaves_out_its_last_mini_batch_alone(data: Path, tmp_path: Path, after: str) -> None:
    own = ["--skip-remainder-batch", "--max-epoch", "2"]
    fairseq_train(*args(data, tmp_path / "whole", *own))
    fairseq_train(*args(data, tmp_path / "parts", *own, "--max-update", after))
    done = fairseq_train(*args(data, tmp_path / "parts", *own))
    assert [log["num_updates"] for log in logged(done, "train_inner")] == list(range(int(after) + 1, 7))
    found, expected = last(tmp_path / "parts"), last(tmp_path / "whole")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_epoch_of_which_nothing_is_left_is_told(data: Path, tmp_path: Path) -> None:
    """fairseq's loop would end with an UnboundLocalError."""
    words = args(data, tmp_path, "--skip-remainder-batch", "--update-freq", "1,4")
    done = fork_command("fairseq-train", *words)
    assert done.returncode == 1 and [log["epoch"] for log in logged(done, "train_inner")] == [1, 1, 1]
    told = "error: --skip-remainder-batch: epoch 2 has 4 mini-batches a worker, of which the last is left out"
    assert told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("after", ["1", "3"])
def test_other_workers_with_the_same_product_see_the_same_examples(
    data: Path, tmp_path: Path, after: str
) -> None:
    """From one worker with two mini-batches an update to two workers, in the middle of an epoch of four."""
    own = [
        "--batch-size",
        "2",
        "--update-freq",
        "2",
        "--adv-init-mag",
        "0",
    ]  # each worker draws its own start
    fairseq_train(*args(data, tmp_path / "whole", *own))
    fairseq_train(*args(data, tmp_path / "parts", *own, "--max-update", after))
    done = fairseq_train(*args(data, tmp_path / "parts", *own, "--update-freq", "1"), workers=2)
    assert "--batch-size x --update-freq x workers: 2 x 2 x 1 -> 2 x 1 x 2" in done.stdout
    assert [log["num_updates"] for log in logged(done, "train_inner")] == list(range(int(after) + 1, 9))
    found, expected = last(tmp_path / "parts"), last(tmp_path / "whole")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # on one worker: criterions/test_restart.py
def test_agreed_changes_are_told_and_recorded(data: Path, save: Path) -> None:
    """On two workers, of which only the first reads the file. The flag is no change itself."""
    more = ["--lr", "0.2", "--batch-size", "2"]
    done = fairseq_train(*args(data, save, *more, "--allow-changed-options"), workers=2)
    assert done.stdout.count("resumes after update 3 with --lr: 0.1 -> 0.2") == 1
    assert {log["lr"] for log in logged(done, "train_inner")} == {0.2}
    again = fairseq_train(*args(data, save, *more, "--max-epoch", "3"), workers=2)
    assert logged(again, "train_inner")
    state = torch.load(save / "checkpoint_last.pt")
    assert state["extra_state"]["changed_options"] == [{"update": 3, "changes": ["--lr: 0.1 -> 0.2"]}]
