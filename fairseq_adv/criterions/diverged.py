"""What a run that diverged tells its user: what was not finite, or how high its loss is, and the option that
is the likely cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from fairseq.logging.meters import MetersDict
from fairseq.trainer import Trainer
from torch import nn

from fairseq_adv.criterions.logs import Log, on_host
from fairseq_adv.data.checked_json import is_number
from fairseq_adv.objectives.scores import CLEAN


def reason_not_finite(
    trainer: Trainer, logs: Sequence[Log], named: Sequence[str], sizes: Sequence[str], is_scale: bool
) -> str:
    """Says in one or two sentences what was not finite, and what to change.

    Args:
        named: the values in ``logs`` that may be named, besides "loss".
        sizes: the options that set the size of the perturbation, and the weight of its term in the loss.
        is_scale: the loss scale of half precision has reached its minimum.
    """
    cfg, hosted = trainer.cfg, on_host(logs)
    bad = [name for name in (*named, "loss") if any(not math.isfinite(log.get(name, 0)) for log in hosted)]
    # Before --adv-start-update the numbers of a perturbation are 0, as is that of the examples that had one.
    is_perturbed = any(log.get("nexamples", 1) for log in hosted)
    clean = next((name for name in CLEAN if is_perturbed and any(name in log for log in hosted)), "loss")
    is_perturbation = bool(bad) and clean not in bad
    if is_perturbation:
        what = f"{bad[0] if bad[0] != 'loss' else 'the loss'} is not finite, but {clean} is"
    else:
        what = f"{'the loss' if bad else _of_the_gradient(trainer.model)} is not finite"
    if is_scale:
        floor = cfg.common.threshold_loss_scale or 0.0
        option = "threshold" if floor > cfg.common.min_loss_scale else "min"
        least = max(floor, cfg.common.min_loss_scale)
        what += f", even at the smallest loss scale (--{option}-loss-scale {least:g})"
    values = {name.replace("_", "-"): getattr(cfg.criterion, name) for name in sizes}
    smaller = [f"--{name} {value:g}" for name, value in values.items() if value]
    advice, is_first = [], trainer.get_num_updates() == 0
    if any(log.get("target_squares", 0) > torch.finfo(torch.float32).max for log in hosted):
        advice.append("smaller targets: the square of one is outside float32")
    elif is_perturbation or (is_first and is_perturbed and smaller):
        advice.append(f"a smaller perturbation (now {', '.join(smaller)})")
    elif is_first:
        start = cfg.checkpoint.finetune_from_model or "random ones"
        advice.append(f"other weights to start from than {start}: --lr has had no effect yet")
    else:
        advice.append(_lower_rate(cfg))
    if is_scale:
        advice.append("fp32 or --bf16 instead of fp16")
    return f"{what}. Try {', or '.join(advice)}."


def losses_of(meters: MetersDict) -> dict[str, float]:
    """The losses among fairseq's meters, which are in bits, in nats."""
    return {
        name: float(meters[name].avg) * math.log(2)
        for name in CLEAN
        if name in meters and meters[name].avg is not None  # None: no update was made
    }


def above_the_start(
    meters: MetersDict, constant: float | None, first: Mapping[str, Any], cfg: Any, flood_level: float = 0.0
) -> str:
    """Says that the training loss of an epoch is above that of a model which ignores the input; else "".

    Args:
        meters: those of the epoch, as logged: losses in bits.
        constant: the loss of the best constant prediction in nats; ``None``: not known for this task.
        first: the losses of the first update, in nats, the limit if ``constant`` is not known.
        flood_level: b in nats; 0: none.
    """
    losses = losses_of(meters)
    name = next((name for name in CLEAN if name in losses), None)
    if name is None:
        return ""
    # Before --adv-start-update, an update has the loss alone.
    loss, kept = losses[name], first.get(name, first.get("loss"))
    start = float(kept) if is_number(kept) else math.nan  # in a checkpoint, it may be anything
    limit = start if constant is None else constant
    if math.isnan(limit) or loss <= limit:
        return ""
    limit_name = "its first value" if constant is None else "that of the best constant prediction"
    unit = "" if getattr(cfg.task, "regression_target", False) else " nats"
    text = f"The training loss ended above {limit_name}: {name} is {loss:.4g}{unit}, not below {limit:.4g}"
    if flood_level >= limit:
        return f"{text}. --flood-level {flood_level:.4g} keeps it there: pass a smaller one."
    if loss < start:
        return f"{text}, but fell from {start:.4g}. Train longer, or try another --lr than {_rates(cfg)}."
    return f"{text}. Try {_lower_rate(cfg)}."


def _of_the_gradient(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name}"
    return "the norm of the gradient"


def _lower_rate(cfg: Any) -> str:
    text = f"a lower --lr than {_rates(cfg)}"
    return text if cfg.optimization.clip_norm > 0 else f"{text}, or --clip-norm 1 (now 0: no clipping)"


def _rates(cfg: Any) -> str:
    return ",".join(f"{rate:g}" for rate in cfg.optimization.lr)
