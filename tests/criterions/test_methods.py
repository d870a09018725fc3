"""FreeLB and PGD in fairseq's trainer against their papers, restated in plain torch."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
import torch
import torch.nn.functional as F
from support import batch, build, flat_gradient, frozen, gradients, train_args, write_task

from criterions import references
from fairseq_adv.perturbation import Perturbation
from fairseq_adv.perturbation.geometry import row_seeds, uniform_start

pytestmark = pytest.mark.fast

ROWS = [0, 1, 2, 3, 4]
ALPHA, EPSILON, START = 0.4, 0.6, 0.5
FP16 = "--memory-efficient-fp16"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def regression_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("regression"), classes=1)


def options(
    alpha: float = ALPHA, epsilon: float = EPSILON, start: float = START, steps: int = 3
) -> list[str]:
    return [
        "--adv-steps", str(steps), "--adv-lr", str(alpha),
        "--adv-max-norm", str(epsilon), "--adv-init-mag", str(start),
    ]  # fmt: skip


def one_step(run: SimpleNamespace, sample: dict[str, Any], update: int = 0, **kwargs: Any) -> Any:
    """One call of the task's training step, as the trainer makes it; returns its result."""
    run.trainer.zero_grad()
    torch.manual_seed(update)
    return run.task.train_step(
        sample=sample, model=run.trainer.model, criterion=run.trainer.criterion,
        optimizer=run.trainer.optimizer, update_num=update, **kwargs,
    )  # fmt: skip


@contextmanager
def recorded() -> Iterator[list[torch.Tensor]]:
    """Collects the delta that each pass used."""
    deltas: list[torch.Tensor] = []
    original = Perturbation.applied

    @contextmanager
    def applied(self: Perturbation, *choices: bool, **named: bool) -> Iterator[None]:
        with original(self, *choices, **named):
            yield
        assert self.delta is not None
        deltas.append(self.delta.detach().clone())

    Perturbation.applied = applied  # type: ignore[method-assign, assignment]
    try:
        yield deltas
    finally:
        Perturbation.applied = original  # type: ignore[method-assign]


def loss_at(run: SimpleNamespace, sample: dict[str, Any], delta: torch.Tensor) -> torch.Tensor:
    """The summed loss at X + delta, through extract_features(token_embeddings=...) instead of a hook."""
    tokens = sample["net_input"]["src_tokens"]
    encoder = run.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens)
    features, _ = encoder.extract_features(tokens, token_embeddings=embedded + delta.to(embedded.dtype))
    out = run.model.classification_heads["sentence_classification_head"](features).float()
    if run.cfg.task.num_classes == 1:
        return (out.view(-1) - sample["target"].view(-1)).pow(2).sum()
    return F.cross_entropy(out, sample["target"].view(-1), reduction="sum")


def start_of(sample: dict[str, Any], dim: int, magnitude: float, update: int = 0) -> torch.Tensor:
    seeds = row_seeds(7, update, sample["id"].tolist())
    return uniform_start(sample["net_input"]["src_tokens"].ne(1), dim, magnitude, seeds)


@pytest.mark.parametrize("classes", [2, 1], ids=["classes", "regression"])
@pytest.mark.parametrize("start", [0.0, START], ids=["clean-start", "random-start"])
@pytest.mark.parametrize("epsilon", [0.0, EPSILON], ids=["no-ball", "ball"])
@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_gradient_equals_the_restated_algorithm(
    data: Path, regression_data: Path, method: str, epsilon: float, start: float, classes: int
) -> None:
    folder = data if classes == 2 else regression_data
    run = build(train_args(folder, None, method, *options(epsilon=epsilon, start=start), classes=classes))
    sample = batch(run, ROWS)
    one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in ours))
    expected = getattr(references, method)(
        lambda delta: loss_at(run, sample, delta), start_of(sample, 16, start), parameters, 3, ALPHA, epsilon
    )
    for name, grad in zip(names, expected):
        # fp32, same operations in another order: a few units in the last place of the largest entry.
        torch.testing.assert_close(ours[name], grad, rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("precision", "tolerance"), [([], 1e-6), ([FP16], 4e-3)], ids=["fp32", "fp16"])
