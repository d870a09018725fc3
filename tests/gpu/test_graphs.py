"""``--cuda-graphs``: updates are those of a run without.

On a GPU with CUDA's graphs; where there is none, on the emulated one with recorded operations in their place,
and to the bit. On a GPU they were equal to the bit, too, wherever it was measured, but nobody promises that:
cuBLAS and attention choose their kernels by what else is going on, and may sum in another order. So there the
distance may be a small share of the way from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated_gpu import POSSIBLE, emulated
from fairseq.logging import metrics
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from methods import OPTIONS
from recorded_graphs import Recording
from support import batch, build, train_args, write_corpus, write_questions, write_task
from torch import Tensor

from fairseq_adv.criterions import step_graphs
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.objectives import masked_lm

pytestmark = pytest.mark.gpu
CAPTURED = ["standard", "pgd", "freelb", "alum_vat"]
DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]
GRAPHS = ["--bf16", "--cuda-graphs"]
# Times, and the GB that are free: graphs take some, and leave less to the run after theirs.
NOT_COMPUTED = {"train_wall", "wall", "gb_free"}
# On a GPU, of the way from the start; runs with other dropout masks end 0.9 of it or more from each other.
ROUNDING = 1e-2
# Rows of up to four shapes, in turn.
ROWS = [[0, 1, 2], [3, 4, 5], [0, 1], [6, 7, 8], [9, 10, 11], [2, 3], [12, 13, 14], [4, 5], [6, 0, 3], [0, 1]]
TASKS: dict[str, Any] = {
    "sentence_prediction": write_task, "text_classification": write_task, "masked_lm": write_corpus,
    "commonsense_qa": write_questions,
}  # fmt: skip


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Recording.made.clear()
    if not POSSIBLE:
        yield
        return
    monkeypatch.setattr(step_graphs, "Capturing", Recording)
    with emulated():
        yield


def run_of(
    folder: Path, method: str, *words: str, task: str = "sentence_prediction", cpu: bool = False
) -> SimpleNamespace:
    if not folder.is_dir():
        TASKS[task](folder)
    args = train_args(
        folder, None, method, *OPTIONS[method], "--log-interval", "4", *DROPOUT, *words, task=task
    )
    run = build([word for word in args if cpu or word != "--cpu"])
    run.trainer.begin_epoch(1)
    run.start = flat(run)
    return run


def flat(run: SimpleNamespace) -> Tensor:
    """All weights."""
    return torch.cat([weight.detach().flatten() for weight in run.model.parameters()])


def updates(
    run: SimpleNamespace, *rows: Sequence[list[int]], parts: int = 1
) -> tuple[Tensor, list[dict[str, float]]]:
    """The weights after updates, and what each logs."""
    logs = []
    chosen = list(rows or ROWS)
    for nth in range(0, len(chosen), parts):
        metrics.reset()
        with metrics.aggregate("train_inner"):
            run.trainer.train_step([batch(run, one) for one in chosen[nth : nth + parts]])
        values = metrics.get_smoothed_values("train_inner")
        log = run.criterion.update_logs[-1]  # of the last mini-batch: numbers of the host
        sizes = {name: log[name] for name in ("ntokens", "sample_size")}
        assert all(type(size) is int for size in sizes.values())
        logs.append({**{n: v for n, v in values.items() if n not in NOT_COMPUTED}, **sizes})
    return flat(run), logs


def captured(run: SimpleNamespace) -> int:
    """How many steps are captured at present."""
    return sum(len(one.steps) for one in run.criterion._graphs._generations)


def assert_equal(run: SimpleNamespace, one: tuple[Tensor, Any], other: tuple[Tensor, Any]) -> None:
    """``run``: one of the two, for where they began."""
    assert one[0].dtype == other[0].dtype
    if POSSIBLE:
        assert torch.equal(one[0], other[0])
        assert one[1] == other[1]
        return
    way = (other[0] - run.start).float().norm()
    assert (one[0] - other[0]).float().norm() <= ROUNDING * way
    for mine, theirs in zip(one[1], other[1], strict=True):
        assert mine == pytest.approx(theirs, rel=ROUNDING, abs=1e-3)


@pytest.mark.parametrize("words", [["--bf16"], [], ["--bf16", "--no-adv-share-dropout"]], ids=" ".join)
@pytest.mark.parametrize("method", CAPTURED)
def test_updates(tmp_path: Path, method: str, words: list[str]) -> None:
    if method in ("standard", "alum_vat"):
        words = [word.replace("no-adv", "vat") for word in words if method == "alum_vat" or "adv" not in word]
        words += ["false"] * ("--vat-share-dropout" in words)
    run = run_of(tmp_path / "data", method, *words, "--cuda-graphs")
    found = updates(run)
    assert captured(run) >= 2
    assert_equal(run, found, updates(run_of(tmp_path / "data", method, *words)))


@pytest.mark.parametrize("method", ["standard", "freelb", "alum_vat"])
def test_masked_lm(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same further logits in the other run; without them the sums of a product have other parts."""
    monkeypatch.setattr(masked_lm, "MULTIPLE", 8)
    run = run_of(tmp_path / "data", method, *GRAPHS, task="masked_lm")
    found = updates(run)
    assert captured(run) >= 2
    other = run_of(tmp_path / "data", method, "--bf16", task="masked_lm")
    other.criterion.objective.use_fixed_sizes()
    assert_equal(run, found, updates(other))
    plain = updates(run_of(tmp_path / "data", method, "--bf16", task="masked_lm"), *ROWS[:2])
    assert [log["loss"] for log in plain[1]] == pytest.approx([log["loss"] for log in found[1][:2]], rel=1e-2)


