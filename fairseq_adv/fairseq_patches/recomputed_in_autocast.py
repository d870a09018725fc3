"""Re-computes activations in the precision in which they were computed.

fairseq/modules/checkpoint_activations.py, line 217, ``CheckpointFunction.backward``: with
``--checkpoint-activations`` backward computes a layer a second time, but outside the autocast of ``--amp``:
in fp32, slowly, and for the gradient of another forward pass. Without autocast nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules.checkpoint_activations import CheckpointFunction

from fairseq_adv.fairseq_patches.replace import replace


def recompute_in_autocast() -> None:
    """Applies the patch."""
    replace(CheckpointFunction, "forward", _recomputing_as_computed)


def _recomputing_as_computed(plain: Callable[..., Any]) -> Callable[..., Any]:
    def forward(ctx: Any, run_function: Callable[..., Any], *rest: Any) -> Any:
        gpu, cpu = _autocast_states()

        def run(*args: Any, **options: Any) -> Any:
            with torch.autocast(*gpu), torch.autocast(*cpu):
                return run_function(*args, **options)

        return plain(ctx, run, *rest)

    return forward


def _autocast_states() -> list[tuple[str, torch.dtype, bool]]:
    """Device, type and whether autocast is on, for GPUs and CPUs."""
    kinds = ("cuda", "cpu")
    try:
        return [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds]
    except (AttributeError, TypeError):  # torch 2.3 and earlier
        return [
            ("cuda", torch.get_autocast_gpu_dtype(), torch.is_autocast_enabled()),
            ("cpu", torch.get_autocast_cpu_dtype(), torch.is_autocast_cpu_enabled()),
        ]
