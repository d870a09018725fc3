"""ALBERT as fairseq's tasks and this project's methods see it; tests/hub holds it against transformers."""

from __future__ import annotations

import copy
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from criterions import references
from criterions.restated import (
    ALPHA,
    DROPOUT,
    EPSILON,
    FP16,
    ROWS,
    START,
    flat,
    loss_at,
    one_step,
    options,
    recorded,
    uniform_noise,
)
from criterions.test_contract import LAYERDROP, moved
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from methods import METHODS, OPTIONS
from support import (
    ADVERSARIAL,
    batch,
    build,
    flat_gradient,
    gradients,
    run_command,
    slow,
    train_args,
    write_corpus,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_tags

from fairseq_adv.data.errors import DataError
from fairseq_adv.models.albert import AlbertModel, check_options
from fairseq_adv.perturbation import find_layers, find_token_embedding
from fairseq_adv.perturbation.precision import layer_norm_after

WIDTH = 8  # of the words' embeddings, E; the layers have 16
ALBERT = ["--arch", "albert_base", "--encoder-input-dim", str(WIDTH), "--pooler-dropout", "0"]
# Layers, H, feed-forward width, heads: Lan et al., table 1, with v2's heads of xlarge.
V2 = {
    "albert_base": (12, 768, 3072, 12),
    "albert_large": (24, 1024, 4096, 16),
    "albert_xlarge": (24, 2048, 8192, 16),
    "albert_xxlarge": (12, 4096, 16384, 64),
}
TASKS = {
    "commonsense_qa": write_questions, "wsc": write_wsc, "masked_lm": write_corpus, "tagging": write_tags,
    "span_qa": write_spans,
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


def model_of(**sizes: Any) -> AlbertModel:
    words = Dictionary()
    for number in range(96):
        words.add_symbol(str(number))
    return AlbertModel.build_model(Namespace(max_positions=20, **sizes), Namespace(source_dictionary=words))


SMALL = {"encoder_input_dim": 6, "encoder_embed_dim": 12, "encoder_ffn_embed_dim": 20,
         "encoder_attention_heads": 2, "encoder_layers": 5}  # fmt: skip


@pytest.mark.parametrize("name", list(V2))
def test_the_sizes_are_those_of_v2(name: str) -> None:
    args = Namespace()
    ARCH_CONFIG_REGISTRY[name](args)
    found = (args.encoder_layers, args.encoder_embed_dim, args.encoder_ffn_embed_dim)
    assert (*found, args.encoder_attention_heads) == V2[name]
    assert (args.encoder_input_dim, args.dropout, args.activation_fn) == (128, 0.0, "gelu_accurate")


def test_the_weights_of_the_layers_exist_once() -> None:
    """By hand: E = 6, H = 12, F = 20, 100 words, 20 positions and 2 rows that fairseq has before them."""
    encoder = model_of(**SMALL).encoder.sentence_encoder
    embeddings = 100 * 6 + 22 * 6 + 2 * 6 + (6 * 12 + 12)
    layer = 4 * (12 * 12 + 12) + (12 * 20 + 20) + (20 * 12 + 12) + 2 * 2 * 12
    copies = ("_weight", "_bias")  # which fairseq's layer keeps for inference
    assert (
        sum(p.numel() for n, p in encoder.named_parameters() if not n.endswith(copies)) == embeddings + layer
    )
    assert {name.split(".")[1] for name in encoder.state_dict() if name.startswith("layers.")} == {"0"}
    assert len(encoder.layers) == len(find_layers(encoder)) == 5
    assert len({id(layer) for layer in encoder.layers}) == 1


def test_the_layer_is_applied_as_often_as_there_are_layers(data: Path) -> None:
    run = build(train_args(data, None, "standard", *ALBERT, "--encoder-layers", "4"))
    calls: list[int] = []
    run.model.encoder.sentence_encoder.layers[3].register_forward_hook(lambda *_: calls.append(1))
    run.model(batch(run, ROWS)["net_input"]["src_tokens"])
    assert len(calls) == 4


def test_the_perturbed_layer_is_the_words_alone(data: Path) -> None:
    """Of width E, with the layer norm that keeps delta in half precision behind it."""
    run = build(train_args(data, None, "freelb", *ALBERT, *ADVERSARIAL))
    encoder = run.model.encoder.sentence_encoder
    assert find_token_embedding(run.model) is encoder.embed_tokens
    assert layer_norm_after(run.model, encoder.embed_tokens) is encoder.layernorm_embedding
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    assert [delta.shape[-1] for delta in deltas] == [WIDTH] * 3
    padding = sample["net_input"]["src_tokens"].eq(1)
    assert padding.any() and float(deltas[-1][padding].abs().max()) == 0.0


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_gradient_equals_the_restated_algorithm(data: Path, method: str) -> None:
    """The tolerance is that of tests/criterions/test_freelb_and_pgd.py, for RoBERTa."""
    run = build(train_args(data, None, method, *ALBERT, *options()))
    sample = batch(run, ROWS)
    one_step(run, sample)
    ours = gradients(run.model)
    names, parameters = zip(*((n, p) for n, p in run.model.named_parameters() if n in ours))
    start = uniform_noise(sample, START, dim=WIDTH)
    restated = getattr(references, method)
    expected = restated(lambda delta: loss_at(run, sample, delta), start, parameters, 3, ALPHA, EPSILON)
    for name, grad in zip(names, expected):
        torch.testing.assert_close(ours[name], grad, rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_freelb_equals_a_larger_batch_of_constant_perturbations(data: Path) -> None:
    """Eq. 3: the accumulated gradient is that of the mean loss over X + delta_0, X + delta_1, X + delta_2."""
    run = build(train_args(data, None, "freelb", *ALBERT, *options()))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    ours = flat_gradient(run.model)
    run.trainer.zero_grad()
    larger = {
        "net_input": {"src_tokens": sample["net_input"]["src_tokens"].repeat(3, 1)},
        "target": sample["target"].repeat(3, 1),
    }
    run.trainer.optimizer.backward(loss_at(run, larger, torch.cat(deltas)) / 3)
    expected = flat_gradient(run.model)
    assert (ours - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize("mode", [DROPOUT, LAYERDROP], ids=["dropout", "layerdrop"])
def test_the_passes_of_an_update_share_their_masks(data: Path, mode: list[str]) -> None:
    """Passes at one delta: FreeLB's mean over them is a single pass, bit for bit in what they drop."""
    one, three = (
        moved(data, "freelb", *ALBERT, *mode, "--adv-lr", "0", "--adv-steps", steps) for steps in ("1", "3")
    )
    assert one.norm() > 0
    assert (three - one).norm() <= 1e-6 * one.norm()


def test_layerdrop_leaves_applications_out_in_training_alone(data: Path) -> None:
    run = build(
        train_args(data, None, "standard", *ALBERT, "--encoder-layers", "10", "--encoder-layerdrop", "0.5")
    )
    layers = run.model.encoder.sentence_encoder.layers.train()
    torch.manual_seed(0)
    counts = [len(list(layers)) for _ in range(200)]
    assert 4.5 < sum(counts) / 200 < 5.5 and len(set(counts)) > 4
    assert len(list(layers.eval())) == 10


@pytest.mark.parametrize("method", ["freelb", "yopo", "alum_vat", *(slow(m) for m in ("pgd", "freeat"))])
def test_recomputed_activations_give_the_same_update(data: Path, method: str) -> None:
    """As in tests/criterions/test_contract.py, with the one layer re-computed in each place."""
    sides = []
    for recompute in (False, True):
        run = build(train_args(data, None, method, *ALBERT, *OPTIONS[method], *DROPOUT, "--lr", "0.01"))
        if recompute:
            checkpoint_wrapper(run.model.encoder.sentence_encoder.layers[0])
        before = flat(run)
        one_step(run, batch(run, ROWS))
        sides.append(flat_gradient(run.model))
        assert torch.equal(flat(run), before) or method == "freeat"
    assert (sides[1] - sides[0]).norm() <= 1e-6 * sides[0].norm()


def test_the_option_for_recomputed_activations_reaches_the_layer() -> None:
    """As model.checkpoint_activations of a yaml does."""
    layers = model_of(**SMALL, checkpoint_activations=True).encoder.sentence_encoder.layers
    assert hasattr(layers[0], "precheckpoint_forward")


@pytest.mark.parametrize("method", [m if m in ("standard", "freelb") else slow(m) for m in METHODS])
def test_fp16_gives_nearly_the_same_update(data: Path, method: str) -> None:
    """By fairseq's trainer. fp16 has 11 significant bits (5e-4); a wrong loss scale would be of order 1."""
    full = moved(data, method, *ALBERT)
    half = moved(data, method, *ALBERT, FP16, "--fp16-init-scale", "4")
    assert full.norm() > 0
    assert (half - full).norm() <= 0.03 * full.norm()


@pytest.mark.parametrize("method", ["freelb", *(slow(m) for m in METHODS if m not in ("freelb", "smart"))])
def test_bf16_gives_nearly_the_same_gradient(data: Path, method: str) -> None:
    """All weights in bf16, as --bf16 has them; bf16 has 8 significant bits (4e-3). smart needs a trainer."""
    sides = []
    for kind in (torch.float32, torch.bfloat16):
        run = build(train_args(data, None, method, *ALBERT, *OPTIONS[method], "--lr", "1e-5"))
        run.model.to(kind)
        one_step(run, batch(run, ROWS))
        sides.append(flat_gradient(run.model))
    assert (sides[1] - sides[0]).norm() <= 0.08 * sides[0].norm()


@pytest.mark.parametrize("task", list(TASKS))
def test_the_tasks_heads_fit(tmp_path: Path, task: str) -> None:
    """The loss reaches every weight that takes part, and delta."""
    run = build(train_args(TASKS[task](tmp_path), None, "freelb", *ALBERT, *ADVERSARIAL, task=task))
    with recorded() as deltas:
        run.trainer.train_step([batch(run, [0, 1, 2, 3])])
    assert len(deltas) == 3 and not torch.equal(deltas[0], deltas[2])
    found = gradients(run.model)
    head = "encoder.lm_head.dense.weight" if task in ("wsc", "masked_lm") else "classification_heads."
    for part in ("embed_tokens.weight", "input_projection.weight", "layers.0.fc1.weight", head):
        assert any(part in name and float(grad.abs().max()) > 0 for name, grad in found.items()), part


def test_the_last_layer_is_not_cut_to_the_first_token(data: Path) -> None:
    """It is the first layer too."""
    sides = []
    for words in ([], ["--whole-last-layer"]):
        run = build(train_args(data, None, "standard", *ALBERT, *words, task="text_classification"))
        one_step(run, batch(run, ROWS))
        sides.append(flat_gradient(run.model))
    assert torch.equal(*sides)


def test_a_copy_of_the_model_is_whole(data: Path) -> None:
    """smart's average is one."""
    run = build(train_args(data, None, "standard", *ALBERT))
    tokens = batch(run, ROWS)["net_input"]["src_tokens"]
    twin = copy.deepcopy(run.model).eval()
    assert torch.equal(twin(tokens)[0], run.model.eval()(tokens)[0])
    assert len(twin.encoder.sentence_encoder.layers) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder_layers": 0}, "--encoder-layers 0: pass a whole number from 1 to 1000"),
        ({"encoder_layers": 10**9}, "--encoder-layers 1000000000: pass a whole number from 1 to 1000"),
        ({"encoder_input_dim": 0}, "--encoder-input-dim 0: pass a whole number of at least 1"),
        ({"encoder_embed_dim": 13}, "--encoder-embed-dim 13 is not a multiple of --encoder-att"),
        ({"encoder_layers_to_keep": "0,2"}, "--encoder-layers-to-keep: all layers of an albert"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_options(Namespace(**{"encoder_layers_to_keep": None, **SMALL, **changed}))


def test_a_refused_option_is_one_line(data: Path) -> None:
    done = run_command(
        "fairseq-train", *train_args(data, None, "freelb", *ALBERT, "--encoder-layers-to-keep", "0")
    )
    assert done.returncode == 1  # as of every error that ends fairseq-train
    assert done.stderr.splitlines()[-1].startswith("error: --encoder-layers-to-keep: all layers of an albert")
    assert "Traceback" not in done.stderr
