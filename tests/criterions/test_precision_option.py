"""--precision: what it sets of fairseq's options, what it refuses, and whose it leaves alone."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from processors import BF16, NONE
from support import ADVERSARIAL, batch, build, train_args

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
