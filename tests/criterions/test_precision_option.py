"""--precision: what it sets of fairseq's options, what it refuses, and whose it leaves alone."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from emulated_gpu import POSSIBLE, emulated
from fairseq.optim.amp_optimizer import AMPOptimizer
from methods import OPTIONS
from processors import BF16, NONE
from support import ADVERSARIAL, VIRTUAL, batch, build, train_args, write_task
from torch import Tensor

from fairseq_adv.training.half_precision import master_weights
from fairseq_adv.training.precision_option import PrecisionOption
from fairseq_adv_compat import machine

HALVES = ("fp16", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp")


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its /proc/cpuinfo."""
    path = tmp_path / "cpuinfo"
    path.write_text(NONE)
    monkeypatch.setattr(machine, "CPUINFO", path)
    return path


@pytest.mark.parametrize(
    ("flags", "words", "is_amp"),
    [
        (BF16, ["--precision", "auto"], True),
        (NONE, ["--precision", "auto"], False),
        (BF16, ["--precision", "fp32"], False),
        (NONE, ["--precision", "bf16"], True),
        (NONE, ["--precision", "bf16", "--amp"], True),
        (BF16, [], False),
        (NONE, ["--amp"], True),
    ],
    ids=["auto, bf16", "auto, none", "fp32", "bf16", "bf16 twice", "no option", "fairseq's option"],
)
def test_the_optimizer_is_that_of_the_precision(
    data: Path, cpuinfo: Path, flags: str, words: list[str], is_amp: bool
) -> None:
    cpuinfo.write_text(flags)
    run = build(train_args(data, None, "freelb", *ADVERSARIAL, *words))
    assert isinstance(run.trainer.optimizer, AMPOptimizer) == run.cfg.common.amp == is_amp
    run.trainer.begin_epoch(1)
    run.trainer.train_step([batch(run, [0, 1, 2])])
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_a_regression_keeps_its_numbers(tmp_path: Path, cpuinfo: Path) -> None:
    """bf16 has 8 bits: 1987 would be 1984."""
    cpuinfo.write_text(BF16)
    data = write_task(tmp_path, classes=1)
    run = build(train_args(data, None, "freelb", *ADVERSARIAL, "--precision", "auto", classes=1))
    assert run.trainer.optimizer.__class__ is not AMPOptimizer and not run.cfg.common.amp
    run = build(train_args(data, None, "freelb", *ADVERSARIAL, "--bf16", classes=1))
    sample = batch(run, [0, 1, 2])
    sample["target"] = torch.tensor([1987.0, 2003.0, 4.7])
    assert torch.equal(run.trainer._prepare_sample(sample)[0]["target"], sample["target"])


def common(**given: bool) -> SimpleNamespace:
    return SimpleNamespace(**{**dict.fromkeys(HALVES, False), "cpu": True, **given})


