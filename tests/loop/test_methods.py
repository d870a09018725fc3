"""fairseq_adv.loop against fairseq's criterions, the papers' algorithms, and itself in other modes."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from criterions import references
from criterions.restated import ROWS, move_average, one_step
from hf_encoders import hf_run
from loop.tiny_models import (
    DIM,
    LARGE,
    METHODS,
    SEEDS,
    SIZES,
    bert,
    closure,
    distance,
    gradient,
    made,
    part,
    qwen,
    rows,
)
from support import batch, gradients, one_worker, slow
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertConfig,
    LongformerConfig,
    LongformerForSequenceClassification,
    PreTrainedModel,
)

from fairseq_adv.criterions import methods
from fairseq_adv.loop import ALUM, PGD, R3F, SMART, FreeLB
from fairseq_adv.perturbation.embeddings import find_token_embedding
from fairseq_adv.perturbation.geometry import row_seeds

PREFIXES = {"freelb": "adv", "pgd": "adv", "noise": "noise", "r3f": "r3f", "alum_vat": "vat", "smart": "vat"}
RENAMED = {
    "adv-step-size": "adv-lr",
    "r3f-weight": "r3f-lambda",
    "vat-kind": "vat-divergence",
    "vat-mu": "smart-mu",
}


def options(name: str, sizes: dict[str, Any]) -> list[str]:
    """The same sizes on fairseq's command line."""
    found: list[str] = []
    for key, value in sizes.items():
        option = f"{PREFIXES[name]}-{key.replace('_', '-')}"
        found += [f"--{RENAMED.get(option, option)}", str(value)]
    return found


@pytest.mark.parametrize(
    ("kind", "name", "sizes"),
    [
        *(("bert", name, "default") for name in METHODS),
        *(
            (kind, name, "large")
            if kind == "bert" or name in ("freelb", "alum_vat")
            else slow(kind, name, "large")
            for kind in ("bert", "deberta-v3", "modernbert")
            for name in METHODS
        ),
        *(("bert", name, "multi_label") for name in ("r3f", "alum_vat", "smart")),
    ],
)
def test_the_gradient_is_that_of_fairseqs_criterion(
    hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, name: str, sizes: str
) -> None:
    """The defaults are what ``fairseq-adv train`` passes."""
    is_default = sizes == "default"
    words = methods()[name].suggested_options.split() if is_default else options(name, LARGE[name])
    more = ["--store-ema", "--ema-decay", "0.99"] if name == "smart" else []
    several = sizes == "multi_label"
    run = hf_run(hf_data, encoders[kind], "multi_label" if several else "classes", name, *words, *more)
    sample, average = batch(run, ROWS), {}
    if name == "smart":
        average["ema_model"] = move_average(run)
    one_step(run, sample, **average)
    theirs = torch.cat([one.double().flatten() for one in gradients(run.model).values()])
    run.model.zero_grad()
    model = run.model.hf
    method = (
        METHODS[name](model)
        if is_default
        else made(name, model, **({"multi_label": True} if several else {}))
    )
    method.padding_idx, method.backward = 1, lambda loss: (len(ROWS) * loss).backward()
    if isinstance(method, SMART):
        method.average = [weight.detach() for weight in average["ema_model"].hf.parameters()]
    tokens = sample["net_input"]["src_tokens"]
    labels = sample["target"].float() if several else sample["target"].view(-1)  # float: of several labels
    inputs = {"input_ids": tokens, "attention_mask": tokens.ne(1).long(), "labels": labels}
    method(closure(model, inputs, method), seeds=row_seeds(7, 0, sample["id"].tolist()))
    assert distance(gradient(model), theirs) < 2e-6


@pytest.mark.parametrize("name", METHODS)
def test_the_default_sizes_are_those_of_fairseq_adv_train(name: str) -> None:
    words = [word for word in methods()[name].suggested_options.split() if not word.endswith("-relative")]
    given = dict(zip(words[::2], words[1::2]))
    fields = {one.name: one.default for one in dataclasses.fields(METHODS[name])}
    mine = options(name, {key: value for key, value in fields.items() if key in (*LARGE[name], "steps")})
    sizes = dict(zip(mine[::2], mine[1::2]))
    assert fields["relative"] and {key: sizes[key] for key in given} == given


