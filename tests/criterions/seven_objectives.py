"""All objectives restated, for methods that are tested on each: their data, predictions, loss and noise."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import torch
from support import gradients, write_corpus, write_questions, write_task, write_wsc
from token_data import write_spans, write_tags

from criterions import test_token_objectives, test_vat
from criterions.test_examples_of_several_rows import rows_of_examples
from fairseq_adv.perturbation.geometry import Groups, row_seeds

AT_TOKENS = ("tagging", "span_qa")
OBJECTIVES = ("classes", "regression", "commonsense_qa", "wsc", "masked_lm", *AT_TOKENS)
ROWS = [0, 1, 2, 3]
DIM = 16


def write_all(new_folder: Callable[[str], Path]) -> dict[str, Path]:
    """The folder of each objective."""
    return {
        "classes": write_task(new_folder("classes"), classes=3),
        "regression": write_task(new_folder("regression"), classes=1),
        "commonsense_qa": write_questions(new_folder("questions")),
        "wsc": write_wsc(new_folder("wsc")),
        "masked_lm": write_corpus(new_folder("corpus")),
        "tagging": write_tags(new_folder("tags")),
        "span_qa": write_spans(new_folder("spans"), impossible=True),
    }


def run_of(folders: dict[str, Path], objective: str, method: str, *words: str) -> SimpleNamespace:
    if objective in AT_TOKENS:
        return test_token_objectives.run_of(folders, objective, method, *words)
    return test_vat.built(folders, objective, *words, criterion=method)


def predictions(
    run: SimpleNamespace, sample: dict[str, Any], objective: str, delta: torch.Tensor
) -> list[torch.Tensor]:
    """The logits of each prediction at X + delta, without a hook."""
    if objective in AT_TOKENS:
        return test_token_objectives.predictions(run, sample, delta)
    return test_vat.predict(run, sample, objective, delta)


def loss(run: SimpleNamespace, sample: dict[str, Any], objective: str, delta: torch.Tensor) -> torch.Tensor:
    """Summed over the batch, at X + delta."""
    if objective in AT_TOKENS:
        return test_token_objectives.loss(run, sample, delta)
    return test_vat.loss_of(run, sample, objective, delta)


def examples_of(sample: dict[str, Any]) -> list[list[int]]:
    """The rows of each example."""
    if "question" in sample or ("sentence" in sample and "span" in sample):
        return rows_of_examples(sample)
    return [[row] for row in range(len(sample["net_input"]["src_tokens"]))]


def draws(sample: dict[str, Any], kind: str, update: int = 0) -> torch.Tensor:
    """U(-1, 1) or N(0, 1) for the real tokens from each row's own generator, 0 on padding."""
    mask, examples = sample["net_input"]["src_tokens"].ne(1), examples_of(sample)
    owners = [e for row in range(len(mask)) for e, rows in enumerate(examples) if row in rows]
    ids = [int(sample["id"][owner]) for owner in owners]
    found = torch.zeros(*mask.shape, DIM)
    for row, seed in enumerate(row_seeds(7, update, ids, Groups(torch.tensor(owners), len(examples)))):
        length, generator = int(mask[row].sum()), torch.Generator().manual_seed(seed)
        if kind == "uniform":
            found[row, :length] = 2 * torch.rand(length, DIM, generator=generator) - 1
        else:
            found[row, :length] = torch.randn(length, DIM, generator=generator)
    return found


def assert_gradient(run: SimpleNamespace, total: torch.Tensor, tolerance: float) -> None:
    """The gradient that a step has left is that of ``total``, to a share of its length."""
    ours = gradients(run.model)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in ours))
    expected = torch.autograd.grad(total, parameters, allow_unused=True)
    pairs = [(ours[n], torch.zeros_like(ours[n]) if g is None else g) for n, g in zip(names, expected)]
    whole = torch.cat([g.flatten() for _, g in pairs])
    assert whole.norm() > 1e-2
    assert torch.cat([(found - g).flatten() for found, g in pairs]).norm() <= tolerance * whole.norm()
