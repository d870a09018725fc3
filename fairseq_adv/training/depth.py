"""``--layer-lr-decay`` and ``--freeze``: learning rates that fall with depth, and parts that are not trained.

The depth of a weight is 0 in the embeddings, 1 to L in the encoder's layers, and L + 1 in the head. A weight
of depth d learns at ``--lr`` times decay^(L + 1 - d).
"""

from __future__ import annotations

import logging
import re
from itertools import groupby

from fairseq.optim import lr_scheduler
from fairseq.trainer import Trainer
from torch import nn

from fairseq_adv.data.errors import DataError, as_data_error
from fairseq_adv.perturbation.embeddings import find_token_embedding, parts_of
from fairseq_adv.perturbation.first_layer import find_layers

logger = logging.getLogger(__name__)

EMBEDDINGS = "embeddings"
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
# In an encoder, but after its layers: BERT's pooler, and the last layer norm by its names.
_BEHIND = re.compile(r"\.(pooler|layer_norm|final_layer_norm|final_norm|norm)\.")


class Depths:
    """The depth of a model's weights.

    Args:
        model: not wrapped for several workers.
        option: what needs them, for messages.

    Attributes:
        layers: L.

    Raises:
        DataError: the model's layers can't be found, or share weights (ALBERT).
    """

    def __init__(self, model: nn.Module, option: str) -> None:
        with as_data_error():
            embedding, parts = find_token_embedding(model), parts_of(model)
        try:
            layers = find_layers(model)
        except ValueError:
            layers = []
        self.layers = len(layers)
        if not layers or len(set(map(id, layers))) < len(layers):
            why = "share their weights" if layers else "are no list that runs from first to last"
            raise DataError(
                f"{option}: the layers of this encoder {why}. Leave it out, or pass another encoder"
            )
        if parts is not None:
            encoder = parts.encoder
        else:
            encoder = next(m for m in model.modules() if any(one is embedding for one in m.children()))
        self._of: dict[int, int] = {}
        for name, weight in encoder.named_parameters():
            is_behind = _BEHIND.search(f".{name}") and "embed" not in name
            self._of[id(weight)] = self.layers + 1 if is_behind else 0
        for number, layer in enumerate(layers, 1):
            self._of.update((id(weight), number) for weight in layer.parameters())

    def of(self, weight: nn.Parameter) -> int:
        """Returns the depth of a weight: 0 in the embeddings, L + 1 outside of the encoder."""
        return self._of.get(id(weight), self.layers + 1)


def freeze(model: nn.Module, text: str) -> None:
    """Stops the training of parts of a model: their weights get no gradient.

    Args:
        text: of ``--freeze``.

    Raises:
        DataError: a part is unknown, or see :class:`Depths`.
    """
    depths = Depths(model, f"--freeze {text:.40}")
    chosen, last_one = set[int](), depths.layers - 1
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        first, last = (-1, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
        if part != EMBEDDINGS and not 0 <= first <= last < depths.layers:
            raise DataError(
                f"--freeze {text:.40}: {part!r:.20} is neither {EMBEDDINGS} nor a layer. Pass parts such as "
                f"{EMBEDDINGS},0-{min(3, last_one)}; this encoder has layers 0 to {last_one}"
            )
        chosen.update(range(first + 1, last + 2))
    if 0 in chosen and any(hasattr(module, "precheckpoint_forward") for module in model.modules()):
        raise DataError(  # fairseq/modules/checkpoint_activations.py: a layer's input has to have a gradient
            f"--freeze {text:.40} with activation checkpointing (checkpoint_activations): fairseq trains "
            f"no layer. Leave one of them out, or {EMBEDDINGS} out of --freeze"
        )
    weights = list(model.parameters())
    frozen = [weight for weight in weights if depths.of(weight) in chosen]
    for weight in frozen:
        weight.requires_grad_(False)
    counts = [sum(weight.numel() for weight in some) for some in (frozen, weights)]
    logger.info("--freeze %s: %d of %d numbers in weights are not trained", text, *counts)


def set_rates_by_depth(trainer: Trainer, decay: float) -> None:
    """Gives the optimizer a parameter group for each depth, and its schedule the groups' rates.

    The groups are runs of the weights in their order, so a weight keeps its place in the optimizer's state.

    Raises:
        DataError: the optimizer doesn't have a weight for each of the model's, or see :class:`Depths`.
    """
    outer, cfg = trainer._optimizer, trainer.cfg
    optimizer = getattr(outer, "fp32_optimizer", getattr(outer, "wrapped_optimizer", outer))
    depths = Depths(trainer._model, f"--layer-lr-decay {decay:g}")
    trained = [
        w for part in (trainer._model, trainer._criterion) for w in part.parameters() if w.requires_grad
    ]
    is_sharded = cfg.distributed_training.zero_sharding == "os" or cfg.optimization.use_bmuf
    if is_sharded or [len(group["params"]) for group in optimizer.param_groups] != [len(trained)]:
        raise DataError(
            f"--layer-lr-decay {decay:g}: the optimizer has to hold each weight by itself. With --fp16 also "
            "pass --fp16-no-flatten-grads, or --amp instead; leave out --ddp-backend fully_sharded, "
            "--zero-sharding os, --use-bmuf and --optimizer composite"
        )
    (whole,) = optimizer.param_groups
    runs = [
        (decay ** (depths.layers + 1 - depth), [weight for _, weight in pairs])
        for depth, pairs in groupby(zip(map(depths.of, trained), whole["params"]), lambda pair: pair[0])
    ]
    scales = [scale for scale, _ in runs]
    head = scales.index(max(scales))
    options = {key: value for key, value in whole.items() if key != "params"}
    optimizer.param_groups.clear()
    for _, run in runs:
        optimizer.optimizer.add_param_group({**options, "params": run})

    def set_rate(lr: float) -> None:
        for group, scale in zip(optimizer.param_groups, scales):
            group["lr"] = lr * scale

    optimizer.set_lr = set_rate
    optimizer.get_lr = lambda: optimizer.param_groups[head]["lr"]
    # Again: reduce_lr_on_plateau has counted the groups.
    trainer._lr_scheduler = lr_scheduler.build_lr_scheduler(cfg.lr_scheduler, trainer._optimizer)
    trainer._lr_scheduler.step_update(0)
