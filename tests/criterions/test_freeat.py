"""FreeAT in fairseq's trainer against the paper, restated in plain torch; what counts as an update."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import batch, build, fairseq_train, logged, train_args

from criterions import references
from criterions.restated import (
    ALPHA,
    EPSILON,
    FP16,
    ROWS,
    START,
    loss_at,
    options,
    recorded,
    uniform_noise,
)

LR = 0.5
SGD = ["--optimizer", "sgd", "--lr", str(LR)]
PASSES, GROUPS = ["--freeat-schedule", "passes"], ["--freeat-schedule", "groups"]
DROPOUT = ["--dropout", "0.3", "--attention-dropout", "0.3", "--pooler-dropout", "0.5"]


def freeat(data: Path, *words: str) -> SimpleNamespace:
    return build(train_args(data, None, "freeat", *options(), *SGD, *words))


def weights_of(run: SimpleNamespace) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in run.model.named_parameters()}


@pytest.mark.parametrize("schedule", [PASSES, GROUPS], ids=["passes", "groups"])
@pytest.mark.parametrize(
    "groups", [[ROWS], [[0, 1], [2, 3, 4]]], ids=["one-mini-batch", "two-of-update-freq"]
)
@pytest.mark.parametrize("clip", [0.0, 0.3], ids=["no-clip", "clip"])
def test_a_group_is_replayed_as_the_restated_algorithm_says(
    data: Path, groups: list[list[int]], schedule: list[str], clip: float
) -> None:
    """Three updates, each with its own clipping, at deltas that go on from one to the next."""
    run = freeat(data, *schedule, "--clip-norm", str(clip))
    samples = [batch(run, rows) for rows in groups]
    expected = copy.deepcopy(run.model)
    twin = SimpleNamespace(model=expected, cfg=run.cfg)
    parameters = [p for n, p in expected.named_parameters() if not _unused(n)]
    run.trainer.train_step(samples)
    references.freeat(
        [lambda delta, s=s: loss_at(twin, s, delta) for s in samples],  # type: ignore[misc]
        [uniform_noise(s, START) for s in samples],
        parameters, 3, ALPHA, EPSILON, LR, clip or float("inf"),
    )  # fmt: skip
    found = weights_of(run)
    for name, parameter in expected.named_parameters():
        # fp32, three updates: a few units in the last place of weights of order 1.
        torch.testing.assert_close(
            found[name], parameter.detach(), rtol=0, atol=5e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def _unused(name: str) -> bool:
    """The masked-LM head, and copies of weights that fairseq's layers keep for inference."""
    return "lm_head" in name or name.split(".")[-1].startswith(("in_proj_", "out_proj_", "fc1_", "fc2_"))


def rates_of(run: SimpleNamespace, groups: int) -> tuple[list[float], int]:
    """The learning rate of each optimizer step, and the updates that the trainer counted."""
    rates: list[float] = []
    plain = run.task.optimizer_step

    def step(optimizer: Any, model: Any, update_num: int) -> None:
        rates.append(round(optimizer.get_lr() / LR, 6))
        plain(optimizer, model=model, update_num=update_num)

    run.task.optimizer_step = step
    for _ in range(groups):
        run.trainer.train_step([batch(run, ROWS)])
    return rates, run.trainer.get_num_updates()


DECAY = ["--lr-scheduler", "polynomial_decay", "--total-num-update", "10", "--warmup-updates", "0"]


def test_each_replay_counts_as_an_update_or_the_group_does(data: Path) -> None:
    """Linear decay over ten updates: its rate stands still within a group of the authors' schedule."""
    assert rates_of(freeat(data, *PASSES, *DECAY), 2) == ([1.0, 0.9, 0.8, 0.7, 0.6, 0.5], 6)
    assert rates_of(freeat(data, *GROUPS, *DECAY), 2) == ([1.0, 1.0, 1.0, 0.9, 0.9, 0.9], 2)


def test_max_update_ends_in_the_middle_of_a_group(data: Path) -> None:
    """As many passes as plain training with that option, not more."""
    rates, updates = rates_of(freeat(data, *DECAY, "--max-update", "4"), 2)
    assert len(rates) == updates == 4


def test_groups_end_at_multiples_of_k_also_after_a_max_update(data: Path, tmp_path: Path) -> None:
    """Where fairseq looks at its intervals."""
    run = freeat(data, *PASSES)
    run.trainer.set_num_updates(4)  # where --max-update 4 has ended
    ends = []
    for _ in range(2):
        run.trainer.train_step([batch(run, ROWS)])
        ends.append(run.trainer.get_num_updates())
    assert ends == [6, 9]


