"""SMART: the proximal term against the average of the weights, restated; and what keeps the average."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import (
    batch,
    build,
    tensors,
    train_args,
    weights,
    write_task,
)

from criterions import references
from criterions.restated import (
    DROPOUT,
    loss,
    one_step,
    predictions,
)
from criterions.test_vat import FP16, built, start_of, vat_options

ROWS = [0, 1, 2, 3]
EMA = ["--store-ema", "--ema-decay", "0.9"]
SMART = [*EMA, "--smart-mu", "2.5"]
LAST = "encoder.sentence_encoder.layers.1.fc1.weight"


EMBEDDINGS, OUTPUT = "encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight"


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
def test_three_updates_equal_the_restated_algorithm(folders: dict[str, Path], objective: str) -> None:
    """Weights and average, whose word embeddings are the output matrix too: one tensor, which decays once."""
    lr, words = 0.1, [*vat_options(), *SMART, "--optimizer", "sgd", "--lr", "0.1", "--clip-norm", "0"]
    run, ours, average = (built(folders, objective, *words, criterion="smart") for _ in range(3))
    sample = batch(run, ROWS)
    size = int(sample["target"].ne(1).sum()) if objective == "masked_lm" else len(ROWS)
    parameters, averaged = (
        [p for n, p in one.model.named_parameters() if p.requires_grad and is_used(n, objective)]
        for one in (ours, average)
    )
    for update in range(3):
        run.trainer.train_step([sample])
        start = start_of(sample, 0.1, update)
        gradient, _ = references.alum(
            lambda d: predictions(ours, sample, objective, d), lambda d: loss(ours, sample, objective, d),
            start, parameters, k=2, eta=0.5, epsilon=0.2, alpha=3.0, projection="smart", kind="symmetric-kl",
        )  # fmt: skip
        zero = torch.zeros_like(start)
        target = [p.detach() for p in predictions(average, sample, objective, zero)]
        clean = predictions(ours, sample, objective, zero)
        proximal = references.total_divergence(target, clean, "symmetric-kl", False)
        added = torch.autograd.grad(2.5 * proximal, parameters)
        with torch.no_grad():
            for p, g, a, mean in zip(parameters, gradient, added, averaged):
                p.sub_(lr * (g + a) / size)
                mean.copy_(0.9 * mean + 0.1 * p)
    for found, expected in ((run.model, ours.model), (run.trainer.ema.get_model(), average.model)):
        pairs = [(found.state_dict()[name], expected.state_dict()[name]) for name in values_of(run.model)]
        difference = torch.cat([(a - b).flatten() for a, b in pairs])
        assert difference.norm() <= 4e-7 * torch.cat([b.flatten() for _, b in pairs]).norm()


def is_used(name: str, objective: str) -> bool:
    return objective == "masked_lm" or "lm_head" not in name


def restated_average(after: list[dict[str, Any]], first: int, every: int) -> dict[str, torch.Tensor]:
    """beta a + (1 - beta) w for each name by itself, in fp64; beta is 0 before update ``first``."""
    average = {name: value.double() for name, value in after[0].items()}
    for update, now in enumerate(after):
        beta = 0.9 if update >= first else 0.0
        if update and update % every == 0:
            average = {name: beta * a + (1 - beta) * now[name].double() for name, a in average.items()}
    return average


def values_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What is trained, under all its names."""
    names = {n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    return {n: w.detach().clone() for n, w in model.state_dict().items() if n in names}


def save(run: SimpleNamespace, path: Path) -> Path:
    run.trainer.consolidate_optimizer()
    iterator = {"epoch": 1, "iterations_in_epoch": run.trainer.get_num_updates()}
    run.trainer.save_checkpoint(str(path), {"train_iterator": iterator, "val_loss": None})
    return path


@pytest.mark.parametrize(
    ("criterion", "words", "first", "every"),
    [
        ("smart", [], 0, 1),
        ("smart", [*FP16, "--ema-fp32"], 0, 1),
        ("smart", ["--ema-fp32", "--ema-update-freq", "2"], 0, 2),
        ("freelb", ["--ema-start-update", "3", "--ema-update-freq", "2"], 3, 2),
    ],
    ids=["plain", "fp16", "every-second-update", "freelb-from-update-3"],
)
def test_each_weight_is_averaged_once_also_over_a_restart(
    tmp_path: Path, folders: dict[str, Path], criterion: str, words: list[str], first: int, every: int
) -> None:
    """Five updates, with and without a restart after the third: a restated average, and one checkpoint.

    With --ema-update-freq 2 the restart is between two updates of the average.
    """
    smart = SMART if criterion == "smart" else EMA
    args = [*smart, *DROPOUT, "--lr", "0.05", *words]
    args = train_args(folders["masked_lm"], tmp_path, criterion, *args, task="masked_lm")
    files = {}
    for restarts in (False, True):
        run = build(args)
        after = [values_of(run.model)]
        for update in range(5):
            if restarts and update == 3:
                path = save(run, tmp_path / "third.pt")
                run = build(args)
                run.trainer.load_checkpoint(str(path))
            run.trainer.train_step([batch(run, [3 * update, 3 * update + 1, 3 * update + 2])])
            after.append(values_of(run.model))
        files[restarts] = save(run, tmp_path / f"{restarts}.pt")
        extra = torch.load(files[restarts])["extra_state"]
        found = extra["ema_fp32_params" if "--ema-fp32" in words else "ema"]
        expected = restated_average(after, first, every)
        assert {EMBEDDINGS, OUTPUT} <= expected.keys()
        for name, value in expected.items():
            assert (found[name] - value).abs().max() <= 4e-7, name
            assert torch.equal(extra["ema"][name], found[name].to(after[0][name].dtype).float()), name
    assert tensors(files[True]) == tensors(files[False])


@pytest.mark.parametrize("precision", [[], FP16], ids=["fp32", "fp16"])
def test_the_term_is_0_while_the_average_is_the_model(folders: dict[str, Path], precision: list[str]) -> None:
    """With the same dropout masks; with redrawn ones it measures them."""
    for shared, is_zero in (("true", True), ("false", False)):
        words = [*vat_options(), *SMART, *DROPOUT, *precision, "--ema-fp32", "--vat-share-dropout", shared]
        run = built(folders, "masked_lm", *words, criterion="smart")
        average = run.trainer.ema.get_model()
        sample = run.trainer._prepare_sample(batch(run, ROWS))[0]
        _, _, log = one_step(run, sample, ema_model=average)
        assert bool(log["smart_proximal"] == 0.0) is is_zero


@pytest.mark.parametrize(
    ("earlier", "criterion", "resumes"),
    [("smart", "smart", True), ("smart", "freelb", False), ("standard", "smart", False)],
)
def test_a_new_run_begins_its_average_at_the_weights_and_a_resumed_run_keeps_it(
    tmp_path: Path, earlier: str, criterion: str, resumes: bool
) -> None:
    """Whether or not the checkpoint has one; fairseq 0.12.2 alone stops with KeyError without it."""
    data, more = write_task(tmp_path / "data"), ["--ema-fp32", "--lr", "0.05"]
    averaging = {"smart": [*SMART, *more], "freelb": [*EMA, *more], "standard": ["--lr", "0.05"]}
    run = build(train_args(data, tmp_path, earlier, *averaging[earlier]))
    for rows in (ROWS, ROWS[:2]):
        run.trainer.train_step([batch(run, rows)])
    start = save(run, tmp_path / "start.pt")
    run = build(train_args(data, tmp_path, criterion, *averaging[criterion]))
    run.trainer.load_checkpoint(str(start), reset_optimizer=not resumes)
    kept, trained = torch.load(start)["extra_state"].get("ema"), weights(start)
    assert (kept is None) is (earlier == "standard")
    assert kept is None or not torch.equal(kept[LAST], trained[LAST])
    ema = run.trainer.ema
    for name, value in (kept if resumes else trained).items():
        assert all(
            torch.equal(average[name], value) for average in (ema.get_model().state_dict(), ema.fp32_params)
        )


def test_it_needs_the_average_in_half_precision_in_fp32(folders: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"pass --store-ema and --ema-decay 0\.999"):
        built(folders, "classes", criterion="smart")
    for half in ("--fp16", "--memory-efficient-bf16"):
        with pytest.raises(ValueError, match="in half precision needs --ema-fp32"):
            built(folders, "classes", *SMART, half, criterion="smart")
