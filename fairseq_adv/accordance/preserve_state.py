"""Runs a probe during training without affecting it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

# ever_training: otherwise a layer of fairseq that has never trained would use its fused inference pass.
_FLAGS = ("training", "ever_training")


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restores everything afterwards, even after an error: gradients, buffers, modules' flags and random
    numbers.

    Inside, no parameter has a gradient: existing ones are set aside.

    Args:
        model: may be wrapped for distributed training. Its weights are not saved.
    """
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    flags = [
        (module, flag, module.__dict__[flag])
        for module in model.modules()
        for flag in _FLAGS
        if flag in module.__dict__
    ]
    try:
        for parameter, _ in gradients:
            parameter.grad = None
        with preserve_random_state(next(model.parameters()).device):
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for module, flag, value in flags:
            setattr(module, flag, value)


@contextmanager
def preserve_random_state(device: torch.device | None = None) -> Iterator[None]:
    """Restores the generators of Python, numpy, torch and the GPU ``device`` afterwards."""
    states = random.getstate(), np.random.get_state()
    gpus = [device] if device is not None and device.type == "cuda" else []
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Seeds every generator that may draw a dropout mask on ``device``, and no other device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
