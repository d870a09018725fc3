"""Flooding in fairseq's trainer against |J - b| + b restated in plain torch, on every base method."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.optim.amp_optimizer import AMPOptimizer
from methods import METHODS, OPTIONS
from support import (
    batch,
    build,
    train_args,
)

from criterions.restated import flat, run_of

# One replay of freeat is one update.
BASES = {name: [*words, *(["--adv-steps", "1"] if name == "freeat" else [])]
         for name, words in OPTIONS.items() if name != "flooding"}  # fmt: skip
KINDS = ("freelb", "freeat", "pgd", "tavat", "alum_vat", "smart")  # of updates
DESCENT = ["--optimizer", "sgd", "--lr", "1.0", "--clip-norm", "0"]  # an update is minus the gradient
# fairseq's half precision takes no SGD: Adam without memory, whose eps is far above |g|, is the same to 1e-3.
FP16 = [
    "--memory-efficient-fp16", "--fp16-init-scale", "4", "--optimizer", "adam", "--adam-betas", "(0.0, 0.0)",
    "--adam-eps", "1e3", "--lr", "1e3",
]  # fmt: skip
HIGH, LOW = "50.0", "0.001"  # every loss here lies between


def flood(level: str, *extra: str) -> list[str]:
    return ["--flood-level", level, *DESCENT, *extra]


def update(run: SimpleNamespace, samples: list[dict[str, Any]]) -> torch.Tensor:
    """What one update of the trainer adds to the weights."""
    before = flat(run)
    run.trainer.begin_epoch(1)
    torch.manual_seed(0)
    assert run.trainer.train_step(samples) is not None
    return flat(run) - before


def restated(run: SimpleNamespace, rows: list[list[int]], level: float, per_part: bool) -> torch.Tensor:
    """Minus the gradient of |J - b| + b, J the mean cross-entropy of a part or of all parts together."""

    def losses(part: list[int]) -> torch.Tensor:
        sample = batch(run, part)
        logits, _ = run.model(
            sample["net_input"]["src_tokens"], features_only=True,
            classification_head_name="sentence_classification_head",
        )  # fmt: skip
        return F.cross_entropy(logits, sample["target"].view(-1), reduction="none")

    everything = [losses(part) for part in rows]
    count = sum(len(part) for part in rows)
    if per_part:
        total = sum(len(part) * ((part.mean() - level).abs() + level) for part in everything) / count
    else:
        total = (torch.cat(everything).mean() - level).abs() + level
    trained = [p for p in run.model.parameters() if p.requires_grad]
    gradients = dict(zip(map(id, trained), torch.autograd.grad(total, trained, allow_unused=True)))
    found = [(p, gradients.get(id(p))) for p in run.model.parameters()]
    return -torch.cat([(torch.zeros_like(p) if g is None else g).double().flatten() for p, g in found])


def assert_equal_vectors(ours: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert expected.norm() > 0
    assert (ours - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("level", [HIGH, LOW], ids=["below-b", "above-b"])
@pytest.mark.parametrize("scope", ["update", "micro-batch"])
@pytest.mark.parametrize(("precision", "tolerance"), [([], 2e-5), (FP16, 2e-2)], ids=["fp32", "fp16"])
def test_an_update_equals_the_restated_loss(
    data: Path, scope: str, level: str, precision: list[str], tolerance: float
) -> None:
    """fp32: the weights' own rounding at a step of size 1; fp16: weights and gradients of 11 bits."""
    plain = build(train_args(data, None, "flooding", *flood(level)))
    expected = restated(plain, [[0, 1, 2, 3, 4]], float(level), per_part=False)
    run = build(train_args(data, None, "flooding", *flood(level, "--flood-scope", scope), *precision))
    assert_equal_vectors(update(run, [batch(run, [0, 1, 2, 3, 4])]), expected, tolerance)


def between(run: SimpleNamespace, rows: list[list[int]]) -> float:
    """A level between the mean losses of two parts, on the other side of the lower one than of both."""
    means = [-math.inf, math.inf]
    for k, part in enumerate(rows):
        means[k] = float(run.criterion(run.model, batch(run, part))[0]) / len(part)
    both = sum(m * len(p) for m, p in zip(means, rows)) / sum(map(len, rows))
    assert abs(means[0] - means[1]) > 1e-3
    return (min(means) + both) / 2


