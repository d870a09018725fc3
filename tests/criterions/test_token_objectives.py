"""Methods on tags and spans: equal to the papers' algorithms, restated softmax by softmax; half precision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import VIRTUAL, batch, build, gradients, slow, train_args
from token_data import write_spans, write_tags

from criterions import references
from criterions.test_methods import ALPHA, EPSILON, FP16, START, one_step, options
from criterions.test_modes import DESCENT, OPTIONS, flat
from fairseq_adv.accordance import AccordanceProbe
from fairseq_adv.accordance.probe import draw_rows
from fairseq_adv.perturbation.geometry import gaussian_start, row_seeds, uniform_start

ROWS = [0, 1, 2, 3, 4]
DIM = 16
TASKS = ["tagging", "span_qa"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "tagging": write_tags(tmp_path_factory.mktemp("tags")),
        "span_qa": write_spans(tmp_path_factory.mktemp("spans"), impossible=True),
    }


def run_of(folders: dict[str, Path], task: str, method: str, *words: str) -> SimpleNamespace:
    run = build(train_args(folders[task], None, method, *words, task=task))
    for name, parameter in run.model.named_parameters():
        if "token_head" in name:  # predictions that differ from one another
            torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(1))
    return run


def predictions(run: SimpleNamespace, sample: dict[str, Any], delta: torch.Tensor) -> list[torch.Tensor]:
    """The logits of each softmax: of a word's tags; of a window's allowed begins, and ends."""
    tokens, encoder = sample["net_input"]["src_tokens"], run.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens)
    x = encoder.extract_features(tokens, token_embeddings=embedded + delta)[0]
    head = run.model.classification_heads["token_head"].out_proj
    logits = F.linear(x, head.weight, head.bias).float()
    if "first" in sample:
        longest = tokens.size(1)
        return [logits[int(place) // longest, int(place) % longest] for place in sample["first"]]
    return [logits[row, allowed, side] for row, allowed in enumerate(sample["allowed"]) for side in (0, 1)]


def targets(sample: dict[str, Any]) -> list[int]:
    if "first" in sample:
        return sample["target"].tolist()  # type: ignore[no-any-return]
    found = []
    for allowed, pair in zip(sample["allowed"], sample["target"].tolist()):
        places = allowed.nonzero().view(-1).tolist()
        found += [places.index(place) for place in pair]
    return found


def weight(sample: dict[str, Any]) -> float:
    """Of begin and end the mean counts."""
    return 1.0 if "first" in sample else 0.5


def loss(run: SimpleNamespace, sample: dict[str, Any], delta: torch.Tensor) -> torch.Tensor:
    losses = [
        F.cross_entropy(logits.unsqueeze(0), torch.tensor([target]))
        for logits, target in zip(predictions(run, sample, delta), targets(sample))
    ]
    return weight(sample) * torch.stack(losses).sum()


def start_of(sample: dict[str, Any], kind: Any, size: float) -> torch.Tensor:
    """Each row is an example."""
    mask = sample["net_input"]["src_tokens"].ne(1)
    return kind(mask, DIM, size, row_seeds(7, 0, sample["id"].tolist()))  # type: ignore[no-any-return]


def assert_equal(run: SimpleNamespace, expected: list[torch.Tensor], names: tuple[str, ...]) -> None:
    ours = gradients(run.model)
    assert any(grad.abs().max() > 1e-3 for grad in expected)
    for name, grad in zip(names, expected):
        torch.testing.assert_close(
            ours[name], grad.to(ours[name]), rtol=1e-4, atol=5e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_gradient_equals_the_restated_algorithm(folders: dict[str, Path], method: str, task: str) -> None:
    run = run_of(folders, task, method, *options(start=START))
    sample = batch(run, ROWS)
    assert len(set(sample["net_input"]["src_lengths"].tolist())) > 1
    one_step(run, sample)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in gradients(run.model)))
    start = start_of(sample, uniform_start, START)
    norms = start.flatten(1).norm(dim=1).clamp(min=EPSILON).view(-1, 1, 1)
    expected = getattr(references, method)(
        lambda delta: loss(run, sample, delta), start * EPSILON / norms, parameters, 3, ALPHA, EPSILON
    )
    assert_equal(run, expected, names)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["symmetric-kl", "kl", "js"])
def test_alum_equals_the_restated_algorithm(folders: dict[str, Path], kind: str, task: str) -> None:
    """The divergence is that of each word's tags; half of that of begin and end over the allowed places."""
    run = run_of(folders, task, "alum_vat", *VIRTUAL, "--vat-divergence", kind)
    sample = batch(run, ROWS)
    one_step(run, sample)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in gradients(run.model)))
    expected, _ = references.alum(
        lambda delta: predictions(run, sample, delta), lambda delta: loss(run, sample, delta),
        start_of(sample, gaussian_start, 0.1), parameters,
        k=2, eta=0.3, epsilon=0.2, alpha=2 * weight(sample), projection="smart", kind=kind,
    )  # fmt: skip
    assert_equal(run, expected, names)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", [m if m in ("freelb", "alum_vat", "freeat") else slow(m) for m in OPTIONS])
