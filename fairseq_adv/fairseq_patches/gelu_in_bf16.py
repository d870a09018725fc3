"""Computes GELU in bf16 on CPUs without copies in fp32.

fairseq/modules/gelu.py, line 24, ``gelu``: it casts its input to fp32 and its output back. torch's own kernel
for bf16 on CPUs computes in fp32 within and rounds once, so all results and gradients that are not denormal
(below 1.2e-38) are the same; it takes half of the time, with the backward pass, and no copies are kept for
it. Other types and devices are as before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from fairseq import modules
from torch import Tensor

from fairseq_adv.fairseq_patches.replace import replace


def compute_gelu_in_bf16() -> None:
    """Applies the patch, for models that are built later."""
    replace(modules, "gelu", _without_copies)


def _without_copies(plain: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def gelu(x: Tensor) -> Tensor:
        if x.dtype == torch.bfloat16 and x.device.type == "cpu":
            return F.gelu(x)
        return plain(x)

    return gelu
