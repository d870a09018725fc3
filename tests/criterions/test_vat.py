"""ALUM in fairseq's trainer against its Algorithm 1, restated in plain torch, on every objective."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import (
    batch,
    build,
    flat_gradient,
    frozen,
    gradients,
    train_args,
    write_corpus,
    write_questions,
    write_task,
    write_wsc,
)

from criterions import references
from criterions.test_examples_of_several_rows import LOSSES, features, rows_of_examples
from criterions.test_methods import loss_at, one_step, recorded
from fairseq_adv.perturbation.geometry import Groups, row_seeds

ROWS = [0, 1, 2, 3]
DIM = 16
OBJECTIVES = ["classes", "regression", "commonsense_qa", "wsc", "masked_lm"]
# Far larger than the papers', so that fp32 tells what delta does from its own rounding.
LARGE = {"k": 2, "eta": 0.5, "epsilon": 0.2, "alpha": 3.0, "std": 0.1}
FP16 = ["--memory-efficient-fp16", "--fp16-init-scale", "4"]
DROPOUT = ["--dropout", "0.2", "--attention-dropout", "0.2"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "classes": write_task(tmp_path_factory.mktemp("classes"), classes=3),
        "regression": write_task(tmp_path_factory.mktemp("regression"), classes=1),
        "commonsense_qa": write_questions(tmp_path_factory.mktemp("questions")),
        "wsc": write_wsc(tmp_path_factory.mktemp("wsc")),
        "masked_lm": write_corpus(tmp_path_factory.mktemp("corpus")),
    }


def vat_options(
    projection: str = "smart", kind: str = "symmetric-kl", *, k: int = 2, eta: float = 0.5,
    epsilon: float = 0.2, alpha: float = 3.0, std: float = 0.1,
) -> list[str]:  # fmt: skip
    return [
        "--vat-projection", projection, "--vat-divergence", kind, "--vat-steps", str(k), "--vat-step-size",
        str(eta), "--vat-epsilon", str(epsilon), "--vat-alpha", str(alpha), "--vat-init-std", str(std),
        "--log-interval", "1000",
    ]  # fmt: skip


def built(
    folders: dict[str, Path], objective: str, *words: str, criterion: str = "alum_vat"
) -> SimpleNamespace:
    task = objective if objective in ("commonsense_qa", "wsc", "masked_lm") else "sentence_prediction"
    classes = {"classes": 3, "regression": 1}.get(objective, 2)
    return build(train_args(folders[objective], None, criterion, *words, task=task, classes=classes))


def predict(run: SimpleNamespace, sample: dict[str, Any], objective: str, delta: torch.Tensor) -> list[Any]:
    """The logits of each prediction, one by one, through ``token_embeddings=`` instead of a hook."""
    tokens = sample["net_input"]["src_tokens"]
    head = getattr(run.model, "classification_heads", {})
    if objective in ("classes", "regression"):
        return list(head["sentence_classification_head"](features(run, tokens, delta)).float())
    if objective == "commonsense_qa":
        scores = head["sentence_classification_head"](features(run, tokens, delta)).float().view(-1)
        return [scores[rows] for rows in rows_of_examples(sample)]
    if objective == "masked_lm":
        logits = run.model.encoder.lm_head(features(run, tokens, delta)).float()
        return list(logits[sample["target"] != 1])
    span, masked = sample["span"], tokens.clone()
    masked[span] = run.task.mask_index
    log_probs = run.model.encoder.lm_head(features(run, masked, delta)).float().log_softmax(-1)
    scores = (log_probs.gather(2, tokens.unsqueeze(-1)).squeeze(-1) * span).sum(1) / span.sum(1)
    # A single score is a certain prediction, not a regression's number.
    return [F.pad(scores[rows], (0, 1), value=-1e4) for rows in rows_of_examples(sample)]


def loss_of(
    run: SimpleNamespace, sample: dict[str, Any], objective: str, delta: torch.Tensor
) -> torch.Tensor:
    if objective in LOSSES:
        return LOSSES[objective](run, sample, delta)
    if objective == "masked_lm":
        logits = torch.stack(predict(run, sample, objective, delta))
        return F.cross_entropy(logits, sample["target"][sample["target"] != 1], reduction="sum")
    return loss_at(run, sample, delta)


def start_of(sample: dict[str, Any], objective: str, std: float, update: int = 0) -> torch.Tensor:
    """N(0, sigma^2) from each row's own generator."""
    mask = sample["net_input"]["src_tokens"].ne(1)
    ids, groups = sample["id"].tolist(), None
    if objective in LOSSES:
        owners = sample["question" if "question" in sample else "sentence"]
        ids, groups = [ids[e] for e in owners.tolist()], Groups(owners, len(ids))
    start = torch.zeros(*mask.shape, DIM)
    for row, seed in enumerate(row_seeds(7, update, ids, groups)):
        length = int(mask[row].sum())
        start[row, :length] = torch.randn(length, DIM, generator=torch.Generator().manual_seed(seed)) * std
    return start


