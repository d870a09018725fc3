"""Methods on objectives whose examples have several rows: norms go over all candidates (FreeLB, A.1)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import batch, build, gradients, train_args, write_questions, write_wsc

from criterions import references
from criterions.test_methods import ALPHA, EPSILON, START, one_step, options, recorded
from fairseq_adv.perturbation.geometry import Groups, row_seeds

ROWS = [0, 1, 2, 3]
DIM = 16


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "commonsense_qa": write_questions(tmp_path_factory.mktemp("questions")),
        "wsc": write_wsc(tmp_path_factory.mktemp("wsc")),
    }


def example_of_row(sample: dict[str, Any]) -> list[int]:
    return sample["question" if "question" in sample else "sentence"].tolist()  # type: ignore[no-any-return]


def rows_of_examples(sample: dict[str, Any]) -> list[list[int]]:
    owners = example_of_row(sample)
    return [[r for r, owner in enumerate(owners) if owner == e] for e in range(sample["nsentences"])]


def features(run: SimpleNamespace, tokens: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    encoder = run.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens)
    return encoder.extract_features(tokens, token_embeddings=embedded + delta)[0]  # type: ignore[no-any-return]


def ranking_loss(run: SimpleNamespace, sample: dict[str, Any], delta: torch.Tensor) -> torch.Tensor:
    """Question by question, without padding columns."""
    x = features(run, sample["net_input"]["src_tokens"], delta)
    scores = run.model.classification_heads["sentence_classification_head"](x).float().view(-1)
    losses = [
        F.cross_entropy(scores[rows].unsqueeze(0), target.view(1))
        for rows, target in zip(rows_of_examples(sample), sample["target"])
    ]
    return torch.stack(losses).sum()


def wsc_loss(run: SimpleNamespace, sample: dict[str, Any], delta: torch.Tensor) -> torch.Tensor:
    """fairseq's WSCCriterion: the margin loss with alpha 1 and beta 0, sentence by sentence, over all
    logits.
    """
    tokens, span = sample["net_input"]["src_tokens"], sample["span"]
    masked = tokens.clone()
    masked[span] = run.task.mask_index
    log_probs = run.model.encoder.lm_head(features(run, masked, delta)).float().log_softmax(-1)
    of_tokens = log_probs.gather(2, tokens.unsqueeze(-1)).squeeze(-1)
    scores = (of_tokens * span).sum(1) / span.sum(1)
    total = scores.new_zeros(())
    for rows, target in zip(rows_of_examples(sample), sample["target"]):
        query, candidates = scores[rows[0]], scores[rows[1:]]
        if target == 1:
            total = total + (-query + (candidates - query).clamp(min=0)).sum()
    return total


LOSSES = {"commonsense_qa": ranking_loss, "wsc": wsc_loss}


def start_of(sample: dict[str, Any], magnitude: float) -> torch.Tensor:
    """U(-m, m) / sqrt(L * D), L counting the real tokens of all rows of an example."""
    owners = example_of_row(sample)
    mask = sample["net_input"]["src_tokens"].ne(1)
    ids = [int(sample["id"][owner]) for owner in owners]
    start = torch.zeros(*mask.shape, DIM)
    for row, seed in enumerate(row_seeds(7, 0, ids, Groups(torch.tensor(owners), len(set(owners))))):
        length = int(mask[row].sum())
        noise = torch.rand(length, DIM, generator=torch.Generator().manual_seed(seed))
        total = sum(int(mask[r].sum()) for r, owner in enumerate(owners) if owner == owners[row])
        start[row, :length] = (2 * noise - 1) * magnitude / (total * DIM) ** 0.5
    return start


def project(delta: torch.Tensor, examples: list[list[int]]) -> torch.Tensor:
    projected = delta.clone()
    for rows in examples:
        norm = delta[rows].norm()
        projected[rows] = delta[rows] * min(1.0, EPSILON / float(norm)) if norm > 0 else delta[rows]
    return projected


@pytest.mark.parametrize("task", ["commonsense_qa", "wsc"])
@pytest.mark.parametrize("method", ["freelb", "pgd"])
@pytest.mark.parametrize("start", [0.0, START, 3.0], ids=["clean-start", "random-start", "start-outside"])
def test_gradient_equals_the_restated_algorithm(
    folders: dict[str, Path], method: str, task: str, start: float
) -> None:
    run = build(train_args(folders[task], None, method, *options(start=start), task=task))
    sample = batch(run, ROWS)
    examples = rows_of_examples(sample)
    assert len({len(rows) for rows in examples}) > 1  # different numbers of rows in one batch
    one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in ours))
    expected = getattr(references, method)(
        lambda delta: LOSSES[task](run, sample, delta), project(start_of(sample, start), examples),
        parameters, 3, ALPHA, EPSILON, examples,
    )  # fmt: skip
    assert any(grad.abs().max() > 1e-3 for grad in expected)
    for name, grad in zip(names, expected):
        torch.testing.assert_close(ours[name], grad, rtol=1e-4, atol=5e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("task", ["commonsense_qa", "wsc"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_ball_is_that_of_all_rows_of_an_example(folders: dict[str, Path], task: str, norm: str) -> None:
    args = train_args(
        folders[task], None, "freelb", *options(alpha=9.0, start=3.0), "--adv-norm-type", norm, task=task
    )
    run = build(args)
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    for rows, target in zip(rows_of_examples(sample), sample["target"]):
        joint = deltas[-1][rows].norm() if norm == "l2" else deltas[-1][rows].abs().max()
        # alpha is far larger than the ball, so that delta lies on its surface; a sentence without loss has
        # none.
        assert joint <= EPSILON * (1 + 1e-5)
        if task == "commonsense_qa" or target == 1:
            assert joint > EPSILON * (1 - 1e-4) or len(rows) == 1
            assert norm == "linf" or deltas[-1][rows[0]].norm() < EPSILON * (1 - 1e-3) or len(rows) == 1


def test_another_candidate_changes_the_step_of_all(tmp_path: Path) -> None:
    """The joint norm couples the candidates of a question, and only those."""
    folder = write_questions(tmp_path, choices=(4,))
    run = build(train_args(folder, None, "freelb", *options(start=0.0), task="commonsense_qa"))
    together, apart = batch(run, [0, 1]), batch(run, [0])
    with recorded() as both:
        one_step(run, together)
    with recorded() as one:
        one_step(run, apart)
    width = apart["net_input"]["src_tokens"].size(1)
    torch.testing.assert_close(both[1][:4, :width], one[1], rtol=1e-5, atol=1e-7)
    norms = one[1].flatten(1).norm(dim=1)
    assert norms.square().sum().sqrt().item() == pytest.approx(ALPHA, rel=1e-5)  # not alpha for each row


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_an_all_negative_batch_has_a_zero_loss_and_a_zero_gradient(
    folders: dict[str, Path], method: str
) -> None:
    run = build(train_args(folders["wsc"], None, method, *options(), task="wsc"))
    negative = [i for i, example in enumerate(run.task.dataset("train").examples) if example.label is False]
    with recorded() as deltas:
        loss, size, _ = one_step(run, batch(run, negative))
    assert float(loss) == 0.0 and size == len(negative)
    grads = gradients(run.model)
    assert grads and not any(grad.any() for grad in grads.values())
    assert all(delta.isfinite().all() and torch.equal(delta, deltas[0]) for delta in deltas)


@pytest.mark.parametrize("task", ["commonsense_qa", "wsc"])
@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_half_precision_gives_the_gradient_of_fp32(folders: dict[str, Path], method: str, task: str) -> None:
    """fp16 has 11 significant bits (5e-4); through two layers and three passes a relative error of 1e-2 is
    allowed.
    """
    full = build(train_args(folders[task], None, method, *options(), task=task))
    one_step(full, batch(full, ROWS))
    words = ["--memory-efficient-fp16", "--fp16-init-scale", "4"]
    half = build(train_args(folders[task], None, method, *options(), *words, task=task))
    half.trainer.model.load_state_dict({k: v.half() for k, v in full.model.state_dict().items()})
    loss, _, _ = one_step(half, half.trainer._prepare_sample(batch(half, ROWS))[0])
    assert loss.isfinite() and next(half.model.parameters()).dtype == torch.float16
    expected, ours = gradients(full.model), gradients(half.model)
    scale = half.trainer.optimizer.scaler.loss_scale
    difference = torch.cat([(ours[n].float() / scale - expected[n]).flatten() for n in expected]).norm()
    assert difference <= 1e-2 * torch.cat([g.flatten() for g in expected.values()]).norm()
