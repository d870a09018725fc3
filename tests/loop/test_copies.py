"""What snippets of FGM, PGD and FreeLB that people copy get wrong, each by a property that ours have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loop.tiny_models import WORDS, bert, qwen
from support import one_worker
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_adv.loop import PGD, FreeLB
from fairseq_adv.perturbation import geometry

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import loop_copies_sides as copies

STEPS = 3
BALL = {"steps": STEPS, "step_size": 0.05, "max_norm": 0.08}
STAY = {"steps": STEPS, "step_size": 0.0, "max_norm": 0.0}
Batch = copies.Batch
Run = Callable[..., None]  # accumulates the gradients of share * the loss of (model, batch)


def batch(rows: int = 4, padding: int = 0) -> Batch:
    """Rows of 5 to 8 tokens; some words are in several rows."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(5, WORDS, (rows, 8), generator=generator)
    mask = torch.arange(8).expand(rows, 8) < 5 + torch.arange(rows).view(-1, 1) % 4
    pad = partial(nn.functional.pad, pad=(0, padding))
    labels = torch.arange(rows) % 2
    return {"input_ids": pad(tokens * mask), "attention_mask": pad(mask.long()), "labels": labels}


def some(whole: Batch, rows: slice) -> Batch:
    return {name: value[rows] for name, value in whole.items()}


def start(mask: Tensor, dim: int) -> Tensor:
    """The same noise for a token in any mini-batch. It is as large as the ball."""
    noise = torch.rand(4, 20, dim, generator=torch.Generator().manual_seed(3))[:, : mask.size(1)] - 0.5
    return noise[: len(mask)] * mask.unsqueeze(-1) * (0.3 / (mask.sum(dim=1) * dim).sqrt()).view(-1, 1, 1)


def ours(
    kind: type[FreeLB | PGD], model: nn.Module, rows: Batch, *, share: float = 1.0, **sizes: Any
) -> None:
    def backward(loss: Tensor) -> None:
        (loss * share).backward()

    seeds = range(len(rows["labels"]))
    method = kind(model, relative=False, backward=backward, **sizes)
    method(lambda: model(**rows).loss, attention_mask=rows["attention_mask"], seeds=seeds)


def gradients(model: nn.Module, run: Callable[..., None], *steps: tuple[Batch, float]) -> Tensor:
    """All gradients of the model's weights in one vector, after ``run`` with each (mini-batch, share)."""
    model.zero_grad()
    torch.manual_seed(4)
    for rows, share in steps:
        run(model, rows, share=share)
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def same(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= 2e-6 * other.abs().max())


def plain(model: nn.Module, rows: Batch, share: float = 1.0) -> None:
    (copies.loss_of(model, rows) * share).backward()


def an_example_is_alone(run: Run) -> bool:
    """The gradient of a mini-batch is the mean of those of its rows."""
    model, whole = bert(), batch()
    alone = [gradients(model, run, (some(whole, slice(i, i + 1)), 1.0)) for i in range(4)]
    return same(gradients(model, run, (whole, 1.0)), torch.stack(alone).mean(dim=0))


def padding_is_nothing(run: Run) -> bool:
    model = bert()
    return same(*(gradients(model, run, (batch(padding=more), 1.0)) for more in (0, 4)))


