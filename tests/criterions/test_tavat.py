"""TAVAT in fairseq's trainer against the paper and the authors' code, restated in plain torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated_gpu import emulated
from fairseq import checkpoint_utils
from support import (
    batch,
    build,
    fairseq_train,
    flat_gradient,
    train_args,
)

from criterions import references
from criterions.restated import (
    ALPHA,
    EPSILON,
    FP16,
    ROWS,
    START,
    loss_at,
    one_step,
    options,
    parameters_of,
    recorded,
)
from criterions.restatements import SGD, tavat_start
from fairseq_adv.criterions.token_table import TokenTable

RELEASED = ["--tavat-variant", "released"]
PAPER = ["--tavat-variant", "paper"]
VARIANTS = pytest.mark.parametrize("words", [[], PAPER, RELEASED], ids=["joint", "paper", "released"])


def tavat(data: Path, *words: str, task: str = "sentence_prediction") -> SimpleNamespace:
    return build(train_args(data, None, "tavat", *SGD, *words, task=task))


def table_of(run: SimpleNamespace) -> torch.Tensor:
    """A copy of the table."""
    rows = run.criterion.table.rows(run.trainer.optimizer, run.model.encoder.sentence_encoder.embed_tokens)
    return rows.clone()  # type: ignore[no-any-return]


def update(run: SimpleNamespace, sample: dict[str, Any], number: int) -> torch.Tensor:
    """The gradient of an update; the table is that of the next one."""
    one_step(run, sample, number)
    gradient = flat_gradient(run.model)
    run.criterion.after_step(run.trainer)
    return gradient


@VARIANTS
def test_three_updates_and_their_tables_equal_the_restated_algorithm(data: Path, words: list[str]) -> None:
    """Each starts from the table that the one before has left."""
    run = tavat(data, *options(), *words)
    expected, seen = table_of(run), table_of(run)
    for number, rows in enumerate(([0, 1, 2, 3, 4], [4, 5, 6], [0, 2, 7, 8])):
        sample = batch(run, rows)
        ours, variant = update(run, sample, number), "".join(words[1:])
        grads, expected = references.tavat(
            lambda delta, sample=sample: loss_at(run, sample, delta),
            tavat_start(sample, START, variant, update=number), expected,
            sample["net_input"]["src_tokens"], parameters_of(run), 3, ALPHA, EPSILON, variant,
        )  # fmt: skip
        theirs = torch.cat([g.double().flatten() for g in grads])
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm(), number
        torch.testing.assert_close(table_of(run), expected, rtol=1e-4, atol=5e-6)
    assert (expected - seen).norm() > 0.1 * seen.norm()


@VARIANTS
def test_padding_is_never_moved_nor_a_word_that_did_not_occur(data: Path, words: list[str]) -> None:
    run = tavat(data, *options(), *words)
    sample, before = batch(run, ROWS), table_of(run)
    with recorded() as deltas:
        update(run, sample, 0)
    tokens = sample["net_input"]["src_tokens"]
    assert tokens.eq(1).any()
    assert all(not delta[tokens.eq(1)].any() and delta[tokens.ne(1)].all() for delta in deltas)
    moved = {int(word) for word in (table_of(run) - before).any(dim=1).nonzero()}
    assert moved == set(tokens.flatten().tolist()) - {1}


@pytest.mark.parametrize(("words", "is_alone"), [([], True), (RELEASED, False)], ids=["paper", "released"])
def test_the_other_examples_of_a_mini_batch_change_an_example_s_delta_in_the_released_code_alone(
    data: Path, words: list[str], is_alone: bool
) -> None:
    """There the first token perturbations are divided by their norm over the mini-batch."""
    found = []
    for rows in ([0], ROWS):
        run = tavat(data, *options(epsilon=50.0), *words)
        with recorded() as deltas:
            one_step(run, batch(run, rows))
        found.append(deltas[0][0][: int(batch(run, [0])["net_input"]["src_lengths"][0])])
    assert torch.allclose(*found, rtol=0, atol=1e-6) is is_alone


def test_the_table_is_the_seeds_and_has_the_papers_scale(data: Path) -> None:
    """U(-m, m) / sqrt(D); another seed gives another one, and no draw of the run's generator is used."""
    run = tavat(data, *options(start=0.8))
    torch.manual_seed(3)
    table, after = table_of(run), torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(after, torch.get_rng_state())
    largest = 0.8 / 16**0.5
    assert table.shape == (len(run.task.source_dictionary), 16)
    assert 0.95 * largest < table.abs().max() <= largest and abs(float(table.mean())) < 0.1 * largest
    assert torch.equal(table, table_of(tavat(data, *options(start=0.8))))
    assert not torch.equal(table, table_of(tavat(data, *options(start=0.8), "--seed", "8")))


