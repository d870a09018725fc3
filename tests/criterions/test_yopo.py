"""YOPO in fairseq's trainer against the paper, restated in plain torch, and against FreeLB."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import batch, build, flat_gradient, frozen, gradients, train_args, write_questions, write_task

from criterions import references
from criterions.test_examples_of_several_rows import rows_of_examples
from criterions.test_examples_of_several_rows import start_of as joint_start
from criterions.test_methods import (
    ALPHA,
    EPSILON,
    FP16,
    ROWS,
    START,
    one_step,
    options,
    recorded,
    start_of,
)  # fmt: skip
from fairseq_adv.criterions import yopo
from fairseq_adv.perturbation import FirstLayer, Perturbation, find_layers

RANDOM = [
    "--dropout", "0.3", "--attention-dropout", "0.3", "--activation-dropout", "0.2",
    "--pooler-dropout", "0.5",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


def first_layer(run: SimpleNamespace, tokens: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """X + delta through positions, layer norm and the first layer: (tokens, rows, dim)."""
    encoder = run.model.encoder.sentence_encoder
    x, _ = encoder.forward_embedding(tokens, encoder.embed_tokens(tokens) + delta)
    padding = tokens.eq(1)
    x = (x * ~padding.unsqueeze(-1)).transpose(0, 1)
    return encoder.layers[0](x, encoder_padding_mask=padding)  # type: ignore[no-any-return]


def scores(run: SimpleNamespace, tokens: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """From the first layer's output to the classification head's scores, (rows, classes)."""
    for layer in list(run.model.encoder.sentence_encoder.layers)[1:]:
        hidden = layer(hidden, encoder_padding_mask=tokens.eq(1))
    return run.model.classification_heads["sentence_classification_head"](hidden.transpose(0, 1)).float()  # type: ignore[no-any-return]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("full", [False, True], ids=["alpha/n", "alpha"])
def test_gradient_equals_the_restated_algorithm(data: Path, n: int, full: bool) -> None:
    words = [*options(), "--yopo-steps", str(n), *(["--yopo-full-step"] if full else [])]
    run = build(train_args(data, None, "yopo", *words))
    sample = batch(run, ROWS)
    one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((name, p) for name, p in run.model.named_parameters() if name in ours))
    tokens, target = sample["net_input"]["src_tokens"], sample["target"].view(-1)
    expected = references.yopo(
        lambda delta: first_layer(run, tokens, delta),
        lambda hidden: F.cross_entropy(scores(run, tokens, hidden), target, reduction="sum"),
        start_of(sample, 16, START), parameters, 3, n, ALPHA if full else ALPHA / n, EPSILON,
    )  # fmt: skip
    for name, grad in zip(names, expected):
        # fp32, same operations in another order: a few units in the last place of the largest entry.
        torch.testing.assert_close(ours[name], grad, rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_norms_go_over_all_candidates_of_a_question(tmp_path: Path) -> None:
    questions, words = write_questions(tmp_path / "data"), [*options(), "--yopo-steps", "2"]
    run = build(train_args(questions, None, "yopo", *words, task="commonsense_qa"))
    sample = batch(run, [0, 1, 2, 3])
    one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((name, p) for name, p in run.model.named_parameters() if name in ours))
    tokens, examples = sample["net_input"]["src_tokens"], rows_of_examples(sample)

    def loss(hidden: torch.Tensor) -> torch.Tensor:
        x = scores(run, tokens, hidden).view(-1)
        pairs = zip(examples, sample["target"])
        return torch.stack([F.cross_entropy(x[rows].view(1, -1), t.view(1)) for rows, t in pairs]).sum()

    expected = references.yopo(
        lambda delta: first_layer(run, tokens, delta), loss, joint_start(sample, START), parameters, 3, 2,
        ALPHA / 2, EPSILON, examples,
    )  # fmt: skip
    for name, grad in zip(names, expected):
        torch.testing.assert_close(ours[name], grad, rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(
    ("extra", "tolerance"),
    [([], 0.0), (RANDOM, 0.0), ([*RANDOM, "--encoder-layerdrop", "0.5"], 0.0), ([FP16], 0.0)],
    ids=["fp32", "dropout", "layerdrop", "fp16"],
)
def test_one_shallow_step_is_freelb(data: Path, extra: list[str], tolerance: float, norm: str) -> None:
    words = [*options(), "--adv-norm-type", norm, *extra]
    yopo, freelb = (
        build(train_args(data, None, method, *words, *steps))
        for method, steps in (("yopo", ["--yopo-steps", "1"]), ("freelb", []))
    )
    yopo.model.load_state_dict(freelb.model.state_dict())
    for run in (yopo, freelb):
        one_step(run, batch(run, ROWS))
    ours, expected = flat_gradient(yopo.model), flat_gradient(freelb.model)
    assert (ours - expected).norm() <= tolerance * expected.norm()


def gradients_of_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """From now on: the gradient of delta in each shallow pass, and that in the pass before it, first."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    before: list[torch.Tensor] = []
    ascend, shallow = Perturbation.ascend, yopo._shallow_pass

    def noted(self: Perturbation, length: float) -> None:
        before.append(self.gradient().clone())
        ascend(self, length)

    def compared(step: Any, perturbation: Perturbation, first: FirstLayer) -> None:
        shallow(step, perturbation, first)
        found.append((before[-1], perturbation.gradient().clone()))

    monkeypatch.setattr(Perturbation, "ascend", noted)
    monkeypatch.setattr(yopo, "_shallow_pass", compared)
    return found