def check_against_restatement(
    run: SimpleNamespace, objective: str, projection: str, kind: str, tolerance: float = 2e-5
) -> None:
    sample = batch(run, ROWS)
    examples = rows_of_examples(sample) if objective in LOSSES else None
    with recorded() as deltas:
        one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in ours))
    std = LARGE["std"]
    expected, delta = references.alum(
        lambda d: predict(run, sample, objective, d), lambda d: loss_of(run, sample, objective, d),
        start_of(sample, objective, std), parameters, k=2, eta=LARGE["eta"], epsilon=LARGE["epsilon"],
        alpha=LARGE["alpha"], projection=projection, kind=kind, examples=examples,
    )  # fmt: skip
    torch.testing.assert_close(deltas[-1], delta, rtol=1e-4, atol=1e-5)
    assert not torch.equal(deltas[-1], deltas[0])
    whole = torch.cat([g.flatten() for g in expected])
    assert whole.norm() > 1e-2
    difference = torch.cat([(ours[n] - g).flatten() for n, g in zip(names, expected)])
    assert difference.norm() <= tolerance * whole.norm()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("projection", ["smart", "clamp", "unit", "l2"])
def test_gradient_and_delta_equal_the_restated_algorithm(
    folders: dict[str, Path], objective: str, projection: str
) -> None:
    run = built(folders, objective, *vat_options(projection))
    check_against_restatement(run, objective, projection, "symmetric-kl")


@pytest.mark.parametrize("objective", ["classes", "regression", "commonsense_qa", "masked_lm"])
@pytest.mark.parametrize("kind", ["kl", "js"])
def test_the_other_divergences_equal_the_restated_algorithm(
    folders: dict[str, Path], objective: str, kind: str
) -> None:
    run = built(folders, objective, *vat_options("smart", kind))
    check_against_restatement(run, objective, "smart", kind)


@pytest.mark.parametrize("projection", ["clamp", "smart"])
def test_the_papers_constants_against_the_same_algorithm_in_fp64(
    folders: dict[str, Path], projection: str
) -> None:
    """delta of 1e-5 in fp32: its gradient is known to about 1 %, because the logits change by 1e-5 of their
    size.

    A divergence summed from terms that cancel would be off by its own size many times over.
    """
    words = vat_options(projection, k=1, eta=1e-3, epsilon=1e-5, alpha=10.0, std=1e-5)
    run = built(folders, "masked_lm", *words)
    sample = batch(run, ROWS)
    with recorded() as deltas:
        _, _, log = one_step(run, sample)
    run.model.double()
    delta = start_of(sample, "masked_lm", 1e-5).double().requires_grad_()
    clean = [p.detach() for p in predict(run, sample, "masked_lm", torch.zeros_like(delta))]

    def divergence(d: torch.Tensor) -> torch.Tensor:
        other = predict(run, sample, "masked_lm", d)
        return references.total_divergence(clean, other, "symmetric-kl", False)

    start = divergence(delta)
    (g,) = torch.autograd.grad(start, delta)
    examples = [[r] for r in range(len(delta))]
    moved = references.vat_move(delta.detach(), g, projection, 1e-3, 1e-5, examples)
    assert log["vat_divergence_start"].item() == pytest.approx(start.item(), rel=0.05)
    assert log["vat_divergence"].item() == pytest.approx(divergence(moved).item(), rel=0.05)
    assert (deltas[-1] - moved).norm() <= 0.02 * moved.norm()


