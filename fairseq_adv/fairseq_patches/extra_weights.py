"""Weights that are not the model's own: copies for inference, a criterion's, and the moving average."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from fairseq.models.ema import EMA
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_adv.fairseq_patches.optimizer import HAS_COPY, pieces
from fairseq_adv.fairseq_patches.replace import Plain, replace

logger = logging.getLogger(__name__)

COPIES = (
    "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias", "fc1_weight", "fc1_bias",
    "fc2_weight", "fc2_bias",
)  # fmt: skip


def leave_out_inference_copies() -> None:
    """Leaves the weights that fairseq's layers keep only for inference out of checkpoints.

    fairseq/modules/transformer_layer.py, line 75: an encoder layer has copies of its weights in the layout of
    torch's fused inference. They are made when a checkpoint is loaded, whether or not the file has them
    (``_load_from_state_dict``), and training doesn't use them. So what a checkpoint holds in them depends on
    when the run last loaded one: the files of a restarted and an uninterrupted run differed.

    A criterion asks for this with ``freezes_inference_copies = True``; for all others nothing changes.
    """
    replace(Trainer, "state_dict", _leave_out)


def freeze_inference_copies(model: nn.Module) -> None:
    """Freezes these copies, before the trainer wraps the model and builds the optimizer.

    They are trainable although training doesn't update them: in RoBERTa-large 302M parameters in addition to
    355M, each with an fp32 copy and two moments of Adam, and zeros for them in every all-reduce of
    ``legacy_ddp``.
    """
    for copy in inference_copies(model):
        copy.requires_grad_(False)


def _leave_out(plain: Plain, self: Trainer) -> dict[str, Any]:
    state: dict[str, Any] = plain(self)
    if getattr(self.get_criterion(), "freezes_inference_copies", False):
        extra = state["extra_state"]
        for part, key in ((state, "model"), (extra, "ema"), (extra, "ema_fp32_params")):
            if key in part:
                weights = part[key]
                part[key] = {n: w for n, w in weights.items() if not is_inference_copy(n, weights)}
    return state


def is_inference_copy(name: str, weights: Mapping[str, Any]) -> bool:
    """Whether a tensor of a model's ``state_dict`` is such a copy."""
    layer, _, copy = name.rpartition(".")
    return copy in COPIES and f"{layer}.self_attn.q_proj.weight" in weights


def is_of_version_0_2_0(state: Mapping[str, Any]) -> bool:
    """Whether a checkpoint's contents, from a criterion of ours, were written by version 0.2.0.

    Later ones don't contain the copies.
    """
    return any(is_inference_copy(name, state["model"]) for name in state["model"])


def inference_copies(model: nn.Module) -> Iterator[nn.Parameter]:
    """The copies in all layers of ``model``; none if the model is sharded (``fully_sharded``)."""
    for module in model.modules():
        if isinstance(module, TransformerEncoderLayerBase):
            for name in COPIES:
                copy = module._parameters.get(name)
                if copy is not None:
                    yield copy


