"""What every method keeps to, whatever its paper says: one test for each promise, over all methods.

Workers, micro-batches, restarts: tests/integration/test_equal_updates.py; torch's DDP: test_torch_ddp.py.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from methods import METHODS, OPTIONS
from support import batch, build, flat_gradient, fork_command, frozen, train_args
from torch import nn

from criterions.restated import (
    DROPOUT,
    FP16,
    OBJECTIVES,
    ROWS,
    change,
    flat,
    one_step,
    recorded,
    run_of,
)
from fairseq_adv.criterions.mini_batch import ModelParts
from fairseq_adv.models.compiled_layers import compile_layers
from fairseq_adv_compat.option_numbers import declared_by

LAYERDROP = ["--encoder-layerdrop", "0.5", "--encoder-layers", "4"]
# Memory-efficient fp16 takes no SGD; Adam with this eps is gradient descent with a rate of 0.5.
DESCENT = ["--optimizer", "adam", "--adam-betas", "(0.0,0.0)", "--adam-eps", "1e3", "--lr", "500"]
HALF = [FP16, "--fp16-init-scale", "4"]
FEW = ("freelb", "alum_vat")  # of the two families
MOVING = [m for m in METHODS if m not in ("standard", "flooding", "rdrop", "awp", "sam")]  # that have a delta


def built(data: Path, method: str, *words: str) -> SimpleNamespace:
    run = build(train_args(data, None, method, *OPTIONS[method], *DESCENT, *words))
    run.trainer.begin_epoch(1)
    return run


def moved(data: Path, method: str, *words: str) -> torch.Tensor:
    """What an update does to the weights."""
    return change(built(data, method, *words))


def hooks(model: nn.Module) -> int:
    """What a pass may have left behind: hooks, and forwards that were replaced."""
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + ("forward" in vars(m)) for m in model.modules()
    )


@pytest.mark.fast
def test_all_methods_of_the_project_are_in_the_table() -> None:
    ours = {n for n, c in CRITERION_REGISTRY.items() if c.__module__.startswith("fairseq_adv.")}
    assert ours == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_declares_to_log_is_logged(data: Path, method: str) -> None:
    """By fairseq's meters, which the log, TensorBoard and the warnings read."""
    run = built(data, method, *DROPOUT)
    logged = run.trainer.train_step([batch(run, ROWS)])
    assert [one.name for one in run.criterion.logs if one.name not in logged] == []


# --- options ------------------------------------------------------------------------------------

OWN_NUMBERS = {
    method: {
        name: numbers
        for name, numbers in declared_by(
            "criterion", None, getattr(CRITERION_REGISTRY[method], "__dataclass")
        ).items()
        if name in CRITERION_REGISTRY[method].own_options() and (method, name) != ("creat", "adv_init_mag")
    }
    for method in METHODS
}


@pytest.mark.parametrize("method", [method for method in METHODS if OWN_NUMBERS[method]])
def test_a_number_out_of_its_range_is_refused_before_training(data: Path, method: str) -> None:
    """The range is declared beside the option, and its text says the same."""
    run = built(data, method)
    cfg = run.cfg.criterion
    for name, numbers in OWN_NUMBERS[method].items():
        bound = re.search(r"(\d+) or more|above (\d+)", numbers.wanted)
        assert (numbers.least, numbers.above) == (
            (float(bound[1] or "-inf"), float(bound[2] or "-inf")) if bound else (-math.inf, -math.inf)
        ), name
        default = getattr(cfg, name)
        below = numbers.least - 1 if numbers.least > -math.inf else numbers.above
        for value in (math.nan, math.inf, below):
            setattr(cfg, name, int(value) if isinstance(default, int) and math.isfinite(value) else value)
            option = name.replace("_", "-")
            with pytest.raises(ValueError, match=rf"^--{option} \S+: {re.escape(numbers.wanted)}$"):
                type(run.criterion)(cfg, run.task)
        setattr(cfg, name, default)


