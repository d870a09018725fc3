"""Lets a criterion have weights of its own, whose sizes depend on the model.

fairseq/trainer.py, line 47: the trainer receives model and criterion before it casts and wraps them and
builds the optimizer. fairseq has no hook in which a criterion sees the model before that. A criterion that
needs one has a method ``see_model``; for all others nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from torch import nn

from fairseq_adv.fairseq_patches.replace import replace


def let_criterions_see_the_model() -> None:
    """Applies the patch."""
    replace(Trainer, "__init__", _seeing)


def _seeing(plain: Callable[..., Any]) -> Callable[..., Any]:
    def init(
        self: Trainer, cfg: Any, task: Any, model: nn.Module, criterion: Any, *rest: Any, **more: Any
    ) -> None:
        see = getattr(criterion, "see_model", None)
        if see is not None:
            see(model)
        plain(self, cfg, task, model, criterion, *rest, **more)

    return init
