"""The same update whether a batch comes whole, in micro-batches or over two processes; and after kill -9."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from methods import DIVISIBLE, METHODS, OPTIONS
from support import (
    fairseq_train,
    killed_training,
    logged,
    slow,
    tensors,
    train_args,
    weights,
    write_corpus,
    write_label_sets,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_tags

CLASSES = "sentence_prediction"
WRITE = {
    CLASSES: write_task, "commonsense_qa": write_questions, "wsc": write_wsc, "masked_lm": write_corpus,
    "tagging": write_tags, "span_qa": write_spans, "multi_label": write_label_sets,
}  # fmt: skip
# In most texts several windows, whose logits are averaged.
MORE = {"multi_label": ["--long-texts", "windows", "--shorten-method", "truncate", "--max-positions", "5"]}
# Adam's first updates divide the gradient by its own size: differences of rounding in small entries show as
# differences of up to lr = 1e-3 in a weight. Plain gradient descent shows them as what they are.
SGD = ["--optimizer", "sgd", "--lr", "0.1"]


def run(
    data: Path, save: Path, method: str, *extra: str, workers: int = 1, task: str = "sentence_prediction"
) -> dict[str, torch.Tensor]:
    words = [
        *OPTIONS[method],
        *SGD,
        "--no-epoch-checkpoints",
        "--max-epoch",
        "1",
        *MORE.get(task, []),
        *extra,
    ]
    args = train_args(data, save, method, *words, task=task)
    fairseq_train(*args, workers=workers)
    return state(save)


def state(save: Path) -> dict[str, torch.Tensor]:
    """The weights of a run's last checkpoint, tavat's table, and those of infobert's network."""
    path = save / "checkpoint_last.pt"
    checkpoint = torch.load(path)
    group = checkpoint["last_optimizer_state"]["param_groups"][0]
    table = {key: value for key, value in group.items() if key == "tavat_table"}
    return {**weights(path), **table, **(checkpoint["criterion"] or {})}


def assert_close(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], atol: float) -> None:
    assert ours.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            ours[name], expected[name], rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


# What has a sum or a table of its own over workers; test_torch_ddp.py has every method, in one process each.
WHOLE = [("tavat", CLASSES), ("alum_vat", "masked_lm"), ("alum_vat", "multi_label")]
# Each of the others once, and each task.
PAIRS = list(zip(METHODS, itertools.cycle(WRITE)))
MORE_WHOLE = [one for one in PAIRS if one[0] in DIVISIBLE and one not in WHOLE]