@pytest.mark.parametrize("scope", ["update", "micro-batch"])
def test_the_scope_decides_where_micro_batches_lie_on_both_sides(data: Path, scope: str) -> None:
    """One micro-batch below b, the other above, all of them together above."""
    rows = [[0, 1, 2, 3, 4], [5, 6, 7]]
    first = build(train_args(data, None, "standard"))
    level = between(first, rows)
    words = flood(repr(level), "--flood-scope", scope, "--update-freq", "2")
    run = build(train_args(data, None, "flooding", *words))
    expected = restated(run, rows, level, per_part=scope == "micro-batch")
    other = restated(run, rows, level, per_part=scope != "micro-batch")
    ours = update(run, [batch(run, part) for part in rows])
    assert_equal_vectors(ours, expected, 2e-5)
    assert (ours - other).norm() > 0.1 * other.norm()


@pytest.mark.parametrize("base", KINDS)
def test_below_b_an_update_is_that_of_the_base_method_backwards(data: Path, base: str) -> None:
    run = build(train_args(data, None, base, *DESCENT, *BASES[base]))
    plain = update(run, [batch(run, [0, 1, 2, 3, 4])])
    for level, sign in ((HIGH, -1.0), (LOW, 1.0)):
        run = build(train_args(data, None, base, *flood(level), *BASES[base]))
        assert_equal_vectors(update(run, [batch(run, [0, 1, 2, 3, 4])]), sign * plain, 2e-5)


@pytest.mark.parametrize("base", [m for m in KINDS if METHODS[m].backwards == 1 or m == "freeat"])
def test_a_loss_with_one_backward_is_flooded_per_micro_batch(data: Path, base: str) -> None:
    run = build(train_args(data, None, base, *DESCENT, *BASES[base]))
    plain = update(run, [batch(run, [0, 1, 2, 3, 4])])
    words = flood(HIGH, "--flood-scope", "micro-batch", *BASES[base])
    run = build(train_args(data, None, base, *words))
    assert_equal_vectors(update(run, [batch(run, [0, 1, 2, 3, 4])]), -plain, 2e-5)


def test_the_share_of_flooded_micro_batches_is_logged(data: Path) -> None:
    rows = [[0, 1, 2, 3, 4], [5, 6, 7]]
    level = between(build(train_args(data, None, "standard")), rows)
    words = flood(repr(level), "--flood-scope", "micro-batch", "--update-freq", "2")
    run = build(train_args(data, None, "flooding", *words))
    run.trainer.begin_epoch(1)
    log = run.trainer.train_step([batch(run, part) for part in rows])
    assert log is not None and metrics.get_meter("train", "flooded").avg == 0.5


class PlayedAmp(AMPOptimizer):
    """fairseq's optimizer of --amp, whose scaler needs a GPU: at the scale of 2 the gradient overflows."""

    def __init__(self, plain: Any) -> None:
        self.fp32_optimizer, self.scale = plain, 2.0

    @property
    def scaler(self) -> SimpleNamespace:
        return SimpleNamespace(get_scale=lambda: self.scale)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_grad_norm(self, *words: Any, **more: Any) -> torch.Tensor:
        norm: torch.Tensor = self.fp32_optimizer.clip_grad_norm(*words, **more)
        return norm if self.scale == 1 else torch.full_like(norm, math.inf)

    def step(self) -> None:
        if self.scale == 1:
            self.fp32_optimizer.step()
        self.scale = 1.0


def test_an_update_that_overflows_under_amp_counts_when_it_is_made_again(data: Path) -> None:
    """The optimizer's first step changes nothing but its scale, and the trainer feeds the group again."""
    words = [*flood(HIGH), "--amp"]
    run = build(train_args(data, None, "flooding", *words))
    expected = update(run, [batch(run, [0, 1, 2])])
    run = build(train_args(data, None, "flooding", *words))
    run.trainer._optimizer = PlayedAmp(run.trainer.optimizer.fp32_optimizer)
    run.trainer._amp_retries = 0
    counted: list[int] = []
    run.criterion.flood.search = SimpleNamespace(
        begin_epoch=lambda *_: None, updated=lambda model, optimizer, number, *sums: counted.append(number)
    )
    assert_equal_vectors(update(run, [batch(run, [0, 1, 2])]), expected, 1e-6)
    assert counted == [1] and metrics.get_meter("train", "flooded").count == 1


def test_a_dummy_batch_does_not_count(data: Path) -> None:
    """Uneven shards with --update-freq: J is the loss of the worker's other mini-batches."""
    run = build(train_args(data, None, "flooding", *flood(HIGH)))
    run.trainer.begin_epoch(1)
    seen = []
    for samples in ([[0, 1, 2]], [[0, 1, 2], None], [None]):
        group = [rows if rows is None else batch(run, rows) for rows in samples]
        run.trainer._dummy_batch = batch(run, [0])
        run.trainer.train_step(group)
        seen.append((run.criterion.flood.totals(run.model)[1], metrics.get_meter("train", "flooded").val))
    assert seen == [(3, 1), (3, 1), (0, 0)]