def test_passes_backwards_and_weight_gradients_are_counted(folders: dict[str, Path]) -> None:
    """K = 1: three forwards, one backward to the input only, one backward of the sum."""
    run = built(folders, "masked_lm", *vat_options(k=1))
    forwards, weight_gradients, input_gradients = [], [], []
    encoder = run.model.encoder.sentence_encoder
    encoder.register_forward_hook(lambda *_: forwards.append(1))
    encoder.layers[0].fc1.weight.register_hook(lambda g: weight_gradients.append(1))
    encoder.layernorm_embedding.register_full_backward_hook(lambda *_: input_gradients.append(1))
    one_step(run, batch(run, ROWS))
    assert len(forwards) == 3
    assert len(weight_gradients) == 1  # the graphs of both passes in one backward
    assert len(input_gradients) == 3  # of the ascent, and of the clean and the perturbed pass in the last
    assert not frozen(run.model)


def test_at_most_two_graphs_are_alive(folders: dict[str, Path]) -> None:
    """What autograd keeps of the feed-forward layers, in bytes: with K = 4 twice that of one pass."""
    width = 32  # of a feed-forward layer, and of nothing else in this model

    class Kept:
        alive = most = 0

        def __init__(self, tensor: torch.Tensor) -> None:
            inner = tensor.ndim == 3 and tensor.size(-1) == width
            self.tensor, self.bytes = tensor, inner * tensor.numel() * tensor.element_size()
            Kept.alive += self.bytes
            Kept.most = max(Kept.most, Kept.alive)

        def __del__(self) -> None:
            Kept.alive -= self.bytes

    def peak(criterion: str, *words: str) -> int:
        run = built(folders, "masked_lm", *words, criterion=criterion)
        sample = batch(run, ROWS)
        Kept.alive = Kept.most = 0
        with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
            one_step(run, sample)
        assert Kept.alive == 0
        return Kept.most

    assert peak("alum_vat", *vat_options(k=4)) == 2 * peak("standard") > 0


def test_logits_are_made_at_masked_positions_only(folders: dict[str, Path]) -> None:
    run = built(folders, "masked_lm", *vat_options(k=1))
    shapes = []
    run.model.encoder.lm_head.register_forward_hook(lambda m, i, out: shapes.append(tuple(out.shape)))
    sample = batch(run, ROWS)
    one_step(run, sample)
    masked = int((sample["target"] != 1).sum())
    assert shapes == [(masked, len(run.task.source_dictionary))] * 3


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_without_a_weight_the_step_is_that_of_standard(folders: dict[str, Path], objective: str) -> None:
    """alpha = 0, and likewise before --vat-start-update: the same gradient, the latter to the bit."""
    plain = built(folders, objective, *DROPOUT, criterion="standard")
    one_step(plain, batch(plain, ROWS))
    expected = gradients(plain.model)
    for words, tolerance in ((vat_options(alpha=0.0), 1e-6), (["--vat-start-update", "5"], 0.0)):
        run = built(folders, objective, *words, *DROPOUT)
        run.model.load_state_dict(plain.model.state_dict())
        one_step(run, batch(run, ROWS))
        ours = gradients(run.model)
        for name, grad in expected.items():
            torch.testing.assert_close(ours[name], grad, rtol=tolerance, atol=tolerance)


def test_the_curriculum_and_the_noise_follow_the_number_of_the_update(folders: dict[str, Path]) -> None:
    run = built(folders, "classes", *vat_options(k=1), "--vat-start-update", "3")
    sample = batch(run, ROWS)
    starts, layouts = {}, set()
    for update in (0, 2, 3, 4):
        with recorded() as deltas:
            log = one_step(run, sample, update)[2]
        assert (log["nexamples"] > 0) is (update >= 3) is bool(deltas)
        layouts.add(tuple(log))
        starts[update] = deltas[0] if deltas else None
    for update in (3, 4):
        assert torch.equal(starts[update], start_of(sample, "classes", 0.1, update))
    assert not torch.equal(starts[3], starts[4])
    assert len(layouts) == 1  # a worker out of memory sums zeros under the names of the update before