REFUSED: list[tuple[str, str, str]] = [
    ("freelb", "--adv-steps 0", "--adv-steps 0: pass 1 or more"),  # by the command line, too
    ("pgd", "--adv-clean-weight 1 --flood-level 1 --flood-scope micro-batch", "criterion pgd: .* update"),
    ("tavat", "--adv-norm-type linf", "--adv-norm-type linf: --criterion tavat supports only l2"),
    ("freeat", "--no-adv-share-dropout", "--no-adv-share-dropout has no effect with --criterion freeat"),
    ("freeat", "--adv-start-update 2", "--adv-start-update 2: pass a multiple of --adv-steps 3"),
    ("infobert", "--infobert-low 0.9", "--infobert-low 0.9 --infobert-high 0.9: pass shares from 0 to 1"),
    ("infobert", "--infobert-high 1.1", "--infobert-low 0.5 --infobert-high 1.1: pass shares"),
    ("alum_vat", "--vat-share-dropout perhaps", "--vat-share-dropout perhaps: pass true or false"),
    ("creat", "--adv-init-mag 0.1", "--adv-init-mag 0.1: leave it out; creat uses --creat-init-std instead"),
    ("sift", "--vat-relative", "--vat-relative.*leave it out"),
    # Both reduce gradients in each backward pass. freeat has one in each of its updates.
    *((method, f"--ddp-backend {backend}", f"{backend} with --criterion {method}: .* pass --ddp-backend ")
      for method, backend in zip(("pgd", "freelb", "yopo", "tavat", "infobert", "alum_vat", "smart", "sift",
                                  "creat", "awp", "sam"), 6 * ("fully_sharded", "slowmo"))),
    # Flooding, an option of every method.
    *((method, "--flood-level auto", "--flood-level auto: also pass --accordance-interval")
      for method in (*FEW, "flooding")),
    *((method, "--flood-level 1 --flood-scope micro-batch",
       f"micro-batch with --criterion {method}: .* --flood-scope update")
      for method in ("freelb", "yopo", "tavat", "infobert", "freeat")),
]  # fmt: skip


@pytest.mark.parametrize(("method", "words", "message"), REFUSED)
def test_options_that_do_not_fit_are_refused_before_training(
    data: Path, method: str, words: str, message: str
) -> None:
    pairs = re.findall(r"(--\S+)(?: (?!--)(\S+))?", words)
    given = [f"{name}={value}" if value else name for name, value in pairs]
    with pytest.raises(ValueError, match=message):
        build(train_args(data, None, method, *OPTIONS[method], *given))


def test_an_unknown_choice_is_refused_in_yaml_too(data: Path) -> None:
    """The parser of a command line knows the choices; a yaml's text comes to the criterion."""
    run = built(data, "noise")
    run.cfg.criterion.noise_kind = "loud"
    with pytest.raises(ValueError, match="--noise-kind loud: pass one of uniform, normal"):
        type(run.criterion)(run.cfg.criterion, run.task)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.fast
def test_every_option_has_a_help_text(method: str) -> None:
    parser = argparse.ArgumentParser()
    CRITERION_REGISTRY[method].add_args(parser)
    assert all(action.help for action in parser._actions)
    text = " ".join(parser.format_help().split())
    for option in CRITERION_REGISTRY[method].own_options():
        assert f"-{option.replace('_', '-')} " in f"{text} ", option


def test_a_missing_start_stops_the_run_before_the_first_update(data: Path, tmp_path: Path) -> None:
    """fairseq 0.12.2 itself logs one line and trains from random weights."""
    missing = tmp_path / "roberta.pt"
    for number, option in enumerate(("--continue-once", "--finetune-from-model")):
        folder = tmp_path / str(number)
        begun = train_args(data, folder, "freelb", option, str(missing))
        with pytest.raises(ValueError, match=f"{option} {missing}: no such file"):
            build(begun)
        folder.mkdir()
        (folder / "checkpoint_last.pt").touch()  # the run goes on with it, whatever it began with
        build(begun)
    with pytest.raises(ValueError, match="a run starts from one"):
        build([*begun, "--restore-file", str(missing)])
    args = train_args(data, tmp_path / "save", "freelb", "--restore-file", str(missing))
    done = fork_command("fairseq-train", *args)
    assert done.returncode != 0
    assert f"--restore-file {missing}: no such file" in done.stderr
    assert "train_inner" not in done.stdout + done.stderr
    assert not (tmp_path / "save" / "crash.pt").exists()


