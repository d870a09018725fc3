"""What a run without half precision computes in on a GPU, and fp16 where there is none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support import ADVERSARIAL, build, fairseq_train, fork_command, train_args, write_task


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's default before and after, and no word of it in the environment."""
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.enable_cudnn_sdp(True)


def started(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str,
    cuda: bool = True, capability: tuple[int, int] = (9, 0),
) -> SimpleNamespace:  # fmt: skip
    """A run on an emulated GPU that has looked for its checkpoint, as fairseq does before updates."""
    run = build(train_args(write_task(folder), None, "freelb", *ADVERSARIAL, *words))
    run.trainer.cuda = cuda
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    run.trainer.load_checkpoint(str(folder / "checkpoint_last.pt"))
    return run


def tf32() -> bool:
    return bool(torch.backends.cuda.matmul.allow_tf32)


def test_fp32_on_a_gpu_multiplies_in_tf32_and_says_how_to_turn_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="fairseq_adv"):
        started(tmp_path, monkeypatch)
    (said,) = (one.getMessage() for one in caplog.records if "TF32" in one.getMessage())
    assert tf32() and "NVIDIA_TF32_OVERRIDE=0" in said


def test_attention_has_the_dropout_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(tmp_path, monkeypatch, "--fp16")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("words", "machine"),
    [
        ([], {"cuda": False}),
        ([], {"capability": (7, 5)}),
        (["--fp16"], {}),
        (["--amp"], {}),
        (["--bf16"], {}),
    ],
    ids=["on a CPU", "before Ampere", "fp16", "amp", "bf16"],
)
def test_products_stay_as_torch_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], machine: dict[str, object]
) -> None:
    started(tmp_path, monkeypatch, *words, **machine)  # type: ignore[arg-type]
    assert not tf32()


def test_the_driver_s_own_switch_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with caplog.at_level(logging.INFO, logger="fairseq_adv"):
        started(tmp_path, monkeypatch)
    assert not tf32() and "TF32" not in caplog.text


def test_fp16_without_a_gpu_is_refused_in_one_line(tmp_path: Path) -> None:
    """Also where a checkpoint exists, whose optimizer would be built first."""
    args = train_args(write_task(tmp_path / "data"), tmp_path / "save", "freelb", *ADVERSARIAL)
    fairseq_train(*args, "--max-update", "1")
    done = fork_command("fairseq-train", *args, "--fp16")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: --fp16: needs a GPU, and none is used. Leave it out (in a recipe: common.fp16=false)"
    )
    assert "Traceback" not in done.stderr


def test_memory_efficient_fp16_names_the_optimizer_that_has_it(tmp_path: Path) -> None:
    args = train_args(write_task(tmp_path / "data"), tmp_path / "save", "freelb", *ADVERSARIAL)
    done = fork_command("fairseq-train", *args, "--memory-efficient-fp16", "--optimizer", "torch_adamw")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "--memory-efficient-bf16: not supported by --optimizer torch_adamw; pass --optimizer adam"
        in (done.stderr.splitlines()[-1])
    )