def test_masked_lm_standard_is_fairseqs_own_criterion_to_the_bit(folders: dict[str, Path]) -> None:
    ours = built(folders, "masked_lm", "--dropout", "0.1", criterion="standard")
    stock = built(folders, "masked_lm", "--dropout", "0.1", criterion="masked_lm")
    stock.model.load_state_dict(ours.model.state_dict())
    results = [one_step(run, batch(run, ROWS)) for run in (ours, stock)]
    assert torch.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]
    found, expected = gradients(ours.model), gradients(stock.model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
def test_shared_dropout_leaves_no_divergence_at_delta_0(folders: dict[str, Path], objective: str) -> None:
    """Redrawn masks alone change the predictions more than the paper's delta does."""
    words = [*vat_options(k=1, epsilon=1e-5, eta=1e-3, std=1e-5), "--log-interval", "1", *DROPOUT]
    shared = one_step_log(built(folders, objective, *words, "--encoder-layerdrop", "0.3"), ROWS)
    redrawn = one_step_log(built(folders, objective, *words, "--vat-share-dropout", "false"), ROWS)
    assert shared["vat_divergence_zero"] == 0.0 < shared["vat_divergence"]
    assert redrawn["vat_divergence_zero"] > 100 * shared["vat_divergence"]


def one_step_log(run: SimpleNamespace, rows: list[int]) -> dict[str, Any]:
    log: dict[str, Any] = one_step(run, batch(run, rows))[2]
    return log


@pytest.mark.parametrize("shared", ["true", "false"])
def test_logging_changes_no_random_number(folders: dict[str, Path], shared: str) -> None:
    """The divergence at delta = 0 is measured only in updates that are logged; the update stays the same."""
    found = []
    for interval in ("1", "1000"):
        words = [*vat_options(), *DROPOUT, "--vat-share-dropout", shared, "--log-interval", interval]
        run = built(folders, "classes", *words)
        log = one_step_log(run, ROWS)
        assert (log["vat_zero_size"] > 0) is (interval == "1")
        found.append((flat_gradient(run.model), torch.rand(3)))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_logs_are_what_they_say(folders: dict[str, Path]) -> None:
    run = built(folders, "classes", *vat_options(k=1, projection="l2"))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        loss, size, log = one_step(run, sample)
    delta = deltas[-1]
    assert size == log["nexamples"] == len(ROWS)
    assert log["vat_norm_inf"].item() == pytest.approx(delta.flatten(1).abs().amax(1).sum().item(), rel=1e-6)
    assert log["vat_norm_l2"].item() == pytest.approx(delta.flatten(1).norm(dim=1).sum().item(), rel=1e-6)
    parts = log["task_loss"] + 3.0 * log["vat_divergence"]
    assert loss.item() == pytest.approx(parts.item(), rel=1e-6) == log["loss"].item()
    assert log["task_loss"].item() == pytest.approx(loss_at(run, sample, torch.zeros(1)).item(), rel=1e-6)
    start = deltas[0].detach().requires_grad_()
    clean = predict(run, sample, "classes", torch.zeros_like(start))
    other = predict(run, sample, "classes", start)
    value = references.total_divergence([c.detach() for c in clean], other, "symmetric-kl", False)
    (g,) = torch.autograd.grad(value, start)
    cosines = F.cosine_similarity(delta.flatten(1), g.flatten(1).float())
    assert log["vat_cosine"].item() == pytest.approx(cosines.sum().item(), rel=1e-3)
    assert log["vat_divergence_start"].item() == pytest.approx(value.item(), rel=1e-3)
    assert log["vat_skipped"] == 0


def test_perplexity_is_of_the_task_loss_alone(folders: dict[str, Path]) -> None:
    run = built(folders, "masked_lm", *vat_options(alpha=50.0))
    sample = batch(run, ROWS)
    from fairseq.logging import metrics

    with metrics.aggregate() as meters:
        log = one_step_log(run, ROWS)
        run.task.reduce_metrics([log], run.criterion)
    masked = int((sample["target"] != 1).sum())
    expected = torch.exp(log["task_loss"] / masked).item()
    values = meters.get_smoothed_values()
    assert values["ppl"] == pytest.approx(expected, abs=0.01)
    assert values["loss"] > values["task_loss"] + 0.01


@pytest.mark.parametrize(
    ("objective", "dropout"),
    [("classes", []), ("masked_lm", []), ("classes", [*DROPOUT, "--vat-share-dropout", "false"])],
    ids=["classes", "masked_lm", "redrawn-masks"],
)
def test_a_non_finite_ascent_leaves_the_plain_step_and_is_counted(
    folders: dict[str, Path], objective: str, dropout: list[str]
) -> None:
    """delta is then 0. Redrawn masks still make the predictions differ, and that is not learned either."""
    plain = built(folders, objective, *dropout[: len(DROPOUT)], criterion="standard")
    one_step(plain, batch(plain, ROWS))
    run = built(folders, objective, *vat_options(), *dropout)
    run.model.load_state_dict(plain.model.state_dict())
    passes = []

    def spoil(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        passes.append(1)
        if len(passes) == 2:  # the first ascent: its gradient is nan
            output.register_hook(lambda grad: grad * float("nan"))
        return output

    run.model.encoder.sentence_encoder.layernorm_embedding.register_forward_hook(spoil)
    log = one_step_log(run, ROWS)
    assert log["vat_skipped"] == 1 and log["vat_divergence"] == 0.0
    ours, expected = gradients(run.model), gradients(plain.model)
    for name, grad in expected.items():
        torch.testing.assert_close(ours[name], grad, rtol=1e-6, atol=1e-7)


def test_the_gradient_of_delta_does_not_underflow(folders: dict[str, Path]) -> None:
    """Predictions in fp16, 1e-5 from the clean ones: entries of 1e-8 and less, below fp16's smallest
    number.
    """
    run = built(folders, "masked_lm", *vat_options())
    sample = batch(run, ROWS)
    count, words = int((sample["target"] != 1).sum()), len(run.task.source_dictionary)
    generator = torch.Generator().manual_seed(0)
    perturbed = torch.randn(count, words, generator=generator).half().requires_grad_()
    clean = perturbed.detach().float() + 1e-5 * torch.randn(count, words, generator=generator)
    _, scale = run.criterion.backward_to_delta(clean, perturbed, sample)
    exact = perturbed.detach().double().requires_grad_()
    value = references.total_divergence(list(clean), list(exact), "symmetric-kl", False)
    (expected,) = torch.autograd.grad(value, exact)
    assert perturbed.grad is not None and expected.abs().max() < 1e-5
    assert (perturbed.grad.double() / scale - expected).norm() <= 0.02 * expected.norm()


def test_a_batch_without_a_masked_token_has_no_loss_and_keeps_the_path(folders: dict[str, Path]) -> None:
    for criterion in ("standard", "alum_vat"):
        words = vat_options() if criterion == "alum_vat" else []
        run = built(folders, "masked_lm", *words, criterion=criterion)
        sample = batch(run, ROWS)
        sample["target"] = torch.full_like(sample["target"], 1)
        loss, size, _ = one_step(run, sample)
        assert float(loss) == 0.0 and size == 0
        grads = gradients(run.model)
        assert (
            "encoder.sentence_encoder.embed_tokens.weight" in grads
            and "encoder.lm_head.dense.weight" in grads
        )
        assert not any(grad.any() for grad in grads.values())


@pytest.mark.parametrize("criterion", ["alum_vat", "freelb"])
def test_checkpointed_activations_give_the_same_gradient(folders: dict[str, Path], criterion: str) -> None:
    """fairseq's own wrapper, which computes each layer again in the backward, with its dropout masks."""
    from fairseq.modules.checkpoint_activations import checkpoint_wrapper

    words = vat_options() if criterion == "alum_vat" else ["--adv-lr", "0.3", "--adv-init-mag", "0.3"]
    plain = built(folders, "masked_lm", *words, *DROPOUT, criterion=criterion)
    one_step(plain, batch(plain, ROWS))
    saving = built(folders, "masked_lm", *words, *DROPOUT, criterion=criterion)
    saving.model.load_state_dict(plain.model.state_dict())
    layers = saving.model.encoder.sentence_encoder.layers
    passes: list[int] = []
    for layer in layers:
        layer.fc1.register_forward_hook(lambda *_: passes.append(1))
        checkpoint_wrapper(layer)
    one_step(saving, batch(saving, ROWS))
    # alum_vat, K = 2: four forwards, and each of them once more in a backward.
    assert len(passes) == 2 * 2 * (4 if criterion == "alum_vat" else 3)
    ours, expected = gradients(saving.model), gradients(plain.model)
    assert ours.keys() == expected.keys()
    for name, grad in expected.items():  # sums are taken in another order
        torch.testing.assert_close(ours[name], grad, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_half_precision_gives_the_gradient_of_fp32(folders: dict[str, Path], objective: str) -> None:
    """fp16 has 11 significant bits (5e-4); through two layers and four passes a relative error of 2e-2 is
    allowed.
    """
    full = built(folders, objective, *vat_options())
    one_step(full, batch(full, ROWS))
    half = built(folders, objective, *vat_options(), *FP16)
    half.trainer.model.load_state_dict({k: v.half() for k, v in full.model.state_dict().items()})
    one_step(half, half.trainer._prepare_sample(batch(half, ROWS))[0])
    expected, ours = gradients(full.model), gradients(half.model)
    scale = half.trainer.optimizer.scaler.loss_scale
    difference = torch.cat([(ours[n].float() / scale - expected[n]).flatten() for n in expected]).norm()
    assert difference <= 2e-2 * torch.cat([g.flatten() for g in expected.values()]).norm()


def test_a_delta_of_the_papers_size_survives_fp16(folders: dict[str, Path]) -> None:
    """1e-5 on embeddings of 0.1 and more is less than half of fp16's distance: added there it is rounded
    away.

    In fp32 up to the layer norm it changes the input of the first layer, and the gradient that it gets is
    not 0.
    """
    words = vat_options(k=1, eta=1e-3, epsilon=1e-5, std=1e-5)
    run = built(folders, "masked_lm", *words, *FP16)
    with torch.no_grad():
        run.model.encoder.sentence_encoder.embed_tokens.weight.mul_(8)  # entries of about 0.2, as RoBERTa has
    inputs: list[torch.Tensor] = []
    norm = run.model.encoder.sentence_encoder.layernorm_embedding
    norm.register_forward_hook(lambda m, i, out: None)  # the hook of a user's own does not disturb
    layer = run.model.encoder.sentence_encoder.layers[0]
    layer.register_forward_pre_hook(lambda m, i: inputs.append(i[0].detach()))
    sample = run.trainer._prepare_sample(batch(run, ROWS))[0]
    with recorded() as deltas:
        log = one_step(run, sample)[2]
    clean, _, last = inputs
    assert clean.dtype == torch.float16
    embedded = run.model.encoder.sentence_encoder.embed_tokens(sample["net_input"]["src_tokens"])
    added_in_half = embedded + deltas[-1].half()
    unchanged = (added_in_half == embedded).float().mean()
    assert unchanged > 0.8  # what the perturbation would be without fp32
    assert (last != clean).any(-1).float().mean() > 0.8  # tokens that it changes here
    assert log["vat_cosine"] > 0 and log["vat_divergence"] > 0
    assert "forward" not in vars(norm)


@pytest.mark.parametrize("scale", [2.0**6, 2.0**40], ids=["finite", "overflow"])
def test_overflow_under_fp16_skips_the_update_and_keeps_everything_finite(
    folders: dict[str, Path], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As fairseq does for a plain loss; delta's own gradient does not go through the loss scale."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_: self)  # 0.12.2 logs a norm of 0 on the GPU
    run = built(folders, "masked_lm", *vat_options(), "--memory-efficient-fp16")
    run.trainer.optimizer.scaler.loss_scale = scale
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    with recorded() as deltas:
        run.trainer.train_step([batch(run, ROWS)])
    assert all(delta.isfinite().all() and delta.any() for delta in deltas)
    assert all(p.isfinite().all() for p in run.model.parameters())
    moved = any(not torch.equal(p, before[n]) for n, p in run.model.named_parameters())
    overflow = scale > 2.0**20
    assert moved is not overflow
    assert run.trainer.get_num_updates() == (0 if overflow else 1)


def test_an_error_in_the_middle_leaves_the_model_as_it_was(folders: dict[str, Path]) -> None:
    run = built(folders, "masked_lm", *vat_options(), *FP16)
    encoder = run.model.encoder.sentence_encoder
    calls = 0

    def fail_in_second_pass(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")

    handle = encoder.layers[1].register_forward_hook(fail_in_second_pass)
    with pytest.raises(RuntimeError, match="out of memory"):
        one_step(run, run.trainer._prepare_sample(batch(run, ROWS))[0])
    handle.remove()
    assert not encoder.embed_tokens._forward_hooks and not encoder.layernorm_embedding._forward_hooks
    assert not encoder.layernorm_embedding._forward_pre_hooks
    assert not frozen(run.model)


def test_a_dummy_batch_leaves_no_gradient(folders: dict[str, Path]) -> None:
    run = built(folders, "classes", *vat_options())
    one_step(run, batch(run, ROWS), ignore_grad=True)
    assert not flat_gradient(run.model).any()


def test_delta_is_the_same_however_the_batch_is_cut_and_padded(folders: dict[str, Path]) -> None:
    run = built(folders, "classes", *vat_options("clamp", k=1))
    with recorded() as together:
        one_step(run, batch(run, ROWS))
    with recorded() as alone:
        one_step(run, batch(run, ROWS[2:3]))
    width = alone[-1].size(1)
    torch.testing.assert_close(together[-1][2, :width], alone[-1][0], rtol=1e-4, atol=1e-6)
    padding = batch(run, ROWS)["net_input"]["src_tokens"].eq(1)
    assert padding.any() and not together[-1][padding].any()
