"""--layer-lr-decay and --freeze: torch's parameter groups, written out by the names of the weights."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from criterions.restated import move_average, one_step, recorded
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from hf_encoders import WORDS, hf_run, save_encoder
from methods import METHODS, OPTIONS
from support import (
    ADVERSARIAL,
    batch,
    build,
    fairseq_train,
    frozen,
    gradients,
    slow,
    tensors,
    train_args,
    weights,
    write_task,
)

from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.fairseq_patches.checkpoint_files import inference_copies
from fairseq_adv.training.depth import freeze, set_rates_by_depth

DECAY, LR = 0.5, 0.01
ADAM = ["--adam-betas", "(0.9,0.98)", "--adam-eps", "1e-8", "--weight-decay", "0.1", "--clip-norm", "0"]
DECAYED = [*ADAM, "--layer-lr-decay", str(DECAY), "--lr", str(LR)]
LAYERS = ["--encoder-layers", "4"]
PARTS = ["--freeze", "embeddings,0"]
KINDS = ("bert", "deberta-v3", "electra")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", classes=3, train=16)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    for kind in (*KINDS, "albert", "xlm"):
        save_encoder(root / kind, kind, WORDS)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="module")
def hf_data(tmp_path_factory: pytest.TempPathFactory, encoders: dict[str, Path]) -> dict[str, Path]:
    folder = write_task(tmp_path_factory.mktemp("data") / "bin", classes=3)
    tokenizer_for_encoder(encoders["bert"]).dictionary.save(str(folder / "input0" / "dict.txt"))
    return {"classes": folder}


def of_fairseq(data: Path, method: str, *words: str) -> SimpleNamespace:
    return build(train_args(data, None, method, *LAYERS, *words, classes=3))


def rate(name: str, layers: int) -> float:
    """By the names of fairseq and of transformers."""
    found = re.search(r"\blayers?\.(\d+)\.", name)
    if (found and ".sentence_encoder." in name) or (found and ".encoder." in name):
        return LR * DECAY ** (layers - int(found[1]))
    is_head = re.search(r"lm_head|classification_heads|hf\.classifier|pooler", name)
    return LR if is_head else LR * DECAY ** (layers + 1)


def run_of_kind(
    data: Path, hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, *words: str
) -> SimpleNamespace:
    if kind == "fairseq":
        return of_fairseq(data, "standard", *words)
    return hf_run(hf_data, encoders[kind], "classes", "standard", *words)


def copies(run: SimpleNamespace) -> set[str]:
    """The names of fairseq's copies for inference."""
    found = {id(copy) for copy in inference_copies(run.model)}
    return {name for name, weight in run.model.named_parameters() if id(weight) in found}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fairseq", ["--optimizer", "adam"]),
        ("fairseq", ["--optimizer", "torch_adamw"]),
        ("fairseq", ["--optimizer", "torch_adamw", *PARTS]),
        ("fairseq", ["--optimizer", "adam", "--precision", "bf16"]),
        *((kind, ["--optimizer", "torch_adamw"]) for kind in KINDS),
        ("bert", ["--optimizer", "adam", *PARTS]),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value[1:]),
)
def test_updates_are_those_of_torchs_parameter_groups(
    data: Path, hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, words: list[str]
) -> None:
    """With the same gradients, since Adam divides by their size, and so makes rounding as large as a step."""
    run = run_of_kind(data, hf_data, encoders, kind, *words, *DECAYED)
    layers, is_frozen = (4 if kind == "fairseq" else 2), "--freeze" in words
    ours = dict(run.model.named_parameters())
    expected = {name: weight.detach().clone() for name, weight in ours.items()}
    start = {name: weight.clone() for name, weight in expected.items()}
    rates = {name: rate(name, layers) for name in ours if name not in copies(run)}
    if is_frozen:
        parts = {name for name in rates if rates[name] <= LR * DECAY**layers}
        assert set(frozen(run.model)) == parts
        rates = {name: lr for name, lr in rates.items() if name not in parts}
    assert len(set(rates.values())) == layers + (0 if is_frozen else 2)
    groups = [{"params": [expected[name]], "lr": lr} for name, lr in rates.items()]
    reference = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    run.trainer.begin_epoch(1)
    for update in range(4):
        run.trainer.train_step([batch(run, [update, update + 1, update + 2])])
        for name, weight in ours.items():
            expected[name].grad = None if weight.grad is None else weight.grad.clone()
        for group in reference.param_groups:  # fairseq's epsilon comes before the correction of the bias
            group["eps"] = 1e-8 / math.sqrt(1 - 0.98 ** (update + 1))
        reference.step()
        assert run.trainer.get_lr() == LR
    for name, weight in ours.items():
        moved = (expected[name] - start[name]).norm()
        assert (weight - expected[name]).norm() <= 1e-3 * moved, name
        assert bool(moved) is (weight.grad is not None)


