"""Optimizers; importing this package registers them with fairseq."""

from fairseq_adv.optim import torch_adamw

__all__ = ["torch_adamw"]