def test_noise_that_stays_in_the_weights_is_refused_with_several_passes(data: Path) -> None:
    words = ["--quant-noise-pq", "0.1"]
    for method in ("freelb", "rdrop"):
        with pytest.raises(ValueError, match=f"--quant-noise-pq with --criterion {method}: .*pass --crit"):
            built(data, method, *words)
    for method in ("flooding", "noise"):
        built(data, method, *words)


def test_a_task_with_its_own_training_step_is_refused_and_its_begin_epoch_runs(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(SentencePredictionTask, "begin_epoch", lambda self, epoch, model: seen.append(epoch))
    run = build(train_args(data, None))
    run.trainer.begin_epoch(3)
    assert seen == [3]
    monkeypatch.setattr(SentencePredictionTask, "train_step", lambda *a, **k: None, raising=False)
    with pytest.raises(ValueError, match="its own training step, which --criterion freelb would replace"):
        build(train_args(data, None))


# --- the plain update ---------------------------------------------------------------------------

# Options without an effect, and the difference that is left: 0 where the passes are standard's own, rounding
# where a gradient of 0, or the mean of equal ones, is computed.
OFF = [
    ("freelb", "--adv-lr 0 --adv-init-mag 0", 1e-6),
    ("freelb", "--adv-steps 1 --adv-init-mag 0", 0),
    ("pgd", "--adv-lr 0 --adv-init-mag 0", 1e-6),
    ("freeat", "--adv-steps 1 --adv-init-mag 0", 0),
    ("yopo", "--adv-lr 0 --adv-init-mag 0", 1e-6),
    ("tavat", "--adv-lr 0 --adv-init-mag 0", 1e-6),
    ("infobert", "--adv-lr 0 --adv-init-mag 0 --infobert-alpha 0 --infobert-beta 0", 1e-6),
    ("alum_vat", "--vat-alpha 0", 1e-6),
    ("smart", "--vat-alpha 0 --smart-mu 0", 1e-6),
    ("noise", "--noise-size 0", 0),
    ("r3f", "--r3f-lambda 0", 1e-6),
    ("r3f", "--r3f-epsilon 0", 1e-6),
    ("rdrop", "--rdrop-alpha 4", 1e-6),  # without dropout
    ("creat", "--adv-lr 0 --creat-init-std 0", 1e-6),
    ("flooding", "--flood-level 0", 0),
    ("awp", "--awp-gamma 0", 0),
    ("sam", "--sam-rho 0", 0),
    ("tavat", "--adv-steps 1 --adv-init-mag 0 --tavat-variant released", 0),
    ("freeat", "--adv-start-update 6", 0),
    ("smart", "--vat-start-update 5 --smart-mu 0", 0),
    ("awp", "--adv-start-update 5", 0),
    ("sam", "--adv-start-update 5", 0),
]


@pytest.mark.parametrize(
    ("method", "words", "tolerance", "objective"),
    [
        *((*case, "classes") for case in OFF),
        *((*OFF[0], objective) for objective in OBJECTIVES[1:]),
    ],
)
def test_without_an_effect_an_update_is_that_of_standard(
    folders: dict[str, Path], method: str, words: str, tolerance: float, objective: str
) -> None:
    """With dropout, if the passes share masks. The gradients of a question's choices nearly cancel in an
    untrained model.
    """
    dropout = [] if method in ("freeat", "rdrop") and tolerance else DROPOUT
    gradients = []
    for name, given in ((method, [*OPTIONS[method], *words.split()]), ("standard", [])):
        run = run_of(folders, objective, name, *given, *dropout)
        average = {"ema_model": run.trainer.ema.get_model()} if name == "smart" else {}
        one_step(run, batch(run, ROWS), **average)
        gradients.append(flat_gradient(run.model))
    ours, plain = gradients
    assert plain.norm() > 0.01
    assert (ours - plain).norm() <= tolerance * plain.norm() + (5e-6 if tolerance else 0)


@pytest.mark.parametrize(
    ("objective", "stock"),
    [("classes", "sentence_prediction"), ("regression", "sentence_prediction"), ("masked_lm", "masked_lm")],
)
@pytest.mark.parametrize("layers", ["fairseq's", "lean"])
def test_standard_is_fairseqs_own_criterion(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, objective: str, stock: str, layers: str
) -> None:
    """The loss to the bit, and with fairseq's layers the gradients, too."""
    if layers == "fairseq's":
        monkeypatch.setattr("fairseq_adv.training.trainer.use_lean_layers", lambda model: None)
    runs = [run_of(folders, objective, name, *DROPOUT) for name in ("standard", stock)]
    (loss, size, log), (own, own_size, own_log) = (one_step(run, batch(run, ROWS)) for run in runs)
    assert torch.equal(loss, own) and size == own_size and log["loss"] == own_log["loss"]
    ours, expected = (
        {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None} for run in runs
    )
    assert ours.keys() == expected.keys()
    if layers == "fairseq's":
        assert all(torch.equal(ours[name], expected[name]) for name in expected)
    else:
        near = 1e-6 * max(one.norm() for one in expected.values())
        assert all((ours[name] - expected[name]).norm() <= near for name in expected)


@pytest.mark.parametrize(
    ("method", "option"),
    [(m, "--adv-start-update") for m in ("freelb", "pgd", "yopo", "tavat", "infobert", "creat")]
    + [(m, "--vat-start-update") for m in ("alum_vat", "smart")],
)
def test_before_its_first_update_it_logs_the_same_names(data: Path, method: str, option: str) -> None:
    """In the same order: a worker that ran out of memory sums zeros under the names of the update before."""
    run = built(data, method, option, "1")
    average = {"ema_model": run.trainer.ema.get_model()} if method == "smart" else {}
    logs = []
    for update in (0, 1):
        with recorded() as deltas:
            logs.append(one_step(run, batch(run, [0, 1]), update, **average)[2])
        assert bool(deltas) is (update == 1)
    assert logs[0]["nexamples"] == 0 and logs[1]["nexamples"] == 2
    assert list(logs[0]) == list(logs[1])


def test_zeros_have_the_types_of_a_mini_batch_s_log(data: Path) -> None:
    """Workers sum tensors and numbers apart, and the trainer puts the host's numbers in a log."""
    run = built(data, "freelb")
    run.trainer.train_step([batch(run, ROWS)])
    zeros, (log,) = run.criterion.zeros(), run.criterion.update_logs
    assert isinstance(zeros["loss"], torch.Tensor) and isinstance(log["loss"], float)


# --- passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.fast
def test_passes_and_gradients_of_the_weights_are_counted(data: Path, method: str) -> None:
    """Passes that only move delta compute no gradient of a weight."""
    run = built(data, method)
    forwards, weight_gradients = [], []
    encoder = run.model.encoder.sentence_encoder
    encoder.register_forward_hook(lambda *_: forwards.append(1))
    encoder.layers[0].fc1.weight.register_hook(lambda gradient: weight_gradients.append(1))
    run.trainer.train_step([batch(run, ROWS)])
    expected = METHODS[method]
    assert (len(forwards), len(weight_gradients)) == (expected.forwards, expected.backwards)
    assert not frozen(run.model)


@pytest.mark.parametrize("method", METHODS)
def test_the_passes_of_an_update_drop_the_same_layers(data: Path, method: str) -> None:
    """As they share dropout masks. freeat's passes are updates, with draws of their own; rdrop's differ."""
    run = built(data, method, *LAYERDROP)
    passes: list[list[int]] = []
    run.model.encoder.register_forward_pre_hook(lambda *_: passes.append([]))
    for i, layer in enumerate(run.model.encoder.sentence_encoder.layers):
        layer.register_forward_hook(lambda *_, i=i: passes[-1].append(i))
    differing = 0
    updates: set[tuple[int, ...]] = set()
    for _ in range(4):
        passes.clear()
        run.trainer.train_step([batch(run, ROWS)])
        first = passes[0]
        # A shallow pass of yopo ends after the first layer.
        differing += sum(layers not in (first, first[:1]) for layers in passes)
        updates.add(tuple(first))
    assert len(updates) > 1
    assert (differing > 0) is (method in ("freeat", "rdrop"))


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("standard", "freeat", "rdrop")])
def test_the_generators_stand_where_a_plain_update_leaves_them(data: Path, method: str) -> None:
    """Also after the criterion was made, some of which draw."""
    after = []
    for name in (method, "standard"):
        run = built(data, name, *DROPOUT)
        after.append(torch.get_rng_state())
        change(run)
        after.append(torch.get_rng_state())
    assert torch.equal(after[0], after[2]) and torch.equal(after[1], after[3])