def test_half_precision_gives_nearly_the_same_update(
    folders: dict[str, Path], method: str, task: str
) -> None:
    """As tests/criterions/test_modes.py has it for classes."""

    def change(*words: str) -> torch.Tensor:
        run = run_of(folders, task, method, *OPTIONS[method], *DESCENT, *words)
        before = flat(run)
        run.trainer.train_step([batch(run, ROWS)])
        return flat(run) - before

    full, half = change(), change(FP16, "--fp16-init-scale", "4")
    assert full.norm() > 0
    assert (half - full).norm() <= 0.03 * full.norm()


@pytest.mark.parametrize("task", TASKS)
def test_relative_sizes_are_shares_of_an_examples_embeddings(folders: dict[str, Path], task: str) -> None:
    """A tenth of the norm of its embeddings, padding left out, for each row."""
    run = run_of(
        folders, task, "pgd", "--adv-relative", "--adv-steps", "1", "--adv-lr", "0.1", "--adv-max-norm", "0",
        "--adv-init-mag", "0",
    )  # fmt: skip
    sample = batch(run, ROWS)
    log = run.trainer.task.train_step(sample, run.model, run.criterion, run.trainer.optimizer, 0)[2]
    tokens = sample["net_input"]["src_tokens"]
    embedded = run.model.encoder.sentence_encoder.embed_tokens(tokens) * tokens.ne(1).unsqueeze(-1)
    assert float(log["adv_norm"]) == pytest.approx(
        0.1 * float(embedded.detach().flatten(1).norm(dim=1).sum()), rel=1e-5
    )


def test_accordance_lies_between_the_gradients_of_tags(tmp_path: Path) -> None:
    """The mean cosine of all pairs of different tags in different batches, by autograd and in fp64."""
    run = run_of({"tagging": write_tags(tmp_path, train=24)}, "tagging", "standard")
    found = AccordanceProbe(run.criterion.objective, run.task, "train", batches=3, batch_size=8, seed=3)
    measured = found.measure(run.model)
    run.model.eval()
    weights = [p for p in run.model.parameters() if p.requires_grad]
    batches: list[dict[int, torch.Tensor]] = []
    for rows in draw_rows(24, 3, 8, 3, "train"):
        sample = batch(run, rows)
        zero = torch.zeros(*sample["net_input"]["src_tokens"].shape, DIM)
        logits, target = torch.stack(predictions(run, sample, zero)), sample["target"]
        of: dict[int, torch.Tensor] = {}
        for tag in target.unique().tolist():
            mean = F.cross_entropy(logits[target == tag], target[target == tag])
            parts = torch.autograd.grad(mean, weights, retain_graph=True, allow_unused=True)
            of[tag] = torch.cat(
                [(torch.zeros_like(p) if g is None else g).double().flatten() for p, g in zip(weights, parts)]
            )
        batches.append(of)
    cosines = [
        float(torch.cosine_similarity(batches[s][i], batches[t][j], dim=0))
        for s, t in ((0, 1), (0, 2), (1, 2)) for i in batches[s] for j in batches[t] if i != j
    ]  # fmt: skip
    assert len(run.task.tags) == 5 and measured.pairs == len(cosines) > 20
    assert measured.cosine["all"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-5)