def copies_and_sources(weights: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each such copy in a model's ``state_dict``, or a third of it, and the weight that it repeats."""
    for name, copy in weights.items():
        if is_inference_copy(name, weights):
            layer, _, kind = name.rpartition(".")
            part, _, leaf = kind.rpartition("_")
            sources = {"in_proj": ["q_proj", "k_proj", "v_proj"], "out_proj": ["out_proj"]}.get(part)
            sources = [part] if sources is None else [f"self_attn.{source}" for source in sources]
            yield from zip(
                copy.chunk(len(sources)), (weights[f"{layer}.{source}.{leaf}"] for source in sources)
            )


def average_tied_weights_once() -> None:
    """Averages a tied weight once per update, and keeps the average's interval over a restart.

    fairseq/models/ema/ema.py, line 135: the average (``--store-ema``) is updated name by name and in place.
    The word embeddings and the tied output matrix are two names of one tensor, which therefore decayed by
    beta^2. Line 106: ``--ema-update-freq`` counts from the start of the process. A criterion asks for this
    with ``averages_tied_weights_once = True``; for all others nothing changes.

    The average is computed with torch's operations on lists of tensors, in a few operations instead of one
    for each tensor; its values are the same.
    """
    replace(Trainer, "_build_ema", _build_ema)


def _build_ema(plain: Plain, self: Trainer) -> None:
    plain(self)
    if self._ema is not None and getattr(self.get_criterion(), "averages_tied_weights_once", False):
        self._ema.restore(dict(_average(self._ema)))  # as fairseq does after each step
        self._ema._step_internal = partial(_step, self._ema)
        self._ema.step = partial(_step_on_time, self._ema, self._ema.step)


def _step_on_time(ema: EMA, plain: Plain, model: nn.Module, updates: int) -> None:
    ema.update_freq_counter = (updates - 1) % ema.config.ema_update_freq
    plain(model, updates)


@torch.no_grad()
def _step(ema: EMA, model: nn.Module, updates: int | None = None) -> None:
    """``EMA._step_internal``, with each tensor once and without the copies, which ``_restore`` makes."""
    average, weights = _average(ema), model.state_dict()
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for name, weight in weights.items():
        if "version" not in name and not is_inference_copy(name, weights):
            found.setdefault(average[name].data_ptr(), (average[name], weight))
    values = [value for value, _ in found.values()]
    torch._foreach_mul_(values, ema.decay)
    torch._foreach_add_(
        values, _of_type(values, [weight for _, weight in found.values()]), alpha=1 - ema.decay
    )
    _restore(ema, average)


def _average(ema: EMA) -> dict[str, Tensor]:
    average: dict[str, Tensor] = ema.fp32_params if ema.config.ema_fp32 else ema.model.state_dict()
    return average


def _of_type(values: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """The weights in the type of the first value."""
    if all(value.dtype == weight.dtype for value, weight in zip(values, weights)):
        return weights
    if not HAS_COPY:
        return [weight.to(value.dtype) for value, weight in zip(values, weights)]
    flat = values[0].new_empty(sum(weight.numel() for weight in weights))
    parts = pieces(flat, weights)
    torch._foreach_copy_(parts, weights)
    return parts


def _restore(ema: EMA, average: dict[str, Tensor]) -> None:
    """``EMA.restore`` for an average of this model."""
    if not HAS_COPY:
        ema.restore(dict(average))  # loading a state may add names to it
        return
    weights: dict[str, Tensor] = ema.model.state_dict()
    kept = {
        weight.data_ptr(): (weight, average[name])
        for name, weight in weights.items()
        if name in average and not is_inference_copy(name, weights)
    }
    for pairs in (list(kept.values()), list(copies_and_sources(weights))):
        changed = [(target, source) for target, source in pairs if target.data_ptr() != source.data_ptr()]
        if changed:
            torch._foreach_copy_([target for target, _ in changed], [source for _, source in changed])


def tell_of_earlier_averages(state: dict[str, Any], trainer: Trainer) -> None:
    """Logs what changes for a run whose checkpoint is of version 0.2.0."""
    ema, weights = trainer.cfg.ema, trainer.get_model().state_dict()
    if not ema.store_ema or "ema" not in (state.get("extra_state") or {}) or not is_of_version_0_2_0(state):
        return
    first: dict[int, str] = {}
    tied = [
        f"{name} = {first[weight.data_ptr()]}"
        for name, weight in weights.items()
        if first.setdefault(weight.data_ptr(), name) != name
    ]
    are_apart = ema.ema_fp32 and any(w.dtype in (torch.float16, torch.bfloat16) for w in weights.values())
    if tied and not are_apart:
        logger.warning(
            "The checkpoint is of version 0.2.0: until now the average of tied weights "
            f"({', '.join(tied)}) decayed twice per update, by the square of --ema-decay. From here on it "
            "decays once, as the others do."
        )
