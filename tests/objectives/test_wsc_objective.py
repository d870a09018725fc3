"""WSC: span scores, both losses by hand, sentences without candidates, batches without a loss."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from support import batch, build, train_args, write_wsc

from fairseq_adv.objectives.wsc import chosen

pytestmark = pytest.mark.fast

NONE = -math.inf


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return build(train_args(write_wsc(tmp_path_factory.mktemp("wsc")), None, "standard", task="wsc"))


def loss_of(run: SimpleNamespace, scores: torch.Tensor, target: list[int], **options: float) -> torch.Tensor:
    chosen_loss = {"wsc_cross_entropy": False, "wsc_margin_alpha": 1.0, "wsc_margin_beta": 0.0, **options}
    task = SimpleNamespace(
        cfg=SimpleNamespace(**chosen_loss),
        mask_index=run.task.mask_index,
        source_dictionary=run.task.dictionary,
    )
    objective = type(run.criterion.objective)(None, task)
    return objective.loss(scores, {"target": torch.tensor(target)})  # type: ignore[no-any-return]


def test_margin_loss_by_hand(run: SimpleNamespace) -> None:
    """q = -1, c = -2, -0.5, alpha = 3, beta = 0.2: (1 + 0) + (1 + 3 * 0.7) = 4.1; gradients -2 - 3 and 3."""
    scores = torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -9.0, NONE]], requires_grad=True)
    loss = loss_of(run, scores, [1, 0], wsc_margin_alpha=3.0, wsc_margin_beta=0.2)
    assert loss.item() == pytest.approx(4.1, rel=1e-6)
    loss.backward()
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad, torch.tensor([[-5.0, 0.0, 3.0], [0.0, 0.0, 0.0]]))


def test_cross_entropy_by_hand(run: SimpleNamespace) -> None:
    """q = 0 among 0, ln 2, ln 5: -ln 1/8; an absent candidate has no part: q = 0 among 0, ln 3: -ln 1/4."""
    scores = torch.tensor([[0.0, math.log(2), math.log(5)], [0.0, math.log(3), NONE]], requires_grad=True)
    loss = loss_of(run, scores, [1, 1], wsc_cross_entropy=True)
    assert loss.item() == pytest.approx(math.log(8) + math.log(4), rel=1e-6)
    loss.backward()
    assert scores.grad is not None and scores.grad.isfinite().all()


@pytest.mark.parametrize("cross_entropy", [False, True], ids=["margin", "cross-entropy"])
def test_without_candidates_there_is_nothing_to_learn(run: SimpleNamespace, cross_entropy: bool) -> None:
    scores = torch.tensor([[-3.0, NONE], [-1.0, -2.0]], requires_grad=True)
    alone = loss_of(run, scores, [1, 0], wsc_cross_entropy=cross_entropy)
    alone.backward()
    assert alone.item() == 0.0
    assert scores.grad is not None and not scores.grad.any()
    assert chosen(scores.detach()).tolist() == [True, True]


@pytest.mark.parametrize("cross_entropy", [False, True], ids=["margin", "cross-entropy"])
def test_a_sentence_without_a_query_does_not_spoil_the_others(
    run: SimpleNamespace, cross_entropy: bool
) -> None:
    scores = torch.tensor([[NONE, -2.0], [-1.0, -0.5]], requires_grad=True)
    loss = loss_of(run, scores, [-1, 1], wsc_cross_entropy=cross_entropy)
    loss.backward()
    assert loss.isfinite() and scores.grad is not None
    assert scores.grad.isfinite().all() and not scores.grad[0].any() and scores.grad[1].any()


def test_a_query_as_good_as_every_candidate_is_chosen() -> None:
    """fairseq's rule: q >= every c."""
    scores = torch.tensor([[-1.0, -1.0, -2.0], [-1.0, -0.5, -2.0], [-1.0, NONE, NONE], [NONE, -9.0, NONE]])
    assert chosen(scores).tolist() == [True, False, True, False]


def test_scores_are_mean_log_probabilities_of_the_masked_span(run: SimpleNamespace) -> None:
    """Row by row over the whole vocabulary at all positions, as fairseq's WSC code does."""
    run.model.eval()
    sample = batch(run, [0, 1, 2, 3])
    assert (sample["span"].sum(dim=1) > 1).any()
    with torch.no_grad():
        scores = run.criterion.objective.predict(run.model, sample)
        for r, (tokens, span) in enumerate(zip(sample["net_input"]["src_tokens"], sample["span"])):
            masked = tokens.masked_fill(span, run.task.mask_index)[tokens != 1].unsqueeze(0)
            log_probs = run.model(src_tokens=masked)[0].log_softmax(-1)[0]
            positions = span.nonzero().view(-1)
            expected = log_probs[positions, tokens[positions]].mean()
            got = scores[sample["sentence"][r], sample["column"][r]]
            torch.testing.assert_close(got, expected, rtol=0, atol=5e-6)
    there = torch.zeros_like(scores, dtype=torch.bool)
    there[sample["sentence"], sample["column"]] = True
    assert (scores[~there] == NONE).all() and (~there).any()


def test_accuracy_counts_labelled_sentences_true_and_false(run: SimpleNamespace) -> None:
    run.model.eval()
    sample = batch(run, list(range(8)), "valid")
    with torch.no_grad():
        scores = run.criterion.objective.predict(run.model, sample)
    decisions = [all(row[0] >= c for c in row[1:]) for row in scores]
    right = sum(bool(t) == d for t, d in zip(sample["target"].tolist(), decisions))
    assert 0 < right < 8
    with metrics.aggregate(new_root=True) as agg:
        for rows in ([0, 1, 2, 3, 4], [5, 6, 7]):
            run.trainer.valid_step(batch(run, rows, "valid"))
    assert agg.get_smoothed_values()["accuracy"] == round(100 * right / 8, 2)


def test_a_sentence_without_a_label_has_no_divergence(run: SimpleNamespace) -> None:
    """It doesn't count in the sample size either."""
    clean, perturbed = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    compare = run.criterion.objective.divergence
    target = torch.tensor([1, -1, 0])
    found = compare(clean, perturbed, {"target": target}, "kl")
    alone = compare(clean[[0, 2]], perturbed[[0, 2]], {"target": target[[0, 2]]}, "kl")
    assert found.item() == pytest.approx(alone.item(), rel=1e-6) and alone > 0


def test_scores_that_are_not_numbers_make_the_loss_so(run: SimpleNamespace) -> None:
    """And not a perfect one."""
    assert loss_of(run, torch.full((1, 2), math.nan), [1]).isnan()
    unknown, sample = torch.full((1, 2), math.nan), {"target": torch.ones(1)}
    log = run.criterion.objective.logging_output(unknown, sample, gather=False)
    assert int(log["nnan"]) == 1
    assert loss_of(run, torch.full((1, 2), math.nan), [1], wsc_cross_entropy=True).isnan()