def test_freelb_equals_a_larger_batch_of_constant_perturbations(
    data: Path, precision: list[str], tolerance: float
) -> None:
    """Eq. 3: the accumulated gradient is that of the mean loss over X + delta_0, …, X + delta_{K-1}.

    fp16 has 11 significant bits (5e-4); the backward passes of the two sides round differently.
    """
    run = build(train_args(data, None, "freelb", *options(), *precision, "--fp16-init-scale", "4"))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    ours = flat_gradient(run.model)
    assert len(deltas) == 3 and not torch.equal(deltas[0], deltas[2])

    run.trainer.zero_grad()
    larger = {
        "net_input": {"src_tokens": sample["net_input"]["src_tokens"].repeat(3, 1)},
        "target": sample["target"].repeat(3, 1),
    }
    run.trainer.optimizer.backward(loss_at(run, larger, torch.cat(deltas)) / 3)
    expected = flat_gradient(run.model)
    assert (ours - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize(("precision", "tolerance"), [([], 1e-6), ([FP16], 4e-3)], ids=["fp32", "fp16"])
def test_pgd_descends_at_the_end_point_alone(data: Path, precision: list[str], tolerance: float) -> None:
    """Eq. 2: the gradient is that of the loss at X + delta_K. Tolerances as above."""
    run = build(train_args(data, None, "pgd", *options(), *precision, "--fp16-init-scale", "4"))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    ours = flat_gradient(run.model)
    assert len(deltas) == 4
    run.trainer.zero_grad()
    run.trainer.optimizer.backward(loss_at(run, sample, deltas[-1]))
    expected = flat_gradient(run.model)
    assert (ours - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("precision", [[], [FP16]], ids=["fp32", "fp16"])
@pytest.mark.parametrize(
    "method_options", [["--adv-steps", "1"], ["--adv-start-update", "5"]], ids=["k1", "not-yet"]
)
def test_freelb_without_a_perturbation_is_the_plain_step_to_the_bit(
    data: Path, method_options: list[str], precision: list[str]
) -> None:
    dropout = ["--dropout", "0.1", "--attention-dropout", "0.1"]
    freelb = build(train_args(data, None, "freelb", *method_options, *precision, *dropout))
    plain = build(train_args(data, None, "sentence_prediction", *precision, *dropout))
    plain.model.load_state_dict(freelb.model.state_dict())
    loss, size, log = one_step(freelb, batch(freelb, ROWS))
    plain_loss, plain_size, plain_log = one_step(plain, batch(plain, ROWS))
    assert torch.equal(loss, plain_loss) and size == plain_size
    assert log["loss"] == plain_log["loss"] and log["ncorrect"] == plain_log["ncorrect"]
    ours, expected = gradients(freelb.model), gradients(plain.model)
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_standard_is_fairseqs_own_criterion_to_the_bit(data: Path, regression_data: Path) -> None:
    for folder, classes in ((data, 2), (regression_data, 1)):
        ours = build(train_args(folder, None, "standard", "--dropout", "0.1", classes=classes))
        stock = build(train_args(folder, None, "sentence_prediction", "--dropout", "0.1", classes=classes))
        stock.model.load_state_dict(ours.model.state_dict())
        losses = [one_step(run, batch(run, ROWS))[0] for run in (ours, stock)]
        assert torch.equal(*losses)
        found, expected = gradients(ours.model), gradients(stock.model)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_a_step_of_zero_from_a_clean_start_is_the_plain_gradient(data: Path, method: str) -> None:
    run = build(train_args(data, None, method, *options(alpha=0.0, start=0.0)))
    one_step(run, batch(run, ROWS))
    ours = flat_gradient(run.model)
    run.trainer.zero_grad()
    loss_at(run, batch(run, ROWS), torch.zeros(1)).backward()
    assert (ours - flat_gradient(run.model)).norm() <= 1e-6 * ours.norm()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_deltas_stay_in_the_ball_and_off_the_padding(data: Path, norm: str) -> None:
    run = build(
        train_args(data, None, "freelb", *options(alpha=0.3, epsilon=0.4, start=3.0), "--adv-norm-type", norm)
    )
    sample = batch(run, ROWS)
    with recorded() as deltas:
        _, _, log = one_step(run, sample)
    padding = sample["net_input"]["src_tokens"].eq(1)
    assert padding.any()
    for delta in deltas:
        sizes = delta.flatten(1).norm(dim=1) if norm == "l2" else delta.flatten(1).abs().amax(dim=1)
        assert (sizes <= 0.4 * (1 + 1e-6)).all() and (sizes > 0.05).all()
        assert not delta[padding].any()
    assert log["adv_norm"] / 5 <= 0.4 * (1 + 1e-6)


def test_adding_padding_does_not_change_delta(data: Path) -> None:
    run = build(train_args(data, None, "freelb", *options()))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    tokens = sample["net_input"]["src_tokens"]
    sample["net_input"]["src_tokens"] = F.pad(tokens, (0, 3), value=1)
    with recorded() as padded:
        one_step(run, sample)
    for delta, other in zip(deltas, padded):
        assert not other[:, tokens.size(1) :].any()
        # The start is equal to the bit; later steps come from sums over a wider tensor.
        torch.testing.assert_close(other[:, : tokens.size(1)], delta, rtol=0, atol=2e-6)
    assert torch.equal(padded[0][:, : tokens.size(1)], deltas[0])


def test_a_perturbation_changes_the_logits(data: Path) -> None:
    run = build(train_args(data, None, "freelb", *options()))
    _, _, log = one_step(run, batch(run, ROWS))
    assert (log["adv_loss_last"] - log["adv_loss_first"]).abs() > 1e-3
    run = build(train_args(data, None, "freelb", *options(alpha=0.0, start=0.0)))
    _, _, log = one_step(run, batch(run, ROWS))
    assert log["adv_loss_last"] == log["adv_loss_first"]


def masks_of(run: SimpleNamespace, sample: dict[str, Any], update: int) -> list[torch.Tensor]:
    """The zero pattern of the classification head's dropout in each pass."""
    seen: list[torch.Tensor] = []
    head = run.model.classification_heads["sentence_classification_head"]
    handle = head.dropout.register_forward_hook(lambda m, i, out: seen.append(out.detach() == 0))
    one_step(run, sample, update)
    handle.remove()
    return seen[::2]  # the head applies its dropout twice a pass; the first time to the features


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_dropout_masks_are_those_of_the_first_pass_and_new_in_each_update(data: Path, method: str) -> None:
    dropout = [
        "--dropout",
        "0.3",
        "--attention-dropout",
        "0.3",
        "--pooler-dropout",
        "0.5",
        "--encoder-layerdrop",
        "0.5",
    ]
    run = build(train_args(data, None, method, *options(), *dropout))
    sample = batch(run, ROWS)
    first, *others = masks_of(run, sample, update=0)
    assert len(others) == (2 if method == "freelb" else 3) and first.any()
    assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(first, masks_of(run, sample, update=1)[0])

    run = build(train_args(data, None, method, *options(), *dropout, "--no-adv-share-dropout"))
    first, second, *_ = masks_of(run, sample, update=0)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_a_clean_start_without_steps_repeats_the_loss_under_dropout(data: Path, method: str) -> None:
    """All that is random is replayed: attention dropout, embedding dropout, LayerDrop."""
    run = build(train_args(
        data, None, method, *options(alpha=0.0, start=0.0), "--dropout", "0.3", "--attention-dropout", "0.3",
        "--activation-dropout", "0.2", "--encoder-layerdrop", "0.4",
    ))  # fmt: skip
    _, _, log = one_step(run, batch(run, ROWS))
    assert log["adv_loss_first"] == log["adv_loss_last"]


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_a_dummy_batch_leaves_no_gradient_and_does_not_move_delta(data: Path, method: str) -> None:
    run = build(train_args(data, None, method, *options()))
    with recorded() as deltas:
        one_step(run, batch(run, ROWS), ignore_grad=True)
    assert all(torch.equal(delta, deltas[0]) for delta in deltas)
    assert not flat_gradient(run.model).any()


def test_pgd_computes_no_weight_gradient_in_the_ascent(data: Path) -> None:
    run = build(train_args(data, None, "pgd", *options()))
    calls = []
    weight = run.model.encoder.sentence_encoder.layers[0].fc1.weight
    weight.register_hook(lambda grad: calls.append(1))
    one_step(run, batch(run, ROWS))
    assert len(calls) == 1
    assert not frozen(run.model)


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_an_error_in_the_middle_leaves_the_model_as_it_was(data: Path, method: str) -> None:
    run = build(train_args(data, None, method, *options()))
    calls = 0

    def fail_in_second_pass(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")

    handle = run.model.encoder.sentence_encoder.layers[1].register_forward_hook(fail_in_second_pass)
    with pytest.raises(RuntimeError, match="out of memory"):
        one_step(run, batch(run, ROWS))
    handle.remove()
    assert not run.model.encoder.sentence_encoder.embed_tokens._forward_hooks
    assert not frozen(run.model)


@pytest.mark.parametrize("method", ["freelb", "pgd"])
@pytest.mark.parametrize("scale", [2.0**6, 2.0**40], ids=["finite", "overflow"])
def test_overflow_under_fp16_skips_the_update_and_keeps_everything_finite(
    data: Path, method: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As fairseq does for a plain loss: the update is skipped and the loss scale halved."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_: self)  # 0.12.2 logs a norm of 0 on the GPU
    run = build(train_args(data, None, method, *options(), FP16))
    run.trainer.optimizer.scaler.loss_scale = scale
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    with recorded() as deltas:
        run.trainer.train_step([batch(run, ROWS)])
    assert all(delta.isfinite().all() for delta in deltas)
    assert all(p.isfinite().all() for p in run.model.parameters())
    moved = any(not torch.equal(p, before[n]) for n, p in run.model.named_parameters())
    overflow = scale > 2.0**20
    assert moved is not overflow
    assert run.trainer.get_num_updates() == (0 if overflow else 1)
    assert run.trainer.optimizer.scaler.loss_scale == (scale / 2 if overflow else scale)


def test_logs_are_means_over_examples(data: Path) -> None:
    run = build(train_args(data, None, "freelb", *options()))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        _, _, log = one_step(run, sample)
    losses = [loss_at(run, sample, delta).item() for delta in deltas]
    assert log["adv_loss_first"].item() == pytest.approx(losses[0], rel=1e-5)
    assert log["adv_loss_last"].item() == pytest.approx(losses[-1], rel=1e-5)
    assert log["loss"].item() == pytest.approx(sum(losses) / 3, rel=1e-5)
    tokens = sample["net_input"]["src_tokens"]
    embedded = run.model.encoder.sentence_encoder.embed_tokens(tokens) * tokens.ne(1).unsqueeze(-1)
    norms = deltas[-1].flatten(1).norm(dim=1)
    assert log["adv_norm"].item() == pytest.approx(norms.sum().item(), rel=1e-5)
    assert log["adv_ratio"].item() == pytest.approx(
        (norms / embedded.flatten(1).norm(dim=1)).sum().item(), rel=1e-5
    )
    assert log["nexamples"] == len(ROWS)