@pytest.mark.parametrize(
    ("method", "mode"),
    [(m, mode) for m in FEW for mode in (LAYERDROP, ["--amp"], [FP16])],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_kept_masks_give_the_same_update_to_the_bit(
    data: Path, monkeypatch: pytest.MonkeyPatch, method: str, mode: list[str]
) -> None:
    kept = moved(data, method, *DROPOUT, *mode)
    monkeypatch.setattr(ModelParts, "dropout_layers", [])
    assert torch.equal(kept, moved(data, method, *DROPOUT, *mode)) and kept.any()


def test_masks_are_kept_on_a_cpu_but_not_with_recomputed_activations_or_compiled_layers(data: Path) -> None:
    run = built(data, "freelb")
    layers = ModelParts(run.model).dropout_layers
    assert len(layers) == 2 * 3 + 2 and layers[0] is run.model.encoder.sentence_encoder.dropout_module
    checkpoint_wrapper(run.model.encoder.sentence_encoder.layers[1])
    assert not ModelParts(run.model).dropout_layers
    run = built(data, "freelb")
    compile_layers(run.model)
    assert not ModelParts(run.model).dropout_layers


@pytest.mark.parametrize("method", [m for m in METHODS if m != "infobert"])  # which refuses them
def test_recomputed_activations_give_the_same_update(data: Path, method: str) -> None:
    """With dropout, whose masks the re-computation has to repeat as well. The sums are the same ones."""
    plain, run = moved(data, method, *DROPOUT), built(data, method, *DROPOUT)
    for layer in run.model.encoder.sentence_encoder.layers:
        checkpoint_wrapper(layer)  # as model.checkpoint_activations of a yaml does
    ours = change(run)
    assert plain.norm() > 0 and (ours - plain).norm() <= 1e-6 * plain.norm()


# --- an example and the others of its mini-batch ------------------------------------------------


@pytest.mark.parametrize("method", [m for m in MOVING if m != "infobert"])  # which compares the sentences
def test_delta_is_the_same_however_the_batch_is_cut_and_padded(data: Path, method: str) -> None:
    run, alone = (built(data, method) for _ in range(2))
    sample = batch(run, ROWS)
    longest = sample["net_input"]["src_tokens"].size(1)
    row = next(row for row in ROWS if batch(run, [row])["net_input"]["src_tokens"].size(1) < longest)
    average = {"ema_model": run.trainer.ema.get_model()} if method == "smart" else {}
    with recorded() as together:
        one_step(run, sample, **average)
    with recorded() as single:
        one_step(alone, batch(alone, [row]), **average)
    assert len(together) == len(single) > 0
    padding = sample["net_input"]["src_tokens"].eq(1)
    for ours, other in zip(together, single):
        torch.testing.assert_close(ours[row, : other.size(1)], other[0], rtol=1e-3, atol=1e-5)
        assert padding.any() and not ours[padding].any() and ours[row].any()


# --- half precision -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "mode"),
    [*((m, []) for m in METHODS), *((m, LAYERDROP) for m in FEW)],
    ids=lambda value: value if isinstance(value, str) else "layerdrop" if value else "plain",
)
def test_half_precision_gives_nearly_the_same_update(data: Path, method: str, mode: list[str]) -> None:
    """fp16 has 11 significant bits (5e-4); passes at slightly other deltas add up. A wrong loss scale, or
    layers dropped in one pass and not in the next, would be of the order of 1.
    """
    full, half = moved(data, method, *mode), moved(data, method, *mode, *HALF)
    assert full.norm() > 0 and (half - full).norm() <= 0.03 * full.norm()


