"""torch's own AdamW in one kernel, with the same update as fairseq's ``adam``.

Importing this registers it with fairseq.
"""

import inspect
import math
from typing import Any, Callable, Dict, Iterable, Optional

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import nn

from fairseq_adv.data.errors import DataError


@register_optimizer("torch_adamw", dataclass=FairseqAdamConfig)
class TorchAdamW(FairseqAdam):
    """fairseq's ``adam`` up to rounding; fused if torch supports it (CPU and CUDA).

    fairseq adds epsilon to the square root of the second moment before the bias correction, torch after it.
    So torch gets ``eps / sqrt(1 - beta2^t)`` in step t. A weight without a gradient in some steps (LayerDrop
    in one process) has a smaller t in torch; where its gradients are near eps, its updates differ.

    Raises:
        DataError: ``--fp16-adam-stats`` or ``--use-old-adam``, which only ``adam`` supports.
    """

    def __init__(self, cfg: FairseqAdamConfig, params: Iterable[nn.Parameter]) -> None:
        for option in ("fp16_adam_stats", "use_old_adam"):
            if getattr(cfg, option):
                name = option.replace("_", "-")
                raise DataError(f"--{name}: not supported by --optimizer torch_adamw; pass --optimizer adam")
        FairseqOptimizer.__init__(self, cfg)
        self._optimizer = _AdamW(params, **self.optimizer_config)

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        """Raises DataError: fairseq asks only if it needs it, and would refuse without saying what to do."""
        raise DataError(
            "--memory-efficient-fp16 and --memory-efficient-bf16: not supported by --optimizer torch_adamw; "
            "pass --optimizer adam (in a recipe: optimizer._name=adam)"
        )

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        return {**super().optimizer_config, "eps_before_correction": self.cfg.adam_eps}


class _AdamW(torch.optim.AdamW):
    """AdamW with fairseq's epsilon.

    Args:
        params: weights in fp32.
        eps_before_correction: added to the square root of the second moment before the bias correction.
        options: of torch's AdamW.
    """

    supports_flat_params = True

    def __init__(self, params: Iterable[nn.Parameter], eps_before_correction: float, **options: Any) -> None:
        super().__init__(params, **options, fused=True)
        # In the parameter groups, because these are saved in checkpoints.
        for group in self.param_groups:
            group.update(eps_before_correction=eps_before_correction, steps=0)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        for group in self.param_groups:
            group["steps"] += 1
            correction = 1 - group["betas"][1] ** group["steps"]
            group["eps"] = group["eps_before_correction"] / math.sqrt(correction)
        with torch.no_grad():  # without torch's wrapper, which imports torch._dynamo: 0.7 s of a core
            return inspect.unwrap(torch.optim.AdamW.step)(self, closure)