def started(mask: Tensor, size: float, is_normal: bool = False) -> Tensor:
    """The random start of each row, from its own seed; uniform noise is divided by sqrt(L * D)."""
    noise = torch.zeros(*mask.shape, DIM)
    for row, (real, seed) in enumerate(zip(mask.bool(), SEEDS)):
        draw = torch.randn if is_normal else torch.rand
        drawn = draw(int(real.sum()), DIM, generator=torch.Generator().manual_seed(seed))
        noise[row, real] = size * drawn if is_normal else size * (2 * drawn - 1) / drawn.numel() ** 0.5
    return noise


@pytest.mark.parametrize("make", [bert, qwen])
@pytest.mark.parametrize("name", ["freelb", "pgd", "alum_vat"])
def test_the_gradient_is_that_of_the_papers_algorithm(make: Callable[[], Any], name: str) -> None:
    """On ``inputs_embeds``, without a hook; the decoder's padding is on the left."""
    model, inputs = make(), rows(left=make is qwen)
    ids, mask, labels = inputs.values()
    embeds = model.get_input_embeddings()

    def at(delta: Tensor) -> Any:
        moved = embeds(ids) + delta
        if make is bert:
            return model(inputs_embeds=moved, attention_mask=mask, labels=labels)
        states = model.model(inputs_embeds=moved, attention_mask=mask)[0][:, -1]  # the last token
        logits = model.score(states)
        return SimpleNamespace(logits=logits, loss=cross_entropy(logits, labels))

    weights = list(model.parameters())
    sizes = {**LARGE[name], **({"norm_type": "l2"} if name == "pgd" else {})}
    if name == "alum_vat":
        expected, _ = references.alum(
            lambda d: list(at(d).logits), lambda d: 4 * at(d).loss, started(mask, 0.2, True), weights,
            k=2, eta=0.3, epsilon=0.4, alpha=3.0, projection="l2", kind="js",
        )  # fmt: skip
        expected = [one / 4 for one in expected]  # of the mean over the rows
    else:
        algorithm = getattr(references, name)
        start = references._step(started(mask, 0.5), torch.zeros(4, 7, DIM), 0.0, 0.6, [[0], [1], [2], [3]])
        expected = algorithm(lambda d: at(d).loss, start, weights, 3, 0.4, 0.6)
    method = made(name, model, **sizes)
    method(closure(model, inputs, method), attention_mask=mask, seeds=SEEDS)
    assert distance(gradient(model), torch.cat([one.double().flatten() for one in expected])) < 2e-6


def test_choices_of_a_question_are_one_example() -> None:
    """By the shape of the attention mask, and by ``groups``."""
    model, flat = bert(kind="MultipleChoice", num_labels=1), rows()
    inputs = {name: flat[name].view(2, 2, 7) for name in ("input_ids", "attention_mask")}
    inputs["labels"] = torch.tensor([1, 0])
    embeds = model.get_input_embeddings()

    def loss(delta: Tensor) -> Tensor:
        moved = (embeds(flat["input_ids"]) + delta).view(2, 2, 7, DIM)
        found: Tensor = model(**{**inputs, "input_ids": None}, inputs_embeds=moved).loss
        return found

    pairs = [[0, 1], [2, 3]]
    start, lengths = started(flat["attention_mask"], 0.5), flat["attention_mask"].sum(dim=1)
    for pair in pairs:  # L counts the tokens of both rows
        start[pair] *= (lengths[pair] / lengths[pair].sum()).sqrt().view(2, 1, 1)
    start = references._step(start, torch.zeros_like(start), 0.0, 0.6, pairs)
    expected = references.freelb(loss, start, list(model.parameters()), 3, 0.4, 0.6, pairs)
    flattened = torch.cat([one.double().flatten() for one in expected])
    method = made("freelb", model)
    run = closure(model, inputs, method)
    for options in ({"attention_mask": inputs["attention_mask"]}, {"groups": torch.tensor([0, 0, 1, 1])}):
        method(run, **options, seeds=SEEDS)
        assert distance(gradient(model), flattened) < 2e-6
    method(run, seeds=SEEDS)  # four examples
    assert distance(gradient(model), flattened) > 1e-2


@pytest.mark.parametrize("name", METHODS)
def test_micro_batches_add_up_and_padding_has_no_effect(name: str) -> None:
    model, whole = bert(), rows()
    method = made(name, model)
    method(closure(model, whole, method), attention_mask=whole["attention_mask"], seeds=SEEDS)
    expected = gradient(model)
    method.backward = lambda loss: (loss / 2).backward()
    for two in ((0, 2), (1, 3)):
        longest = 7 if 0 in two else 4
        some = part(whole, *two)
        for key in ("input_ids", "attention_mask"):
            some[key] = some[key][:, :longest]
        method(closure(model, some, method), seeds=[SEEDS[row] for row in two])  # by the model's padding_idx
    assert distance(gradient(model), expected) < 2e-6