@pytest.mark.parametrize(("method", "task"), [*WHOLE, *(slow(*one) for one in MORE_WHOLE)])
def test_whole_equals_update_freq_equals_two_processes(tmp_path: Path, method: str, task: str) -> None:
    """One batch, its quarters as micro-batches, its halves on two workers: fp32 rounding of sums only.

    Of questions of 3 to 5 choices, sentences with and without a loss, masked words, tagged words, windows.
    """
    data = WRITE[task](tmp_path / "data")
    size = 32 if task == "span_qa" else 16  # all windows
    whole = run(data, tmp_path / "whole", method, "--batch-size", str(size), task=task)
    words = ["--batch-size", str(size // 4), "--update-freq", "4"]
    parts = run(data, tmp_path / "parts", method, *words, task=task)
    words = ["--batch-size", str(size // 2)]
    workers = run(data, tmp_path / "workers", method, *words, workers=2, task=task)
    assert_close(parts, whole, atol=3e-6)
    assert_close(workers, whole, atol=3e-6)


@pytest.mark.parametrize("method", [slow("freelb"), slow("alum_vat")])
def test_under_amp_two_workers_make_the_update_of_two_micro_batches(tmp_path: Path, method: str) -> None:
    """Which round alike in bf16, so that only the fp32 sum of their gradients differs."""
    data, words = write_task(tmp_path / "data"), ["--batch-size", "8", "--amp"]
    parts = run(data, tmp_path / "parts", method, *words, "--update-freq", "2")
    workers = run(data, tmp_path / "workers", method, *words, workers=2)
    assert_close(workers, parts, atol=2e-6)


@pytest.mark.parametrize(
    ("method", "task"), [("infobert", CLASSES), ("freelb", "span_qa"), *(slow(*one) for one in PAIRS)]
)
def test_a_process_with_a_batch_more_than_the_other(tmp_path: Path, method: str, task: str) -> None:
    """12 examples in 3 batches on two workers: the second update has a dummy batch on one of them.

    Each update must equal the update on the real examples alone.
    """
    data = WRITE[task](tmp_path / "data", train=12)
    workers = run(data, tmp_path / "workers", method, "--batch-size", "4", workers=2, task=task)
    single = run(data, tmp_path / "single", method, "--batch-size", "4", "--update-freq", "2", task=task)
    assert_close(workers, single, atol=2e-6)


@pytest.mark.parametrize("method", ["freelb", slow("flooding"), slow("freeat"), slow("alum_vat")])
def test_a_worker_whose_last_group_lacks_a_batch(tmp_path: Path, method: str) -> None:
    """28 examples in 7 batches on two workers: the second update has two of one, and one of the other."""
    data = write_task(tmp_path / "data", train=28)
    words = ["--batch-size", "4", *(["--flood-level", "0.6"] if method == "flooding" else [])]
    workers = run(data, tmp_path / "workers", method, *words, "--update-freq", "2", workers=2)
    single = run(data, tmp_path / "single", method, *words, "--update-freq", "4")
    assert_close(workers, single, atol=2e-6)


@pytest.mark.parametrize(
    ("task", "classes", "keys"),
    [slow(CLASSES, 2, ("accuracy", "mcc", "f1")), (CLASSES, 1, ("pearson", "spearman")),
     slow("tagging", 2, ("f1", "precision_Gene", "recall_Cell", "accuracy")),
     ("span_qa", 2, ("em", "f1", "best_f1", "f1_answerable")),
     ("multi_label", 2, ("micro_f1", "macro_f1", "map", "accuracy"))],
)  # fmt: skip
def test_scores_are_the_same_on_two_processes(
    tmp_path: Path, task: str, classes: int, keys: tuple[str, ...]
) -> None:
    """Windows of a question come to different workers, and one has a dummy batch from the training split."""
    more = {"span_qa": {"impossible": True}, CLASSES: {"classes": classes}}.get(task, {})
    data = WRITE[task](tmp_path / "data", valid=9, **more)
    words = ["--max-epoch", "1", "--batch-size-valid", "2", "--lr", "0"]
    words += [*MORE.get(task, []), *([] if task == CLASSES else ["--no-shuffle"])]
    args = train_args(data, None, "standard", *words, "--batch-size", "8", task=task, classes=classes)
    one = logged(fairseq_train(*args), "valid")[-1]
    two = logged(fairseq_train(*args, workers=2), "valid")[-1]
    for key in ("loss", *keys):
        assert two[f"valid_{key}"] == one[f"valid_{key}"], key
    assert any(one[f"valid_{key}"] for key in keys)


# A method that keeps something beside the model, and on each worker.
RESTARTS: list[tuple[str, int, str, list[str]]] = [("tavat", 2, CLASSES, [])]
MORE_RESTARTS = [
    *((m, 1 + k % 2, CLASSES, ["--amp"] if k % 3 else []) for k, m in enumerate(METHODS)),
    ("freelb", 1, "arc_retrieval", []), ("alum_vat", 2, "tagging", []), ("freelb", 1, "span_qa", []),
    ("alum_vat", 1, "multi_label", []),
]  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize(
    ("method", "workers", "task", "more"),
    [*RESTARTS, *(slow(*one) for one in MORE_RESTARTS if one not in RESTARTS)],
)
def test_kill_9_in_mid_epoch_and_restart_equals_uninterrupted(
    tmp_path: Path, method: str, workers: int, task: str, more: list[str]
) -> None:
    """With dropout, Adam and a schedule, two data sets drawn by weight: the same bytes in every tensor."""
    if task == "arc_retrieval":
        folders = [
            write_questions(tmp_path / name, train=50, para=True, seed=k) for k, name in enumerate("ab")
        ]
        data = Path(":".join(map(str, folders)))
        drawn = ["--sampling-weights", "1:0.28"]
    else:
        drawn = []
        data = WRITE[task](tmp_path / "data", train=48 if task == "span_qa" else 64)
    initial = run(data, tmp_path / "initial", method, "--max-update", "1", *more, task=task)
    assert initial
    schedule = [
        "--finetune-from-model", str(tmp_path / "initial" / "checkpoint_last.pt"),
        "--dropout", "0.1", "--attention-dropout", "0.1", "--max-epoch", "2", "--batch-size", "4",
        "--optimizer", "adam", "--lr", "0.001", "--lr-scheduler", "polynomial_decay",
        "--total-num-update", "40", *drawn, "--save-interval-updates", "3", "--keep-interval-updates", "1",
        *more, *MORE.get(task, []),
    ]  # fmt: skip
    options = [*OPTIONS[method], *schedule, "--no-epoch-checkpoints"]
    args = train_args(data, tmp_path / "killed", method, *options, task=task)
    killed_at = start_and_kill(args, workers, after_update=4)
    assert (tmp_path / "killed" / "checkpoint_last.pt").exists()
    done = fairseq_train(*args, workers=workers)
    resumed = re.search(
        r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d+ @ (\d+) updates\)", done.stdout + done.stderr
    )
    assert resumed and 3 <= int(resumed.group(1)) <= killed_at
    run(data, tmp_path / "straight", method, *schedule, workers=workers, task=task)
    ends = [tensors(tmp_path / name / "checkpoint_last.pt") for name in ("killed", "straight")]
    assert ends[0] == ends[1]


def start_and_kill(args: list[str], workers: int, after_update: int, before: int = 30) -> int:
    """Starts a run, kills all its processes with SIGKILL after an update, returns the last update seen, which
    has to lie below ``before``.
    """

    def updates(text: str) -> list[int]:
        return [int(number) for number in re.findall(r'"num_updates": "(\d+)"', text)]

    text = killed_training(args, workers, lambda line: max(updates(line), default=0) >= after_update)
    last = max(updates(text), default=0)
    assert after_update <= last < before, f"the run was not killed in mid-epoch: {text[-2000:]}"
    return last
