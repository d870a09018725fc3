"""What ALUM and SMART measure only in order to log it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import Passes, Perturbation
from fairseq_adv.perturbation.algorithms import Ascent
from fairseq_adv.perturbation.passes import frozen_parameters
from fairseq_adv.perturbation.steps import cosine


def ascent_log(delta: Perturbation, ascent: Ascent) -> Log:
    """How far delta moved, and along what.

    Args:
        delta: after the last step.
        ascent: what moved it.
    """
    inf, l2 = delta.norm("linf"), delta.norm("l2")
    return {
        "vat_divergence_start": ascent.divergences[0],
        "vat_norm_inf": inf.sum(),
        "vat_norm_l2": l2.sum(),
        "adv_ratio": delta.relative_norm().sum(),
        "vat_cosine": cosine(delta.value(), ascent.gradient, delta.groups).sum(),
        "vat_skipped": 1 - ascent.usable.long(),
        "nexamples": inf.numel(),
    }


def dropout_log(batch: MiniBatch, passes: Passes, divergence: Callable[[Tensor], Tensor]) -> Log:
    """The divergence that dropout alone causes: another forward pass, without delta.

    It is 0 if the masks are shared. The run's random state is restored, and the model's buffers, which
    spectral normalisation changes in each pass, so that logging changes nothing.
    """
    kept = [(buffer, buffer.clone()) for buffer in batch.model.buffers()]
    devices = [batch.device] if batch.device.type == "cuda" else []
    # Frozen, because autocast would otherwise cache weights that were cast without a graph.
    with (
        torch.random.fork_rng(devices=devices),
        torch.no_grad(),
        frozen_parameters(passes.weights),
        passes.replay,
    ):
        measured = divergence(batch.objective.predict(batch.model, batch.sample))
        for buffer, before in kept:
            buffer.data.copy_(before)  # autograd need not know: backward passes find what was there before
    size = batch.objective.sample_size(batch.sample)
    return {"vat_divergence_zero": measured, "vat_zero_size": size}
