"""Checks of a model's heads, made before training starts."""

from __future__ import annotations

from torch import nn

from fairseq_adv.data.errors import DataError


def check_classification_head(model: nn.Module, name: str) -> None:
    """Raises DataError if ``model`` lacks the head, or has an option that only fairseq's criterions use."""
    heads = getattr(model, "classification_heads", None)
    if heads is None or name not in heads:
        raise DataError(
            f"the model has no classification head named {name!r} (it has: "
            f"{', '.join(heads) if heads else 'none'}). Pass an --arch with classification heads, such as "
            "roberta_base, and the same --classification-head-name for task and criterion."
        )
    refuse_pruning_options(model)


def check_masked_lm_head(model: nn.Module) -> None:
    """Raises DataError if ``model`` lacks a masked-LM head, or has an option that only fairseq's criterions
    use.
    """
    if not hasattr(getattr(model, "encoder", None), "lm_head"):
        raise DataError(
            f"{type(model).__name__} has no masked-LM head, which this task needs. Pass an "
            "--arch such as roberta_base."
        )
    refuse_pruning_options(model)


def refuse_pruning_options(model: nn.Module) -> None:
    """Raises DataError for regularisers that only fairseq's own criterions add to the loss."""
    args = getattr(model, "args", None)
    for option in ("mha_reg_scale_factor", "ffn_reg_scale_factor"):
        if getattr(args, option, 0.0):
            raise DataError(
                f"--{option.replace('_', '-')} has no effect with this project's criterions. Leave it out, "
                "or pass --criterion sentence_prediction, fairseq's own, which uses it."
            )