def test_words_without_a_copy_on_the_host_are_found_too() -> None:
    """Such as those of a Hugging Face model for multiple choice, which reshapes them."""
    with emulated():
        table, embedding = TokenTable(1, 0.1), torch.nn.Embedding(10, 4).cuda()
        optimizer = SimpleNamespace(param_groups=[{}])
        tokens = torch.tensor([[4, 5, 1]]).cuda()
        before = table.rows(optimizer, embedding).clone()
        table.record(tokens, tokens.ne(1), torch.ones(1, 3, 4).cuda())
        table.update(optimizer, embedding, adds=True)
        moved = (table.rows(optimizer, embedding) - before).cpu().any(dim=1)
    assert moved.nonzero().flatten().tolist() == [4, 5]


def test_an_update_that_overflows_leaves_the_table_and_it_stays_in_fp32(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update after it writes the words of its own mini-batch alone."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)  # fairseq/trainer.py, line 992, also on CPU
    tables = []
    for overflows in (True, False):
        run = tavat(data, *options(), FP16, "--optimizer", "adam", "--fp16-init-scale", "4")
        before = table_of(run)
        if overflows:
            run.trainer.optimizer.scaler.loss_scale = 2.0**40
            run.trainer.train_step([batch(run, [5, 6, 7, 8])])
            assert run.trainer.get_num_updates() == 0 and torch.equal(table_of(run), before)
            run.trainer.optimizer.scaler.loss_scale = 4.0
        run.trainer.train_step([batch(run, ROWS)])
        assert run.trainer.get_num_updates() == 1
        assert run.model.encoder.sentence_encoder.embed_tokens.weight.dtype == torch.float16
        tables.append(table_of(run))
    assert tables[0].dtype == torch.float32 and not torch.equal(tables[0], before)
    assert torch.equal(*tables)


def test_the_table_does_not_move_by_a_dummy_batch_or_in_plain_updates(data: Path) -> None:
    run = tavat(data, *options(), "--adv-start-update", "1")
    before = table_of(run)
    one_step(run, batch(run, ROWS), update=1, ignore_grad=True)
    run.criterion.after_step(run.trainer)
    assert torch.equal(table_of(run), before)
    run.trainer.train_step([batch(run, ROWS)])
    assert torch.equal(table_of(run), before)
    run.trainer.train_step([batch(run, ROWS)])
    assert not torch.equal(table_of(run), before)


def test_a_checkpoint_has_the_table_for_the_run_that_goes_on_and_a_new_run_has_its_own(
    data: Path, tmp_path: Path
) -> None:
    words = [*options(), "--max-epoch", "1"]
    save = tmp_path / "save"
    fairseq_train(*train_args(data, save, "tavat", *SGD, *words))
    tables = []
    for start in ([], ["--finetune-from-model", str(save / "checkpoint_last.pt")]):
        folder = tmp_path / "next" if start else save
        run = build(train_args(data, folder, "tavat", *SGD, *words, *start))
        first = table_of(run)
        checkpoint_utils.load_checkpoint(run.cfg.checkpoint, run.trainer)
        tables.append(table_of(run))
        assert tables[-1].dtype == torch.float32
        assert torch.equal(tables[-1], first) is bool(start)
    kept = torch.load(save / "checkpoint_last.pt")["last_optimizer_state"]["param_groups"][0]["tavat_table"]
    assert torch.equal(tables[0], kept)


def test_a_table_that_is_not_saved_is_told_once(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = build(train_args(data, tmp_path, "tavat", "--no-save-optimizer-state"))
    for epoch in (1, 2):
        run.criterion.begin_epoch(epoch, run.model)
    assert caplog.text.count("checkpoints won't contain the table") == 1