@pytest.mark.parametrize("name", METHODS)
def test_a_loss_scale_cancels(name: str) -> None:
    model, whole = bert(), rows()
    method = made(name, model)
    method(closure(model, whole, method), seeds=SEEDS)
    expected = gradient(model)
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters())
    method.backward = lambda loss: scaler.scale(loss).backward()
    method(closure(model, whole, method), seeds=SEEDS)
    scaler.unscale_(optimizer)
    assert distance(gradient(model), expected) < 2e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", METHODS)
def test_in_autocast_the_gradient_is_as_far_from_fp32_as_that_of_a_plain_pass(
    name: str, dtype: torch.dtype
) -> None:
    model, whole = bert(), rows()
    method = made(name, model)
    run = closure(model, whole, method)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    optimizer = torch.optim.SGD(model.parameters())

    def half() -> Any:
        with torch.autocast("cpu", dtype):
            return run()

    found = []
    for of, backward in ((run, Tensor.backward), (half, lambda loss: scaler.scale(loss).backward())):
        method.backward = backward
        method(of, seeds=SEEDS)
        if of is half:
            scaler.unscale_(optimizer)
        found.append(gradient(model))
    model(**whole).loss.backward()
    plain = gradient(model)
    with torch.autocast("cpu", dtype):
        model(**whole).loss.backward()
    rounding = distance(gradient(model), plain)
    assert 0 < distance(found[1], found[0]) < 6 * rounding


@pytest.mark.parametrize("shared", [True, False])
def test_dropout_masks_are_those_of_one_pass(shared: bool) -> None:
    """Without delta, the mean of the passes is the gradient of one; the generator is where it leaves it."""
    model, whole = bert(dropout=0.2), rows()
    torch.manual_seed(1)
    model(**whole).loss.backward()
    expected, after = gradient(model), torch.rand(1)
    torch.manual_seed(1)
    method = FreeLB(model, step_size=0.0, init_mag=0.0, **({} if shared else {"share_dropout": False}))
    method(closure(model, whole, method), seeds=SEEDS)
    assert (distance(gradient(model), expected) < 2e-6) == shared
    assert (torch.rand(1) == after) == shared


def test_random_starts_follow_torchs_generator() -> None:
    model, whole = bert(), rows()
    method = made("freelb", model)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        method(closure(model, whole, method))
        found.append(gradient(model))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_the_log_and_the_loss() -> None:
    model, whole = bert(), rows()
    method = FreeLB(model, steps=2, step_size=0.05, max_norm=0.0, init_mag=0.0)
    loss = method(closure(model, whole, method))
    log = {name: float(value) for name, value in method.log.items()}
    assert log["adv_loss_first"] == pytest.approx(model(**whole).loss.item(), rel=1e-5)
    assert log["adv_loss_last"] > log["adv_loss_first"]
    assert float(loss) == pytest.approx((log["adv_loss_first"] + log["adv_loss_last"]) / 2)
    assert log["adv_ratio"] == pytest.approx(0.05, rel=1e-5) and log["adv_norm"] > 0
    assert not loss.requires_grad
    method = ALUM(model, alpha=2.0)
    loss = method(closure(model, whole, method))
    assert float(loss) == pytest.approx(float(method.log["task_loss"] + 2 * method.log["divergence"]))


@pytest.mark.parametrize("name", ["r3f", "alum_vat", "smart"])
def test_with_ddp_a_layer_may_belong_to_the_clean_pass_alone(name: str) -> None:
    """As with layer drop, whose layers are drawn anew in each pass."""

    def found(wrap: Callable[[Any], Any]) -> Tensor:
        model, passes = bert(), itertools.count()
        layer = model.bert.encoder.layer[1]
        layer.register_forward_hook(lambda _, inputs, output: inputs[0] if next(passes) else output)
        with one_worker():
            wrapped = wrap(model)
            method = made(name, wrapped)
            method(closure(wrapped, rows(), method), seeds=SEEDS)
        return gradient(model)

    plain = found(lambda model: model)
    assert torch.equal(
        plain, found(lambda model: DistributedDataParallel(model, find_unused_parameters=True))
    )