@pytest.mark.parametrize(
    "words",
    [["--bf16"], ["--amp"], ["--memory-efficient-fp16"], ["--lr-scheduler", "reduce_lr_on_plateau"]],
    ids=lambda words: words[-1],
)
def test_each_weight_is_in_the_group_of_its_depth(data: Path, words: list[str]) -> None:
    """Also its copy in fp32; and the schedule moves all rates."""
    run = of_fairseq(data, "standard", *words, *DECAYED)
    trained = [(n, w) for n, w in run.model.named_parameters() if w.requires_grad]
    for lr in (LR, 0.3 * LR):
        run.trainer.optimizer.set_lr(lr)
        found = [(g["lr"], w.shape) for g in run.trainer.optimizer.param_groups for w in g["params"]]
        assert [shape for _, shape in found] == [weight.shape for _, weight in trained]
        assert [rate for rate, _ in found] == pytest.approx([lr / LR * rate(n, 4) for n, _ in trained])
        assert run.trainer.get_lr() == lr
    if "reduce_lr_on_plateau" not in words:
        return
    schedule = run.trainer.lr_scheduler.lr_scheduler
    assert len(schedule.min_lrs) == len(schedule.optimizer.param_groups)  # an older torch has no other
    for epoch in range(1, 4):
        run.trainer.lr_step(epoch, 1.0)
    rates = [group["lr"] for group in run.trainer.optimizer.param_groups]
    assert max(rates) < 0.1 * LR and max(rates) / min(rates) == pytest.approx(DECAY**-5)


# --- freezing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_what_is_trained_has_the_gradient_that_it_has_without(data: Path, method: str) -> None:
    """So delta moves as before, although the table of words gets no gradient. awp and sam move other
    weights."""
    found, deltas = [], []
    for words in ([], PARTS):
        run = of_fairseq(data, method, *OPTIONS[method], "--dropout", "0.1", "--clip-norm", "0", *words)
        more = {"ema_model": move_average(run)} if method == "smart" else {}
        with recorded() as passes:
            one_step(run, batch(run, [0, 1, 2]), **more)
        found.append(gradients(run.model))
        deltas.append(passes)
    parts = {n for n in found[0] if ".layers.0." in n or ".embed_" in n or "layernorm_embedding" in n}
    assert found[0].keys() - found[1].keys() == parts == set(frozen(run.model)) and len(parts) > 16
    whole = torch.cat([found[0][name].flatten() for name in found[1]])
    ours = torch.cat([gradient.flatten() for gradient in found[1].values()])
    if method in ("awp", "sam"):
        assert (ours - whole).norm() > 1e-4 * whole.norm()
        return
    assert (ours - whole).norm() <= 1e-5 * whole.norm()
    for before, now in zip(*deltas, strict=True):
        torch.testing.assert_close(now, before, rtol=1e-4, atol=1e-6)
    assert method not in ("freelb", "pgd") or not torch.equal(deltas[1][0], deltas[1][-1])


@pytest.mark.parametrize("method", ["freelb", slow("awp"), slow("smart")])
def test_two_workers_make_the_updates_of_one(data: Path, tmp_path: Path, method: str) -> None:
    words = [*LAYERS, *OPTIONS[method], *PARTS, "--layer-lr-decay", str(DECAY), "--max-update", "2"]
    words += ["--adam-betas", "(0.0,0.0)", "--adam-eps", "1e3", "--lr", "200"]  # gradient descent
    # awp steps along the gradient of a worker's mini-batch.
    of_one = ["--batch-size", "8", "--update-freq", "2"] if method == "awp" else ["--batch-size", "16"]
    for save, workers, size in (("one", 1, of_one), ("two", 2, ["--batch-size", "8"])):
        args = train_args(data, tmp_path / save, method, *words, *size, classes=3)
        fairseq_train(*args, workers=workers)
    one, two = (weights(tmp_path / save / "checkpoint_last.pt") for save in ("one", "two"))
    start = of_fairseq(data, method, *OPTIONS[method]).model.state_dict()
    moves = {name: weight - start[name] for name, weight in one.items()}
    rest = sum(float((weight - one[name]).norm() ** 2) for name, weight in two.items()) ** 0.5
    assert rest <= 1e-4 * sum(float(move.norm() ** 2) for move in moves.values()) ** 0.5
    still = {name for name, move in moves.items() if not move.any()}
    parts = {n for n in moves if ".layers.0." in n or ".embed_" in n or "layernorm_embedding" in n}
    assert parts <= still and not any(".layers.1.fc" in name for name in still)