@pytest.mark.parametrize(
    ("cpu", "gpu", "value", "expected"),
    [
        (True, True, "bf16", "amp"),
        (False, False, "bf16", "amp"),
        (False, True, "bf16", "bf16"),
        (False, True, "fp32", ""),
        (False, True, "auto", ""),
        (False, True, None, ""),
    ],
)
def test_what_is_set_before_the_trainer_is_built(
    monkeypatch: pytest.MonkeyPatch, cpu: bool, gpu: bool, value: str | None, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    options = common(cpu=cpu)
    PrecisionOption(value).begin(options)
    assert [name for name in HALVES if getattr(options, name)] == ([expected] if expected else [])


@pytest.mark.parametrize("value", ["fp32", "bf16", "auto"])
@pytest.mark.parametrize("name", HALVES)
def test_two_precisions_are_refused(name: str, value: str) -> None:
    options = common(**{name: True})
    if (name, value) == ("amp", "bf16"):  # the same on a CPU
        return PrecisionOption(value).begin(options)
    before = copy.copy(options)
    with pytest.raises(ValueError, match="pass only one of them") as refused:
        PrecisionOption(value).begin(options)
    assert str(refused.value).startswith(f"--precision {value} with --{name.replace('_', '-')}: ")
    assert options == before
    return None


def test_they_are_refused_where_a_run_is_built(data: Path) -> None:
    with pytest.raises(ValueError, match="--precision fp32 with --amp: pass only one of them"):
        build(train_args(data, None, "standard", "--precision", "fp32", "--amp"))
    with pytest.raises(ValueError, match="--precision half: pass one of auto, fp32, bf16"):
        build(train_args(data, None, "standard", "--precision", "half"))


def test_smarts_average_is_not_in_bf16(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, where bf16 is that of the weights; on a CPU they are fp32."""
    words = train_args(data, None, "smart", "--store-ema", "--precision", "bf16")
    build(words)
    words.remove("--cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="needs --ema-fp32"):
        build(words)


# --- auto on a GPU, an emulated one -----------------------------------------------------------------

no_gpu = pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
AUTO = ["--precision", "auto", "--lr", "3e-5"]  # less than a rounding step of bf16
AVERAGED = [*VIRTUAL, "--store-ema", "--ema-decay", "0.9"]


@contextmanager
def device(kind: str) -> Iterator[list[str]]:
    """Its words: a ``gpu`` with bf16, an ``old`` one without, or a ``cpu``."""
    if kind == "cpu":
        yield ["--cpu"]
        return
    with emulated(), mock.patch.object(torch.cuda, "is_bf16_supported", return_value=kind == "gpu"):
        yield []


def started(data: Path, criterion: str, *words: str) -> SimpleNamespace:
    args = train_args(data, None, criterion, *words)
    args.remove("--cpu")
    return build(args)


def updated(run: SimpleNamespace, *updates: int) -> list[Tensor]:
    """What it trains, after these updates."""
    run.trainer.begin_epoch(1)
    for update in updates:
        run.trainer.train_step([batch(run, [update, update + 1])])
    average = run.trainer.ema.fp32_params.values() if run.cfg.ema.store_ema else []
    trained = [one for one in run.model.parameters() if one.requires_grad]
    found = [*trained, *master_weights(run.trainer.optimizer), *average]
    return [one.detach().cpu().clone() for one in found]


def saved(run: SimpleNamespace, path: Path) -> str:
    run.trainer.consolidate_optimizer()
    run.trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return str(path)


@no_gpu
@pytest.mark.parametrize(
    ("criterion", "words"), [("freelb", ADVERSARIAL), ("smart", [*AVERAGED, "--ema-fp32"])]
)
def test_auto_starts_from_a_checkpoint_as_bf16_does(
    data: Path, tmp_path: Path, criterion: str, words: list[str]
) -> None:
    start = saved(build(train_args(data, None, criterion, *words, "--seed", "9")), tmp_path / "start.pt")
    found = []
    for precision in ("auto", "bf16"):
        with device("gpu"):
            run = started(data, criterion, *words, *AUTO, "--precision", precision)
            run.trainer.load_checkpoint(start, reset_optimizer=True, reset_lr_scheduler=True)
            found.append(updated(run, 0, 1, 2))
    assert run.cfg.common.bf16 and {weight.dtype for weight in run.model.parameters()} == {torch.bfloat16}
    assert len(found[0]) > len(list(run.model.parameters())), "fp32 weights, and averages"
    assert all(map(torch.equal, *found))


@no_gpu
@pytest.mark.parametrize("there", ["gpu", "old", "cpu"])
@pytest.mark.parametrize(("here", "dtype"), [("gpu", torch.bfloat16), ("old", torch.float32)])
def test_a_restart_keeps_the_precision_of_a_gpu(
    data: Path, tmp_path: Path, cpuinfo: Path, caplog: pytest.LogCaptureFixture,
    here: str, there: str, dtype: torch.dtype,
) -> None:  # fmt: skip
    """And where it runs on the same kind, it goes on to the bit."""
    cpuinfo.write_text(BF16)
    with device(here) as words:
        whole = started(data, "freelb", *ADVERSARIAL, *AUTO, *words)
        updated(whole, 0, 1)
        path = saved(whole, tmp_path / "checkpoint_last.pt")
        expected = updated(whole, 2, 3)
    with device(there) as words, caplog.at_level(logging.INFO, logger="fairseq_adv"):
        resumed = started(data, "freelb", *ADVERSARIAL, *AUTO, *words, "--restore-file", path)
        resumed.trainer.load_checkpoint(path)
        found = updated(resumed, 2, 3)
    assert f"{'bf16' if dtype == torch.bfloat16 else 'fp32'}, as in {path}" in caplog.text
    assert {weight.dtype for weight in resumed.model.parameters()} == {dtype}
    assert here != there or all(map(torch.equal, found, expected))


@no_gpu
@pytest.mark.parametrize(
    ("criterion", "words", "told"),
    [
        ("standard", [], "bf16, which this GPU has; --precision fp32 turns it off"),
        ("smart", [*AVERAGED, "--ema-fp32"], "bf16, which"),
        (
            "smart",
            AVERAGED,
            "fp32: an average in bf16 would round away each update's change; with --ema-fp32",
        ),
        ("awp", OPTIONS["awp"], "fp32: v would be rounded"),
        ("sam", OPTIONS["sam"], "fp32: v would be rounded"),
        ("standard", ["--update-freq", "1,2"], "fp32: with several --update-freq fairseq's bf16 needs"),
        ("standard", ["--update-freq", "1,2", "--fp16-scale-window", "9"], "bf16, which"),
    ],
)
def test_a_gpu_takes_bf16_where_the_run_can(
    data: Path, caplog: pytest.LogCaptureFixture, criterion: str, words: list[str], told: str
) -> None:
    """A run that would end in an error, or whose method would be rounded away, stays in fp32."""
    with device("gpu"), caplog.at_level(logging.INFO, logger="fairseq_adv"):
        run = started(data, criterion, *words, *AUTO)
        updated(run, 0)
    assert told in caplog.text
    expected = torch.bfloat16 if told.startswith("bf16") else torch.float32
    assert {weight.dtype for weight in run.model.parameters()} == {expected}
    assert run.cfg.common.bf16 == (expected == torch.bfloat16)


@no_gpu
@pytest.mark.parametrize("criterion", ["freelb", "alum_vat", "r3f", "standard"])
def test_a_delta_that_bf16_would_round_away_stays_in_fp32(
    data: Path, caplog: pytest.LogCaptureFixture, criterion: str
) -> None:
    """Without a layer norm after the embeddings nothing adds it in fp32."""
    with device("gpu"), caplog.at_level(logging.INFO, logger="fairseq_adv"):
        run = started(data, criterion, *OPTIONS[criterion], *AUTO)
        run.model.encoder.sentence_encoder.layernorm_embedding = None
        updated(run, 0)
    assert run.cfg.common.bf16 == (criterion == "standard")
    assert ("no layer norm after its embeddings" in caplog.text) == (criterion != "standard")


@no_gpu
def test_fully_sharded_stays_in_fp32(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """fairseq refuses it with --bf16 where the trainer is built."""
    with device("gpu"), caplog.at_level(logging.INFO, logger="fairseq_adv"):
        run = started(data, "standard", *AUTO)
        run.trainer.cfg.distributed_training.ddp_backend = "fully_sharded"
        run.trainer.precision.decide(run.trainer)
    assert not run.cfg.common.bf16 and "fp32: --ddp-backend fully_sharded has no bf16" in caplog.text