@pytest.mark.parametrize("shared", [[], ["--no-adv-share-dropout"]], ids=["shared", "not-shared"])
@pytest.mark.parametrize(
    "extra", [[], ["--encoder-layerdrop", "0.5"], [FP16]], ids=["fp32", "layerdrop", "fp16"]
)
def test_a_shallow_pass_where_the_full_one_was_has_its_gradient(
    data: Path, extra: list[str], shared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is why the first of n shallow passes is not made: steps of 0 leave delta where the full pass was.

    Dropout and LayerDrop are those of that full pass, whether the full passes share theirs or not.
    """
    run = build(train_args(data, None, "yopo", *options(alpha=0.0), *RANDOM, *extra, *shared))
    found = gradients_of_passes(monkeypatch)
    for update in range(4):  # LayerDrop draws other layers each time
        one_step(run, batch(run, ROWS), update)
    assert found
    # fp16: 11 significant bits, one more rounding of p.
    tolerance = 5e-3 if FP16 in extra else 1e-6
    for full, shallow in found:
        assert (full - shallow).norm() <= tolerance * full.norm() and full.norm() > 0


def test_full_and_shallow_passes_are_counted(data: Path) -> None:
    """m full ones, n - 1 shallow ones between two of them, which compute no gradient of a weight."""
    run = build(train_args(data, None, "yopo", *options(), "--yopo-steps", "3"))
    calls = {"first": 0, "second": 0, "weight": 0}

    def count(name: str) -> Any:
        def hook(*_: Any) -> None:
            calls[name] += 1

        return hook

    layers = run.model.encoder.sentence_encoder.layers
    layers[0].register_forward_hook(count("first"))
    layers[1].register_forward_hook(count("second"))
    layers[0].fc1.weight.register_hook(count("weight"))
    one_step(run, batch(run, ROWS))
    assert calls == {"first": 3 + 2 * 2, "second": 3, "weight": 3}
    assert not frozen(run.model)


def test_the_generators_stand_where_one_pass_leaves_them(data: Path) -> None:
    methods = (("yopo", options()), ("standard", []))
    runs = [build(train_args(data, None, method, *words, *RANDOM)) for method, words in methods]
    after = []
    for run in runs:
        one_step(run, batch(run, ROWS))
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


def test_shallow_passes_draw_none_of_the_full_passes_numbers(data: Path) -> None:
    """Where masks are not shared, those of the full passes do not depend on the shallow ones between."""
    run = build(train_args(data, None, "yopo", *options(), *RANDOM, "--no-adv-share-dropout"))
    after = []
    for n in (1, 3):
        run.criterion.cfg.yopo_steps = n
        one_step(run, batch(run, ROWS))
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


def test_every_layer_dropped_is_no_error(data: Path) -> None:
    run = build(train_args(data, None, "yopo", *options(), "--encoder-layerdrop", "0.999"))
    with recorded() as deltas:
        one_step(run, batch(run, ROWS))
    assert len(deltas) == 3 and not torch.equal(deltas[0], deltas[1])


def test_an_error_in_a_shallow_pass_leaves_the_model_as_it_was(data: Path) -> None:
    run = build(train_args(data, None, "yopo", *options()))
    layers, calls = run.model.encoder.sentence_encoder.layers, []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")

    handle = layers[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        one_step(run, batch(run, ROWS))
    handle.remove()
    assert not run.model.encoder.sentence_encoder.embed_tokens._forward_hooks
    assert not any(layer._forward_hooks for layer in layers)
    assert not frozen(run.model)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--yopo-steps", "0"], "--yopo-steps 0: pass 1 or more"),
        (["--adv-steps", "0"], "--adv-steps 0: pass 1 or more"),
    ],
)
def test_options_out_of_range_are_refused(data: Path, words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, "yopo", *words))


def test_a_model_without_a_list_of_layers_is_refused() -> None:
    model = torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(3, 2)})
    with pytest.raises(
        ValueError, match=r"has no list of layers next to its token embedding.*choose another"
    ):
        find_layers(model)