@pytest.mark.parametrize("objective", OBJECTIVES[1:])
def test_half_precision_on_every_objective(folders: dict[str, Path], objective: str) -> None:
    words = [*OPTIONS["freelb"], *DESCENT]
    updates = [change(run_of(folders, objective, "freelb", *words, *half)) for half in ([], HALF)]
    assert updates[0].norm() > 0 and (updates[1] - updates[0]).norm() <= 0.03 * updates[0].norm()


@pytest.mark.parametrize(
    ("method", "scale"), [*((m, 2.0**40) for m in METHODS), *((m, 2.0**6) for m in FEW)],
    ids=lambda value: value if isinstance(value, str) else "overflow" if value > 64 else "finite",
)  # fmt: skip
def test_overflow_under_fp16_skips_the_update_and_keeps_everything_finite(
    data: Path, method: str, scale: float
) -> None:
    """As fairseq does for a plain loss: the update is skipped and the loss scale halved. delta's own gradient
    does not go through the loss scale.
    """
    run = built(data, method, FP16)
    run.trainer.optimizer.scaler.loss_scale = scale
    before = flat(run)
    with recorded() as deltas:
        run.trainer.train_step([batch(run, ROWS)])
    assert all(delta.isfinite().all() for delta in deltas) and flat(run).isfinite().all()
    overflow = scale > 64
    assert torch.equal(flat(run), before) is overflow
    assert run.trainer.get_num_updates() == (0 if overflow else 1)
    times = METHODS[method].backwards if method == "freeat" else 1  # each of its updates has a scale
    assert run.trainer.optimizer.scaler.loss_scale == (scale / 2**times if overflow else scale)