def test_the_rate_of_the_manual_schedule_stands_still_within_a_group(data: Path) -> None:
    """Its step changes the rate at the updates that it names, and does not take it back."""
    manual = ["--lr-scheduler", "manual", "--update2lr", "{'0':0.5,'1':0.05}"]
    assert rates_of(freeat(data, *GROUPS, *manual), 2) == ([1.0, 1.0, 1.0, 0.1, 0.1, 0.1], 2)


def test_it_trains_plainly_before_its_first_update(data: Path) -> None:
    run = freeat(data, "--adv-start-update", "3")
    with recorded() as deltas:
        for updates in (1, 2, 3, 6):
            run.trainer.train_step([batch(run, ROWS)])
            assert run.trainer.get_num_updates() == updates
    assert len(deltas) == 3


@pytest.mark.parametrize("schedule", [PASSES, GROUPS], ids=["passes", "groups"])
def test_each_replay_and_each_group_has_dropout_masks_of_its_own(data: Path, schedule: list[str]) -> None:
    run = freeat(data, *schedule, *DROPOUT)
    seen: list[torch.Tensor] = []
    head = run.model.classification_heads["sentence_classification_head"]
    head.dropout.register_forward_hook(lambda m, i, out: seen.append(out.detach() == 0))
    for _ in range(2):
        run.trainer.train_step([batch(run, ROWS)])
    masks = seen[::2]  # the head applies its dropout twice a pass
    assert len(masks) == 6 and masks[0].any()
    assert not any(torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


def test_a_dummy_at_a_group_s_beginning_does_not_repeat_masks(data: Path) -> None:
    """What it draws is undone."""
    run = freeat(data, *GROUPS, *DROPOUT)
    seen: list[torch.Tensor] = []
    head = run.model.classification_heads["sentence_classification_head"]
    head.dropout.register_forward_hook(lambda m, i, out: seen.append(out.detach() == 0))
    run.trainer._dummy_batch = batch(run, [0])
    run.trainer.train_step([batch(run, ROWS), {}])
    assert len(seen) == 12
    masks = [mask for mask in seen if mask.size(0) == len(ROWS)][::2]  # twice a pass
    assert len(masks) == 3 and not any(torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


def test_delta_is_kept_within_a_group_and_new_in_the_next(data: Path) -> None:
    run = freeat(data)
    samples = [batch(run, [0, 1]), batch(run, [2, 3, 4])]
    with recorded() as deltas:
        run.trainer.train_step(samples)
        run.trainer.train_step(samples)
    assert len(deltas) == 12
    first, second = deltas[:6:2], deltas[1:6:2]
    torch.testing.assert_close(first[0], uniform_noise(samples[0], START), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(second[0], uniform_noise(samples[1], START), rtol=1e-6, atol=1e-8)
    for path in (first, second):
        steps = [(b - a).flatten(1).norm(dim=1) for a, b in zip(path, path[1:])]
        assert all((step > 0.05).all() and (step < ALPHA + EPSILON).all() for step in steps)
    torch.testing.assert_close(deltas[6], uniform_noise(samples[0], START, update=3), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("schedule", [PASSES, GROUPS], ids=["passes", "groups"])
def test_an_update_that_amp_makes_again_is_made_at_the_same_delta(
    data: Path, schedule: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq's trainer under --amp, whose optimizer needs a GPU and is played here: after a gradient that
    was not finite the scaler takes no step, and the trainer feeds the group again.
    """
    run = freeat(data, *schedule)
    samples = [batch(run, [0, 1]), batch(run, [2, 3, 4])]
    run.trainer.optimizer.scaler = SimpleNamespace(get_scale=lambda: 1.0)  # made now: that of fp32
    run.trainer.cfg.common.amp, run.trainer._amp_retries = True, 0
    clip, plain = run.trainer.clip_grad_norm, run.task.optimizer_step
    norms: list[torch.Tensor] = []

    def clip_or_overflow(norm: float) -> torch.Tensor:
        norms.append(clip(norm) if len(norms) != 1 else torch.tensor(float("inf")))
        return norms[-1]

    def step(optimizer: Any, model: Any, update_num: int) -> None:
        if norms[-1].isfinite():
            plain(optimizer, model=model, update_num=update_num)

    monkeypatch.setattr(run.trainer, "clip_grad_norm", clip_or_overflow)
    run.task.optimizer_step = step
    with recorded() as deltas:
        run.trainer.train_step(samples)
    assert len(norms) == 4 and len(deltas) == 8
    assert torch.equal(deltas[2], deltas[4]) and torch.equal(deltas[3], deltas[5])
    assert not torch.equal(deltas[4], deltas[6])
    assert run.trainer.get_num_updates() == (3 if schedule is PASSES else 1)


@pytest.mark.parametrize("schedule", [PASSES, GROUPS], ids=["passes", "groups"])
@pytest.mark.parametrize("overflowing", [(0, 1, 2), (2,), (0,)], ids=["all", "last", "first"])
def test_a_replay_that_overflows_is_skipped(
    data: Path, overflowing: tuple[int, ...], schedule: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replay has a loss scale of its own. A group counts if one of its replays was taken, and then
    whole: after it fairseq's intervals are met as after any other.
    """
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_: self)  # 0.12.2 logs a norm of 0 on the GPU
    adam = ["--optimizer", "adam", "--adam-betas", "(0.0,0.0)", "--adam-eps", "1e3", "--lr", "500"]
    run = freeat(data, *adam, *schedule, FP16, "--fp16-init-scale", "64")
    scaler, clip = run.trainer.optimizer.scaler, run.trainer.clip_grad_norm
    replays: list[int] = []

    def clip_or_overflow(norm: float) -> torch.Tensor:
        replays.append(len(replays))
        if replays[-1] in overflowing:
            run.model.encoder.sentence_encoder.layers[0].fc1.weight.grad.fill_(float("inf"))
        return clip(norm)  # type: ignore[no-any-return]

    monkeypatch.setattr(run.trainer, "clip_grad_norm", clip_or_overflow)
    before = weights_of(run)
    run.trainer.train_step([batch(run, ROWS)])
    taken = 3 - len(overflowing)
    assert len(replays) == 3
    assert scaler.loss_scale == 64 / 2 ** len(overflowing)
    counted = 3 if schedule is PASSES else 1  # skipped replays count with the others of their group
    assert run.trainer.get_num_updates() == (counted if taken else 0)
    moved = any(not torch.equal(p, before[n]) for n, p in weights_of(run).items())
    assert moved is (taken > 0)
    assert all(p.isfinite().all() for p in run.model.parameters())


def test_out_of_memory_in_one_replay_leaves_the_others(data: Path) -> None:
    """fairseq's own recovery: the update is skipped in its first mini-batch, and the deltas stay where they
    were.
    """
    run = freeat(data, "--adv-max-norm", "0")
    calls: list[int] = []

    def fail_in_third_pass(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("CUDA out of memory")

    run.model.encoder.sentence_encoder.layers[1].register_forward_hook(fail_in_third_pass)
    with recorded() as deltas:
        run.trainer.train_step([batch(run, [0, 1]), batch(run, [2, 3, 4])])
    assert len(calls) == 5 and len(deltas) == 4 and run.trainer.get_num_updates() == 3
    for before, after in zip(deltas[:2], deltas[2:]):
        # A step away from the start, made after the first pass; the second replay gave none.
        steps = (after - before).flatten(1).norm(dim=1)
        torch.testing.assert_close(steps, torch.full_like(steps, ALPHA), rtol=1e-5, atol=0)
    assert not run.model.encoder.sentence_encoder.embed_tokens._forward_hooks
    assert run.criterion._group is None


def test_each_replay_is_logged_as_an_update(data: Path) -> None:
    words = [*options(start=0.0), *SGD, "--max-epoch", "1", "--batch-size", "8"]
    done = fairseq_train(*train_args(data, None, "freeat", *words))
    rows = logged(done, "train_inner")
    # fairseq looks whether to log after a group: what it logs then is the mean over its replays.
    assert [row["num_updates"] for row in rows] == [3, 6]
    # delta is 0 in the first of three passes: at most two thirds of the radius.
    assert all(0.05 < row["adv_norm"] <= 2 / 3 * EPSILON * 1.0001 for row in rows)


def test_what_has_no_effect_or_costs_more_than_it_seems_is_said(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    freeat(data, "--adv-start-update", "2", *GROUPS)

    def warnings(*words: str) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for epoch in (1, 2):
                freeat(data, *words).trainer.begin_epoch(epoch)
        return caplog.text

    saving = ["--save-interval-updates", "100"]
    text = warnings(*saving, "--validate-interval-updates", "6", "--log-interval", "3")
    assert "an epoch costs as much as 3 standard epochs" in text and "--max-update" in text
    assert "--save-interval-updates 100" in text and "interval is 300; pass a multiple of 3" in text
    assert "--validate-interval-updates 6" not in text and "--log-interval 3" not in text
    assert "an epoch costs" not in warnings("--max-update", "12")
    assert "freeat" not in warnings(*saving, *GROUPS)
