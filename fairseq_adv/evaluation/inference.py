"""How a trained model is run: mini-batches, device, precision (fp32 as it was saved, or bf16 autocast)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fairseq_adv.data.errors import DataError


@dataclass(frozen=True)
class InferenceConfig:
    """How a model is run.

    Attributes:
        batch_size: most examples per mini-batch; ``None``: as ``max_tokens`` allows.
        max_tokens: maximum number of tokens per mini-batch, padding included; ``None``: as ``batch_size``
            allows, or without one 16384, on a CPU 1024.
        cpu: don't use a GPU.
        fp16: compute in half precision; needs a GPU.
        tokenizer_dir: instead of the one in the checkpoint.
        device_name: such as "cuda:1"; ``None``: a GPU if there is one and ``cpu`` is false.
        precision: ``fp32`` or ``bf16``; scores are fp32 numbers in both.

    Raises:
        DataError: two precisions or an unknown one, or fp16 without a GPU.
    """

    batch_size: int | None = None
    max_tokens: int | None = None
    cpu: bool = False
    fp16: bool = False
    tokenizer_dir: Path | None = None
    device_name: str | None = None
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.precision not in (("fp32",) if self.fp16 else ("fp32", "bf16")):
            raise DataError(f"--precision {self.precision}: pass fp32 or bf16, and not both bf16 and --fp16")
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


@contextmanager
def memory_error_named(fix: str) -> Iterator[None]:
    """Turns a GPU's lack of memory in the block into a DataError.

    Args:
        fix: which option to change, as a sentence without its full stop.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise DataError(f"the GPU is out of memory. {fix}.") from error