def no_step_is_plain_training(run: Run, model: Any = None) -> bool:
    """Where delta stays 0, with the same random numbers afterwards."""
    model = bert(dropout=0.2) if model is None else model
    found = [(gradients(model, one, (batch(), 1.0)), torch.get_rng_state()) for one in (run, plain)]
    return same(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def two_mini_batches_are_one(run: Run) -> bool:
    model, whole = bert(), batch()
    halves = [(some(whole, slice(0, 2)), 0.5), (some(whole, slice(2, 4)), 0.5)]
    return same(gradients(model, run, *halves), gradients(model, run, (whole, 1.0)))


def a_loss_scale_is_nothing(run: Run) -> bool:
    model, scale = bert(), 2.0**-16
    return same(gradients(model, run, (batch(), scale)) / scale, gradients(model, run, (batch(), 1.0)))


def workers_reduce_once(run: Run) -> bool:
    reduced: list[Any] = []

    def count(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are strings
        reduced.append(bucket)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with one_worker():
        model = DistributedDataParallel(bert())
        model.register_comm_hook(None, count)
        gradients(model, plain, (batch(), 1.0))
        once = len(reduced)
        gradients(model, run, (batch(), 1.0))
    return len(reduced) == 2 * once


def a_decoder_is_read_at_its_last_word(run: Run) -> bool:
    return no_step_is_plain_training(run, qwen())


def words_move(run: Run) -> bool:
    model = bert()
    return not same(gradients(model, run, (batch(), 0.5)), gradients(model, plain, (batch(), 1.0)))


def the_output_layer_stays(run: Run) -> bool:
    """Of a masked LM, whose output layer is the table of words."""
    model, seen = bert(kind="MaskedLM", tie_word_embeddings=True), []
    layer = model.get_output_embeddings()
    layer.register_forward_pre_hook(lambda *_: seen.append(layer.weight.detach().clone()))
    rows = {**batch(), "labels": batch()["input_ids"]}
    gradients(model, run, (rows, 1.0))
    return len(seen) > 1 and all(torch.equal(one, seen[0]) for one in seen)


BOTH_FREELB = {
    "ours": partial(ours, FreeLB, **BALL, init_mag=0.0),
    "right": partial(copies.freelb, **BALL),
}
BOTH_STAY = {"ours": partial(ours, FreeLB, **STAY, init_mag=0.0), "right": partial(copies.freelb, **STAY)}
BOTH_START = {
    "ours": partial(ours, FreeLB, **BALL, init_mag=0.3),
    "right": partial(copies.freelb, **BALL, start=start),
}
OUR_FREELB, OUR_PGD = (
    {"ours": one} for one in (BOTH_FREELB["ours"], partial(ours, PGD, **BALL, init_mag=0.0))
)
FGM = partial(copies.fgm, step_size=0.05)
TABLE_PGD = partial(copies.table_pgd, **BALL)
CASES: list[tuple[str, Callable[[Run], bool], dict[str, Run], Run]] = [
    ("one norm", an_example_is_alone, BOTH_FREELB, partial(copies.freelb, **BALL)),
    ("start on padding", padding_is_nothing, BOTH_START, partial(copies.freelb, **BALL, start=start)),
    ("fresh dropout", no_step_is_plain_training, BOTH_STAY, partial(copies.freelb, **STAY)),
    ("sum", no_step_is_plain_training, BOTH_STAY, partial(copies.freelb, **STAY)),
    ("divided twice", two_mini_batches_are_one, BOTH_FREELB, partial(copies.freelb, **BALL)),
    ("zero_grad", two_mini_batches_are_one, BOTH_FREELB, partial(copies.freelb, **BALL)),
    ("guard", a_loss_scale_is_nothing, BOTH_FREELB, partial(copies.freelb, **BALL)),
    ("FreeLB reduces in each pass", workers_reduce_once, OUR_FREELB, partial(copies.freelb, **BALL)),
    (
        "inputs_embeds hide a decoder's padding",
        a_decoder_is_read_at_its_last_word,
        {"ours": BOTH_STAY["ours"]},
        partial(copies.freelb, **STAY),
    ),
    ("FGM has one norm", an_example_is_alone, OUR_FREELB, FGM),
    ("FGM follows the accumulated gradient", two_mini_batches_are_one, OUR_FREELB, FGM),
    ("FGM draws new dropout masks", no_step_is_plain_training, BOTH_STAY, partial(copies.fgm, step_size=0.0)),
    ("FGM finds no weight of its name", words_move, OUR_FREELB, partial(FGM, name="emb.")),
    ("FGM moves a tied output layer", the_output_layer_stays, OUR_FREELB, FGM),
    ("FGM reduces in each pass", workers_reduce_once, OUR_FREELB, FGM),
    ("PGD has one norm", an_example_is_alone, OUR_PGD, TABLE_PGD),
    ("PGD follows the accumulated gradient", two_mini_batches_are_one, OUR_PGD, TABLE_PGD),
    ("PGD reduces in each pass", workers_reduce_once, OUR_PGD, TABLE_PGD),
]


@pytest.mark.parametrize(("fault", "holds", "right", "copy"), CASES, ids=[case[0] for case in CASES])
def test_what_a_copy_gets_wrong(
    fault: str, holds: Callable[[Run], bool], right: dict[str, Run], copy: Run
) -> None:
    assert {name: holds(run) for name, run in right.items()} == dict.fromkeys(right, True)
    assert not holds(partial(copy, fault=fault) if fault in copies.FAULTS else copy)


def test_every_fault_has_a_case() -> None:
    assert set(copies.FAULTS) <= {case[0] for case in CASES}


def drawn(mask: Tensor, dim: int) -> Tensor:
    """The start that ours draws."""
    return geometry.uniform_start(mask.bool(), dim, 0.1, range(len(mask)))


def right_fgm(model: nn.Module, rows: Batch, share: float = 1.0) -> None:
    copies.freelb(model, rows, 2, 0.05, 0.0, fault="sum", share=share)


@pytest.mark.parametrize(
    ("run", "copy", "times"),
    [
        (partial(ours, FreeLB, **BALL, init_mag=0.1), partial(copies.freelb, **BALL, start=drawn), 1),
        (partial(ours, PGD, **BALL, init_mag=0.1), partial(copies.pgd, **BALL, start=drawn), 1),
        (partial(ours, FreeLB, steps=2, step_size=0.05, max_norm=0.0, init_mag=0.0), right_fgm, 2),
    ],
    ids=["FreeLB", "PGD", "FGM of examples is FreeLB of two passes from X, twice"],
)
def test_equal_to_a_right_copy(run: Run, copy: Run, times: int) -> None:
    model = bert(dropout=0.2)
    found = [gradients(model, one, (batch(), 1.0)) for one in (run, copy)]
    assert same(times * found[0], found[1])