def test_smart_averages_the_weights_that_are_trained() -> None:
    """With LoRA they are few."""
    model = bert()
    model.bert.requires_grad_(False)
    method = SMART(model)
    assert [one.shape for one in method.average] == [one.shape for one in model.classifier.parameters()]
    with torch.no_grad():
        model.classifier.bias.add_(1.0)
    before = method.average[-1].clone()
    method.update_average()
    torch.testing.assert_close(method.average[-1], before + 0.01)


def test_the_average_of_the_weights() -> None:
    model, whole = bert(), rows()
    method = SMART(model, decay=0.9)
    before = [weight.detach().clone() for weight in model.parameters()]
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)
    method.update_average()
    for mine, old in zip(method.average, before):
        torch.testing.assert_close(mine, old + 0.1)
    other = SMART(model)
    other.load_state_dict(method.state_dict())
    for one in (method, other):
        one(closure(model, whole, one), seeds=SEEDS)
    found = gradient(model)
    assert all(map(torch.equal, method.average, other.average)) and found.norm() > 0
    for weight, old in zip(model.parameters(), before):  # its own again
        torch.testing.assert_close(weight.detach(), old + 1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a negative size": (lambda: FreeLB(bert(), step_size=-1.0), "step_size=-1.0"),
    "no step": (lambda: ALUM(bert(), steps=0), "steps=0"),
    "not a number": (lambda: R3F(bert(), epsilon=float("nan")), "epsilon=nan"),
    "another norm": (lambda: PGD(bert(), norm_type="l1"), "l2, linf"),
    "another projection": (lambda: ALUM(bert(), projection="ball"), "smart, clamp, unit, l2"),
    "compiled": (lambda: FreeLB(torch.compile(bert())), "torch.compile"),
    "compiled in place": (lambda: FreeLB(_compiled(bert())), "torch.compile"),
    "copies": (lambda: FreeLB(torch.nn.DataParallel(bert())), "DistributedDataParallel"),
    "other masks": (lambda: FreeLB(_recomputed(bert())), "preserve_rng_state"),
    "no embedding": (lambda: FreeLB(torch.nn.Linear(2, 2)), "no single token embedding"),
    "padding unknown": (lambda: FreeLB(qwen_without_padding())(lambda: None), "attention_mask"),
    "too few seeds": (lambda: _called(seeds=[1]), "1 seeds for 4 rows"),
    "a mask of one row": (
        lambda: _called(attention_mask=torch.ones(1, 7)), r"\(1, 7\) for tokens of \(4, 7\)",
    ),
    "half a step": (lambda: FreeLB(bert(), steps=2.5), "a whole number"),  # type: ignore[arg-type]
    "no average": (lambda: SMART(bert(), decay=99.0), "decay=99.0"),
    "two encoders": (lambda: FreeLB(torch.nn.ModuleList([bert(), bert()])), "has 2 encoders"),
    "embeds columns": (lambda: FreeLB(_with(config=SimpleNamespace(model_type="xlnet"))), "XLNet"),
    "the same graph": (lambda: FreeLB(_with(static_graph=True)), "static_graph"),
    "workers inside": (lambda: FreeLB(torch.nn.ModuleList([_of_workers(bert())])), "wrapped in another"),
    "steps in backward": (lambda: FreeLB(_stepping(bert())), "optimizer in backward"),
    "the whole output": (lambda: FreeLB(bert())(lambda: {"loss": 1}), "has to return the loss, not dict"),
    "a loss alone": (lambda: ALUM(bert())(lambda: torch.ones(())), "return output.loss, output.logits"),
}  # fmt: skip


def _with(**attributes: Any) -> Any:
    model = bert()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def _of_workers(model: Any) -> Any:
    wrapper = torch.nn.parallel.DistributedDataParallel.__new__(torch.nn.parallel.DistributedDataParallel)
    torch.nn.Module.__init__(wrapper)
    wrapper.module = model
    return wrapper


def _stepping(model: Any) -> Any:
    next(model.parameters()).register_post_accumulate_grad_hook(lambda weight: None)
    return model


def _compiled(model: Any) -> Any:
    model.compile()
    return model


def _recomputed(model: Any) -> Any:
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    return model


def qwen_without_padding() -> Any:
    model = qwen()
    model.config.pad_token_id = model.get_input_embeddings().padding_idx = None
    return model