# --- refusals and restarts ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("fairseq", "--freeze head", "--freeze head: 'head' is neither embeddings nor a layer.* 0 to 3"),
        ("fairseq", "--freeze 2-4", "'2-4' is neither"),
        ("fairseq", "--freeze 2-1", "'2-1' is neither"),
        ("fairseq", "--freeze embeddings,", "'' is neither"),
        ("fairseq", "--layer-lr-decay 0", "--layer-lr-decay 0.*: pass a factor above 0, up to 1"),
        ("fairseq", "--layer-lr-decay 1.1", "--layer-lr-decay 1.1: pass a factor above 0, up to 1"),
        ("fairseq", "--layer-lr-decay 0.9 --use-bmuf", "the optimizer has to hold each weight by itself"),
        (
            "albert",
            "--freeze embeddings",
            "--freeze embeddings: the layers of .* share their weights",
        ),
        ("albert", "--layer-lr-decay 0.9", "--layer-lr-decay 0.9: the layers of this encoder share"),
        ("xlm", "--layer-lr-decay 0.9", "the layers of this encoder are no list"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    data: Path, hf_data: dict[str, Path], encoders: dict[str, Path], kind: str, words: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _ = run_of_kind(data, hf_data, encoders, kind, *words.split()).trainer.optimizer


def test_an_optimizer_of_other_weights_is_refused(data: Path) -> None:
    """As that of --fp16 is, of all weights in one vector."""
    run = of_fairseq(data, "standard")
    run.trainer.optimizer.param_groups[0]["params"].pop()
    with pytest.raises(ValueError, match=r"--layer-lr-decay 0\.5: .* hold each weight by itself.*no-flatten"):
        set_rates_by_depth(run.trainer, 0.5)


def test_frozen_embeddings_are_refused_where_fairseq_computes_layers_again(data: Path) -> None:
    """Its layers would silently get no gradient; without embeddings they get the same."""
    run = of_fairseq(data, "freelb")
    for layer in run.model.encoder.sentence_encoder.layers:
        checkpoint_wrapper(layer)
    with pytest.raises(ValueError, match="--freeze embeddings with activation checkpointing"):
        freeze(run.model, "embeddings")
    freeze(run.model, "0-1")
    other = of_fairseq(data, "freelb", "--freeze", "0-1")
    for one in (run, other):
        one_step(one, batch(one, [0, 1, 2]))
    ours, expected = gradients(run.model), gradients(other.model)
    assert ours.keys() == expected.keys() and any(".layers.2." in name for name in ours)
    assert all(torch.allclose(ours[name], expected[name], rtol=1e-4, atol=1e-6) for name in ours)


def test_a_run_goes_on_to_the_bit_and_with_the_same_values_only(data: Path, tmp_path: Path) -> None:
    words = [*LAYERS, *ADVERSARIAL, *PARTS, "--layer-lr-decay", str(DECAY), "--optimizer", "torch_adamw"]
    parts, whole = (
        train_args(data, tmp_path / save, "freelb", *words, classes=3) for save in ("parts", "whole")
    )
    fairseq_train(*parts, "--max-update", "3")
    last = str(tmp_path / "parts" / "checkpoint_last.pt")
    for name, value in (("--layer-lr-decay", "0.9"), ("--freeze", "embeddings")):
        with pytest.raises(ValueError, match=f"made with other options.*{name}: .* -> {value}"):
            build([*parts, name, value]).trainer.load_checkpoint(last)
        with pytest.raises(ValueError, match=f"of an optimizer of other weights.*{name}.*--finetune-"):
            build([*parts, name, value, "--allow-changed-options"]).trainer.load_checkpoint(last)
    fairseq_train(*parts, "--max-update", "6")
    fairseq_train(*whole, "--max-update", "6")
    one, other = (tensors(tmp_path / save / "checkpoint_last.pt") for save in ("parts", "whole"))
    assert one == other