def test_rows_that_the_model_has_no_place_for_are_not_drawn(data: Path) -> None:
    """A position beyond the last would be an error."""
    words = ["--accordance-interval", "1", "--accordance-batches", "2", "--accordance-batch-size", "2"]
    run = build(train_args(data, None, "flooding", *flood("0"), *words, "--max-positions", "8"))
    lengths = [len(row["net_input.src_tokens"]) for row in run.task.dataset("train")]
    assert max(lengths) > 8
    short = [k for k, length in enumerate(lengths) if length <= 8]
    assert update(run, [batch(run, short[:3])]).norm() > 0  # with a measurement


def test_freeat_in_groups_measures_once_a_group(data: Path) -> None:
    """Its replays of a group are one update together; each is flooded by a loss of its own."""
    probe = ["--accordance-interval", "1", "--accordance-batches", "2", "--accordance-batch-size", "4"]
    words = [*BASES["freeat"], "--adv-steps", "3", "--freeat-schedule", "groups", *probe]
    run = build(train_args(data, None, "freeat", *flood(HIGH), *words))
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    assert run.criterion.flood.level.measurements == 1 and run.trainer.get_num_updates() == 1
    assert metrics.get_meter("train", "flooded").count == 3


def test_after_an_overflow_nothing_is_measured(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slowmo, fairseq logs such an update too. A trainer that leaves out our call is another matter."""
    run = build(train_args(data, None, "standard", *flood(HIGH)))
    run.trainer.train_step([batch(run, [0, 1, 2])])
    log = [run.criterion.update_logs[-1]]
    with monkeypatch.context() as patch:
        patch.setattr(run.trainer.optimizer, "clip_grad_norm", raise_overflow)
        with pytest.raises(OverflowError):
            run.trainer.clip_grad_norm(0.0)
    run.trainer._reduce_and_log_stats(log, 3, torch.tensor(0.0))
    assert metrics.get_meter("train", "flooded").count == 1
    monkeypatch.setattr(run.trainer, "clip_grad_norm", lambda norm: torch.tensor(1.0))
    run.trainer._has_overflown = False
    with pytest.raises(ValueError, match="clip_grad_norm of your trainer"):
        run.trainer.train_step([batch(run, [0, 1, 2])])


def raise_overflow(*_: object, **options: object) -> None:
    raise OverflowError


@pytest.mark.parametrize("method", [*BASES])
def test_without_the_option_nothing_is_bound_or_logged(data: Path, method: str) -> None:
    run = build(train_args(data, None, method, *BASES[method]))
    assert run.criterion.flood is None
    replaced = {name for name in vars(run.task) if callable(getattr(type(run.task), name, None))}
    assert replaced == {"train_step", "reduce_metrics", "load_dataset"}
    run.trainer.train_step([batch(run, [0, 1, 2])])
    assert metrics.get_meter("train", "flooded") is None and metrics.get_meter("train", "loss_nats") is None


# --- options ------------------------------------------------------------------------------------

AUTO = ["--flood-level", "auto", "--accordance-interval", "5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --flood-level: pass b in nats"),
        (["--flood-level", "x"], "--flood-level x: pass a finite number of nats"),
        (["--flood-level=-0.1"], "--flood-level -0.1: pass a finite number"),
        (["--flood-level", "inf"], "--flood-level inf"),
        ([*AUTO, "--accordance-interval", "-1"], "--accordance-interval -1: pass a number of updates"),
        ([*AUTO, "--accordance-batches", "1"], "--accordance-batches 1: pass 2 or more"),
        ([*AUTO, "--accordance-batch-size", "0"], "--accordance-batch-size 0: pass 1 or more"),
        ([*AUTO, "--accordance-groups", "all,body"], "--accordance-groups all,body: pass one or more of all"),
        ([*AUTO, "--accordance-groups", "head"], "--flood-crossing-group all: add it to --accordance-groups"),
        ([*AUTO, "--ddp-backend", "fully_sharded"], "fully_sharded: .* pass --ddp-backend pytorch_ddp"),
    ],
)  # fmt: skip
def test_refused(data: Path, words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, "flooding", *words))


WITHOUT_CLASSES = ("regression", "commonsense_qa", "wsc", "masked_lm", "span_qa", "multi_label")


@pytest.mark.parametrize("objective", WITHOUT_CLASSES)
def test_accordance_needs_classes(folders: dict[str, Path], objective: str) -> None:
    """Flooding itself does not."""
    run_of(folders, objective, "flooding", "--flood-level", "0.1")
    why = r"(?s)classes.*(this task has none|several labels)|Pass a number as --flood-level"
    with pytest.raises(ValueError, match=why):
        run_of(folders, objective, "flooding", *AUTO)
