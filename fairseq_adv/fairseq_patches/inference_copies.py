"""Freezes the weights that fairseq's layers keep only for inference, and leaves them out of checkpoints.

fairseq/modules/transformer_layer.py, line 75: an encoder layer has copies of its weights in the layout of
torch's fused inference. They are made when a checkpoint is loaded, and training doesn't use them, but they
are trainable: in RoBERTa-large 302M parameters in addition to 355M, each with an fp32 copy and two moments of
Adam, and zeros for them in every all-reduce of ``legacy_ddp``. fairseq/trainer.py, line 47: the trainer
receives the model before it wraps it for distributed training and builds the optimizer, so they are frozen
here.

Training doesn't update them, so what a checkpoint holds in them depends on when the run last loaded one: the
files of a restarted and an uninterrupted run differed. Loading makes them from the layer's weights whether or
not the file has them (transformer_layer.py, ``_load_from_state_dict``).

A criterion asks for this with ``freezes_inference_copies = True``; for all others nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_adv.fairseq_patches.replace import replace

COPIES = (
    "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias", "fc1_weight", "fc1_bias",
    "fc2_weight", "fc2_bias",
)  # fmt: skip


def freeze_inference_copies() -> None:
    """Applies the patch."""
    replace(Trainer, "__init__", _freezing)
    replace(Trainer, "state_dict", _leaving_out)


def _freezing(plain: Callable[..., Any]) -> Callable[..., Any]:
    def init(
        self: Trainer, cfg: Any, task: Any, model: nn.Module, criterion: Any, *rest: Any, **more: Any
    ) -> None:
        if getattr(criterion, "freezes_inference_copies", False):
            for copy in inference_copies(model):
                copy.requires_grad_(False)
        plain(self, cfg, task, model, criterion, *rest, **more)

    return init


def _leaving_out(plain: Callable[..., Any]) -> Callable[..., Any]:
    def state_dict(self: Trainer) -> dict[str, Any]:
        state: dict[str, Any] = plain(self)
        if getattr(self.get_criterion(), "freezes_inference_copies", False):
            extra = state["extra_state"]
            for part, key in ((state, "model"), (extra, "ema"), (extra, "ema_fp32_params")):
                if key in part:
                    weights = part[key]
                    part[key] = {n: w for n, w in weights.items() if not is_inference_copy(n, weights)}
        return state

    return state_dict


def is_inference_copy(name: str, weights: Mapping[str, Any]) -> bool:
    """Whether a tensor of a model's ``state_dict`` is such a copy.

    Args:
        name: the tensor's name in ``weights``.
        weights: the state, in which the copy's layer has its own weights too.
    """
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