# --- dummy batches, and errors in the middle ----------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.fast
def test_a_dummy_batch_changes_nothing_and_does_not_move_delta(data: Path, method: str) -> None:
    """What fairseq's trainer takes where a worker has no mini-batch: its gradient is ignored."""
    run = (
        built(data, method, "--adv-max-norm", "0")
        if "--adv-max-norm" in OPTIONS[method]
        else built(data, method)
    )
    run.trainer._dummy_batch = batch(run, [0, 1])
    before = flat(run)
    with recorded() as deltas:
        run.trainer.train_step([None])
    assert torch.equal(flat(run), before) and not flat_gradient(run.model).any()
    if method not in ("tavat", "infobert", "alum_vat", "smart", "sift"):  # which move by more than the loss
        assert all(torch.equal(delta, deltas[0]) for delta in deltas)


@pytest.mark.parametrize("method", ["standard", "freelb"])
def test_masks_do_not_depend_on_a_dummy_batch(data: Path, method: str) -> None:
    """It comes first, and after a restart it is another one."""
    moves = []
    for dummy in ([0, 1], [0, 1, 2]):
        run = built(data, method, *DROPOUT)
        run.trainer._dummy_batch = batch(run, dummy)
        run.trainer.train_step([batch(run, [3, 4]), None])
        moves.append(flat(run))
    assert torch.equal(*moves)


@pytest.mark.parametrize(
    ("method", "precision"),
    [*((m, []) for m in METHODS), *((m, HALF) for m in FEW)],
    ids=lambda value: value if isinstance(value, str) else "fp16" if value else "fp32",
)
def test_an_error_in_the_middle_leaves_the_model_as_it_was(
    data: Path, method: str, precision: list[str]
) -> None:
    """And the update that is made again is the one that would have been made."""
    expected = moved(data, method, *DROPOUT, *precision)
    run = built(data, method, *DROPOUT, *precision)
    layer, before = run.model.encoder.sentence_encoder.layers[1], hooks(run.model)
    last = min(METHODS[method].forwards, 2)
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == last:
            raise ZeroDivisionError

    handle = layer.register_forward_hook(fail)
    with pytest.raises(ZeroDivisionError):
        run.trainer.train_step([batch(run, ROWS)])
    handle.remove()
    assert hooks(run.model) == before and not frozen(run.model)
    if method != "freeat":  # which has made its first update
        assert torch.equal(change(run), expected)