def _called(**options: Any) -> None:
    model, whole = bert(), rows()
    method = FreeLB(model)
    method(closure(model, whole, method), **options)


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_the_embedding_of_a_part_is_found_where_the_whole_names_none() -> None:
    """A class of one's own of transformers has a get_input_embeddings that raises NotImplementedError."""

    class Own(PreTrainedModel):
        config_class = BertConfig

    whole = Own(BertConfig())
    whole.encoder = bert().bert
    assert find_token_embedding(whole) is whole.encoder.embeddings.word_embeddings
    Own.get_input_embeddings = lambda self: self.encodr  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="encodr"):  # a mistake is not passed over
        find_token_embedding(whole)


def test_an_embedding_that_is_computed_again_is_an_error() -> None:
    """Without delta, the gradients would be those of other activations."""
    model, whole = bert(), rows()
    embeddings = model.bert.embeddings
    forward = embeddings.forward
    embeddings.forward = lambda *args, **named: checkpoint(forward, *args, **named, use_reentrant=False)
    method = FreeLB(model)
    with pytest.raises(RuntimeError, match=r"it out of torch\.utils\.checkpoint"):
        method(closure(model, whole, method))


def test_an_embedding_that_returns_more_than_a_tensor_is_an_error() -> None:
    """As I-BERT's, which has a scale beside it."""
    model, whole = bert(), rows()
    model.get_input_embeddings().register_forward_hook(lambda _, inputs, output: (output, 1.0))
    method = FreeLB(model)
    with pytest.raises(RuntimeError, match="the token embedding must return a tensor"):
        method(closure(model, whole, method))


def test_an_embedding_with_dropout_of_its_own() -> None:
    """Masks that differ between passes: each pass's gradient of the table goes through its own mask."""
    model, whole = bert(), rows()
    table = model.get_input_embeddings()
    model.set_input_embeddings(torch.nn.Sequential(table, torch.nn.Dropout(0.5)))
    method = FreeLB(model, padding_idx=0, step_size=0.0, init_mag=0.0, share_dropout=False)
    torch.manual_seed(1)
    method(closure(model, whole, method), seeds=SEEDS)
    found = gradient(model)
    torch.manual_seed(1)
    for _ in range(3):
        (model(**whole).loss / 3).backward()
    assert distance(found, gradient(model)) < 2e-6


def test_a_head_that_is_replaced_after_the_method_was_made() -> None:
    model, whole = bert(), rows()
    method = made("pgd", model)
    model.classifier = torch.nn.Linear(DIM, 3)
    method(closure(model, whole, method), seeds=SEEDS)
    found = gradient(model)
    other = made("pgd", model)
    other(closure(model, whole, other), seeds=SEEDS)
    assert torch.equal(found, gradient(model))


def test_a_text_that_is_all_padding_leaves_the_log_finite() -> None:
    model, whole = bert(), rows()
    method = FreeLB(model)
    mask = whole["attention_mask"].clone()
    mask[1] = 0
    method(closure(model, whole, method), attention_mask=mask)
    assert all(value.isfinite() for value in method.log.values()) and gradient(model).isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_padding_that_the_model_adds_has_no_effect(name: str) -> None:
    """Longformer fills a window of 8 by itself, where the mini-batch and its mask have 7."""
    torch.manual_seed(3)
    config = LongformerConfig(**SIZES, attention_window=8, num_labels=3)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model, whole = LongformerForSequenceClassification(config).train(), rows()
    whole = {key: whole[key] for key in ("input_ids", "attention_mask", "labels")}
    found = []
    for more in (0, 1):
        for key in ("input_ids", "attention_mask"):
            whole[key] = torch.nn.functional.pad(whole[key], (0, more))
        method = made(name, model)
        method(closure(model, whole, method), attention_mask=whole["attention_mask"], seeds=SEEDS)
        found.append(gradient(model))
    assert distance(*found) < 2e-6


def test_recomputed_layers_give_the_same_gradient() -> None:
    model, whole = bert(dropout=0.2), rows()
    found = []
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(1)
        method = made("freelb", model)
        method(closure(model, whole, method), seeds=SEEDS)
        found.append(gradient(model))
    assert distance(found[1], found[0]) < 2e-6


def test_nothing_of_fairseq_is_imported() -> None:
    """The script that a release runs beside torch alone looks at what was imported itself."""
    script = Path(__file__).parents[2] / "scripts" / "loop_smoke.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0 and "imported for nothing: []" in done.stdout, done.stdout + done.stderr


def test_two_workers_reduce_once_and_have_the_gradient_of_one() -> None:
    script = Path(__file__).parent / "workers.py"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in found] == list(METHODS)
    assert all(float(far) < 2e-6 and reductions == "[0]" for _, far, reductions in found)
