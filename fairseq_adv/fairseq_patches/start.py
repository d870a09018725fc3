"""What a command does before its first update, without work that nothing needs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from omegaconf.base import Node
from torch.optim import Optimizer

from fairseq_adv.fairseq_patches.replace import Original


def copy_alone(original: Original, config: Any, memo: dict[int, Any]) -> Any:
    """Copies a configuration, but not the one that it is a part of; ``DictConfig.__deepcopy__``.

    OmegaConf 2.0.6 (dictconfig.py, line 90; listconfig.py, line 106; nodes.py, line 75) copies each part's
    parent with it, and so the whole configuration for each option, which takes half of the time in which
    hydra composes one. The copy keeps the parent, as from OmegaConf 2.1 on.
    """
    copied = object.__new__(type(config))
    copy_value(original, config, copied, memo)
    copied._re_parent()
    return copied


def copy_value(original: Original, node: Node, copied: Node, memo: dict[int, Any]) -> None:
    """Copies a single option likewise; ``ValueNode._deepcopy_impl``."""
    for name, value in vars(node).items():
        vars(copied)[name] = value if name == "_parent" else deepcopy(value, memo)


def leave_the_compiler_out() -> None:
    """fairseq's optimizers don't import ``torch._dynamo``, which takes 1.3 s of a core.

    torch/_compile.py imports it when one of these methods is first called, to keep torch.compile from
    compiling the method. ``--compile`` compiles layers, not optimizers. torch's own AdamW imports it anyway.
    """
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        method = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if method is not None:
            method.__dynamo_disable = method