def test_rows_with_padding_have_other_graphs(tmp_path: Path) -> None:
    """Without padding an encoder has no mask."""
    run = run_of(tmp_path / "data", "freelb", *GRAPHS)
    by_length: dict[int, list[int]] = {}
    for row in range(16):
        by_length.setdefault(len(run.task.dataset("train")[row]["net_input.src_tokens"]), []).append(row)
    alike = next(rows[:2] for length, rows in sorted(by_length.items())[1:] if len(rows) > 1)
    padded = [alike[0], by_length[min(by_length)][0]]
    rows = [alike, alike, padded, padded, alike]
    found = updates(run, *rows)
    assert captured(run) == 2
    assert_equal(run, found, updates(run_of(tmp_path / "data", "freelb", "--bf16"), *rows))


def test_micro_batches_add_up(tmp_path: Path) -> None:
    run = run_of(tmp_path / "data", "freelb", *GRAPHS)
    found = updates(run, parts=3)
    assert captured(run) >= 2
    assert_equal(run, found, updates(run_of(tmp_path / "data", "freelb", "--bf16"), parts=3))


def test_a_capture_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that reads a number can be computed but not captured."""
    plain = MiniBatch.loss

    def read(batch: MiniBatch) -> Tensor:
        loss = plain(batch)
        return loss * (1.0 if loss.item() > -1 else 0.0)

    with monkeypatch.context() as patch:
        patch.setattr(MiniBatch, "loss", read)
        run = run_of(tmp_path / "data", "freelb", *GRAPHS)
        found = updates(run)
        expected = updates(run_of(tmp_path / "data", "freelb", "--bf16"))
    assert captured(run) == 0 and not run.criterion._graphs._gradients
    assert sum("could not be captured" in one.message for one in caplog.records) == 1
    assert_equal(run, found, expected)
    later = run_of(tmp_path / "data", "freelb", *GRAPHS)
    assert_equal(later, updates(later), updates(run_of(tmp_path / "data", "freelb", "--bf16")))
    assert captured(later) >= 2


def test_other_weights_have_other_graphs(tmp_path: Path) -> None:
    found = []
    for words in (GRAPHS, ["--bf16"]):
        run = run_of(tmp_path / "data", "freelb", *words)
        updates(run)
        weight = run.model.encoder.sentence_encoder.layers[0].fc1.weight
        weight.data = weight.data.clone()
        found.append(updates(run))
    assert_equal(run, *found)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes more than its share is not captured again."""
    run = run_of(tmp_path / "data", "standard", *GRAPHS)
    shapes = [[0, 1, 2], [0, 1], [0], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    monkeypatch.setattr(step_graphs, "SHARE_OF_A_GENERATION", 0.0)
    updates(run, *[one for one in shapes for _ in range(3)])
    assert captured(run) <= 2
    assert len(run.criterion._graphs._too_large) == len(shapes)


@pytest.mark.skipif(not POSSIBLE, reason="a GPU's graphs take what they take")
def test_the_oldest_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation ends with its third; the one before it goes. What was dropped is captured anew."""
    monkeypatch.setattr(Recording, "size", 2)
    total = torch.cuda.get_device_properties(0).total_memory
    monkeypatch.setattr(step_graphs, "SHARE_OF_A_GENERATION", 5 / total)
    runs = [run_of(tmp_path / "data", "standard", *words) for words in (GRAPHS, ["--bf16"])]
    rows_of: dict[Any, int] = {}
    kept = []
    for rows in (1, 2, 3, 4, 5, 6, 7, 1):
        batches = [list(range(rows))] * 3
        assert_equal(runs[0], *(updates(run, *batches) for run in runs))
        keys = [key for one in runs[0].criterion._graphs._generations for key in one.steps]
        kept.append([rows_of.setdefault(key, rows) for key in keys])
    assert kept == [
        [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [4, 5, 6], [4, 5, 6, 7], [4, 5, 6, 7, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fp16"], "only --bf16 and fp32"),
        (["--amp"], "only --bf16 and fp32"),
        (["--bf16", "--memory-efficient-bf16"], "only --bf16 and fp32"),
        (["--encoder-layerdrop", "0.5"], "--encoder-layerdrop"),
        (["--spectral-norm-classification-head"], "--spectral-norm-classification-head"),
        (["--flood-level", "0.5"], "flooding"),
        (["--compile"], "--compile"),
    ],
    ids=str,
)
def test_what_is_not_captured_trains_as_before(
    tmp_path: Path, words: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [run_of(tmp_path / "data", "standard", *words, *more) for more in ([], ["--cuda-graphs"])]
    found = [updates(run) for run in runs]
    assert_equal(runs[0], *found)
    assert [f"no effect: {told}" in one.message for one in caplog.records if "effect:" in one.message] == [
        True
    ]


@pytest.mark.parametrize(
    ("method", "task", "told"),
    [
        ("yopo", "sentence_prediction", "--criterion yopo is not captured"),
        ("smart", "sentence_prediction", "--criterion smart is not captured"),
        ("freelb", "commonsense_qa", "of the tasks,"),
        ("freelb", "text_classification", "--long-texts windows is not captured"),
    ],
)
def test_other_methods_and_tasks(
    tmp_path: Path, method: str, task: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["--shorten-method", "truncate", "--long-texts", "windows"] if "long" in told else []
    run = run_of(tmp_path / "data", method, *GRAPHS, *words, task=task)
    updates(run, [0, 1], [0, 1])
    assert [one.message for one in caplog.records if f"no effect: {told}" in one.message] != []


def test_on_a_cpu(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    updates(run_of(tmp_path / "data", "freelb", "--cuda-graphs", cpu=True), [0, 1], [0, 1])
    assert "no effect: the run computes on the CPU" in caplog.text


def test_activation_checkpointing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = run_of(tmp_path / "data", "standard", *GRAPHS)
    checkpoint_wrapper(run.model.encoder.sentence_encoder.layers[0])
    updates(run, [0, 1])
    assert "no effect: activation checkpointing" in caplog.text
