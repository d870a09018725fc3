"""How a trained model is run: mini-batches, device, precision (fp32 as it was saved, or bf16 autocast)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ContextManager

import torch
from torch import nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.perturbation.passes import use_differentiable_layers

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class InferenceConfig:
    """How a model is run.

    Attributes:
        batch_size: most examples per mini-batch; ``None``: as ``max_tokens`` allows.
        max_tokens: maximum number of tokens per mini-batch; ``None``: as ``batch_size`` allows.
        cpu: don't use a GPU.
        fp16: compute in half precision; needs a GPU.
        tokenizer_dir: instead of the one in the checkpoint.
        device_name: such as "cuda:1"; ``None``: a GPU if there is one and ``cpu`` is false.
        precision: ``fp32`` or ``bf16``; scores are fp32 numbers in both.

    Raises:
        DataError: a number below 1, two precisions or an unknown one, or the device does not exist.
    """

    batch_size: int | None = None
    max_tokens: int | None = None
    cpu: bool = False
    fp16: bool = False
    tokenizer_dir: Path | None = None
    device_name: str | None = None
    precision: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"--{name.replace('_', '-')} {value}: pass 1 or more")
        check_precision(self.precision)
        if self.fp16 and self.precision != "fp32":
            raise DataError(f"--fp16 with --precision {self.precision}: pass only one of them")
        if self.device_name is not None:
            try:
                torch.empty(0, device=self.device_name)
            except (RuntimeError, AssertionError) as error:
                reason = str(error).splitlines()[0]
                raise DataError(f"device {self.device_name!r}: can't be used ({reason})") from error
        if self.fp16 and self.device.type != "cuda":
            raise DataError("--fp16: needs a GPU, and none is used. Leave it out.")

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        if self.device_name is not None:
            return torch.device(self.device_name)
        return torch.device("cuda" if torch.cuda.is_available() and not self.cpu else "cpu")

    @property
    def half(self) -> str:
        """``fp16``, ``bf16``, or "" for fp32."""
        return "fp16" if self.fp16 else "" if self.precision == "fp32" else self.precision


def check_precision(precision: str) -> None:
    """Raises DataError if it is none of :data:`PRECISIONS`."""
    if precision not in PRECISIONS:
        raise DataError(f"--precision {precision}: pass one of {', '.join(PRECISIONS)}")


def let_autocast(model: nn.Module, precision: str) -> None:
    """Prepares a model for :func:`autocast`.

    An encoder with relu has fairseq's fused inference layers, which torch doesn't autocast.
    """
    if precision == "bf16":
        use_differentiable_layers(model)


def autocast(device: torch.device, precision: str) -> ContextManager[object]:
    """Forward passes in this context use the precision; weights stay in fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
