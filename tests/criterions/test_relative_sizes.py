"""Sizes as shares of an example's embeddings, for every method with a perturbation."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support import batch, build, flat_gradient, train_args, write_questions, write_task

from criterions.restated import draws, examples_of, one_step, recorded
from criterions.restatements import SGD
from criterions.test_tavat import table_of, update

ROWS = [0, 1, 2, 3, 4]
# Step, radius and start.
SHARES = {
    "adv": (0.3, 0.5, 0.4),
    "vat": (0.3, 0.5, 0.2),
    "freelb-outside": (0.3, 0.5, 1.2),  # starts on the ball
    "alum_vat-clamp": (30, 0.5, 0.2),
}
FAMILY = {
    "freelb": ["adv"],
    "freelb-outside": ["adv"],
    "pgd": ["adv", "--adv-norm-type", "linf"],
    "freeat": ["adv", "--freeat-schedule", "groups"],
    "yopo": ["adv", "--yopo-steps", "2"],
    "tavat": ["adv"],
    "alum_vat": ["vat", "--vat-projection", "smart", "--vat-steps", "2"],
    "alum_vat-l2": ["vat", "--vat-projection", "l2"],
    "alum_vat-clamp": ["vat", "--vat-projection", "clamp"],
    "smart": ["vat", "--store-ema", "--ema-decay", "0.9"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "sentence_prediction": write_task(tmp_path_factory.mktemp("classes")),
        "commonsense_qa": write_questions(tmp_path_factory.mktemp("questions")),
    }


def sizes(name: str, factor: float, start: float) -> list[str]:
    kind = FAMILY[name][0]
    step, radius, first = SHARES.get(name, SHARES[kind])
    if name.endswith("clamp"):  # it does not normalise the gradient, which has a unit too
        step *= factor
    if kind == "adv":
        names = ("--adv-lr", "--adv-max-norm", "--adv-init-mag")
    else:
        names = ("--vat-step-size", "--vat-epsilon", "--vat-init-std")
    found = zip(names, (step * factor, radius * factor, first * start))
    return [word for name, value in found for word in (name, repr(value))]


def side(
    data: Path, name: str, factor: float, start: float, *more: str, task: str = "sentence_prediction"
) -> SimpleNamespace:
    words = [*FAMILY[name][1:], *sizes(name, factor, start), *more]
    run = build(train_args(data, None, name.split("-")[0], *words, task=task))
    run.model.encoder.sentence_encoder.embed_tokens.weight.data[1] = 0.5  # padding has no size
    return run


def deltas_of(run: SimpleNamespace, rows: list[int]) -> list[torch.Tensor]:
    """One training step: the delta of each of its passes; the gradient stays."""
    average = {"ema_model": run.trainer.ema.get_model()} if run.trainer.cfg.ema.store_ema else {}
    with recorded() as deltas:
        one_step(run, batch(run, rows), **average)
    return deltas


def size_of(run: SimpleNamespace, row: int, name: str) -> tuple[float, float]:
    """What shares of one example mean: of radius and step, and of the start."""
    tokens = batch(run, [row])["net_input"]["src_tokens"]
    embedded = run.model.encoder.sentence_encoder.embed_tokens(tokens[tokens.ne(1)]).detach()
    rms, norm = float(embedded.square().mean().sqrt()), float(embedded.norm())
    if name.split("-")[0] in ("freelb", "freeat", "yopo", "tavat"):
        return norm, norm  # the start divides by sqrt(L * D)
    return (norm if name.endswith("l2") else rms), rms


@pytest.mark.parametrize(
    ("task", "name"),
    [("sentence_prediction", name) for name in FAMILY]
    + [("commonsense_qa", name) for name in ("freelb", "alum_vat-l2")],
)
def test_each_example_has_the_sizes_that_its_embeddings_give(
    folders: dict[str, Path], task: str, name: str
) -> None:
    """A mini-batch with shares is the sum of its examples, each with sizes of its own in absolute numbers.

    All candidates of a question are one example.
    """
    data = folders[task]
    run = side(data, name, 1.0, 1.0, f"--{FAMILY[name][0]}-relative", task=task)
    relative = deltas_of(run, ROWS)
    ours, expected, seen = flat_gradient(run.model), torch.zeros(()), 0
    for row in ROWS:
        alone = side(data, name, *size_of(run, row, name), task=task)
        absolute = deltas_of(alone, [row])
        expected = expected + flat_gradient(alone.model)
        assert len(absolute) == len(relative)
        for whole, single in zip(relative, absolute):
            rows, length, _ = single.shape
            part = whole[seen : seen + rows]
            torch.testing.assert_close(part[:, :length], single, rtol=1e-3, atol=1e-6)
            assert single.any() and not part[:, length:].any()  # padding of the longer rows
        seen += rows
    # fp32; all rows in one product, and one after the other.
    assert (ours - expected).norm() <= 2e-5 * expected.norm()


NOISE = {
    "noise-uniform": (["noise", "--noise-relative", "--noise-size", "0.1"], "uniform"),
    "noise-normal": (
        ["noise", "--noise-relative", "--noise-size", "0.1", "--noise-kind", "normal"],
        "normal",
    ),
    "r3f": (["r3f", "--r3f-relative", "--r3f-epsilon", "0.1"], "uniform"),
    "creat": (["creat", "--adv-relative", "--creat-init-std", "0.1"], "normal"),
    "creat-linf": (
        ["creat", "--adv-relative", "--creat-init-std", "0.1", "--adv-norm-type", "linf"],
        "normal",
    ),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_a_share_of_the_root_mean_square_entry(folders: dict[str, Path], name: str) -> None:
    """Of all candidates of a question together; noise's, too, whose U(-1, 1) is divided by sqrt(L * D)."""
    words, kind = NOISE[name]
    run = build(train_args(folders["commonsense_qa"], None, *words, task="commonsense_qa"))
    run.model.encoder.sentence_encoder.embed_tokens.weight.data[1] = 0.5  # padding has no size
    sample = batch(run, ROWS)
    with recorded() as deltas:
        log = one_step(run, sample)[2]
    tokens, expected, shares = sample["net_input"]["src_tokens"], draws(sample, kind) * 0.1, []
    for rows in examples_of(sample):
        words_of = tokens[rows][tokens[rows].ne(1)]
        embedded = run.model.encoder.sentence_encoder.embed_tokens(words_of).detach()
        expected[rows] *= embedded.square().mean().sqrt()
        shares.append(float(deltas[-1][rows].norm() / embedded.norm()))
    torch.testing.assert_close(deltas[0], expected, rtol=1e-5, atol=1e-7)
    assert float(log["adv_ratio"]) == pytest.approx(sum(shares), rel=1e-5)
    norms = [
        deltas[-1][rows].flatten().norm(p=math.inf if "linf" in name else 2) for rows in examples_of(sample)
    ]
    assert float(log["adv_norm"]) == pytest.approx(float(sum(norms)), rel=1e-5)
    assert log["nexamples"] == len(ROWS)


def test_tavats_table_holds_shares(folders: dict[str, Path]) -> None:
    """Of the words of an example, in its unit."""
    data, tables = folders["sentence_prediction"], []
    relative = side(data, "tavat", 1.0, 1.0, "--adv-relative", *SGD)
    norm, _ = size_of(relative, 2, "tavat")
    sample = batch(relative, [2])
    for run in (relative, side(data, "tavat", norm, norm, *SGD)):
        update(run, sample, 0)
        tables.append(table_of(run)[sample["net_input"]["src_tokens"]])
    torch.testing.assert_close(tables[0] * norm, tables[1], rtol=1e-3, atol=1e-6)
