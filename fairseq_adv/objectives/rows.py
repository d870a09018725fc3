"""Makes a mini-batch of some rows of another one, and counts labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_adv.objectives.base import Sample


def select_rows(sample: Sample, chosen: Tensor) -> Sample | None:
    """The chosen sentences, without columns that contain only padding; ``None`` if none is chosen.

    Args:
        sample: a batch of fairseq's ``sentence_prediction``. Every tensor has one row per sentence; tensors
            of ``net_input`` with columns have one per token, padded on the right.
        chosen: (sentences,) bool.
    """
    rows = chosen.nonzero().view(-1)
    if not len(rows):
        return None
    lengths = sample["net_input"]["src_lengths"].index_select(0, rows)
    longest = int(lengths.max())

    def select(values: Sample) -> Sample:
        return {n: v.index_select(0, rows) if isinstance(v, Tensor) else v for n, v in values.items()}

    inputs: dict[str, Any] = select(sample["net_input"])
    inputs = {name: value[:, :longest] if value.dim() > 1 else value for name, value in inputs.items()}
    counts = {"nsentences": len(rows), "ntokens": int(lengths.sum())}
    return {**select(sample), "net_input": inputs, **counts}


def count_labels(labels: Tensor, classes: int) -> Tensor:
    """The count of each class; unlike ``bincount``, this does not wait for the GPU."""
    return (labels.unsqueeze(1) == torch.arange(classes, device=labels.device)).sum(dim=0)
