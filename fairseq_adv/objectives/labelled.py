"""Base classes for objectives of this project's own data sets, where a label or an answer may be unknown."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.data.text.rows_dataset import check_labelled
from fairseq_adv.objectives.base import Objective, Sample, check_classification_head

UNKNOWN = -1  # the target of an example without a label or an answer


class Labelled(Objective):
    """Each prediction is a softmax over its columns, one of which is correct.

    The gradient is divided by ``nlabelled``, the number of examples in a mini-batch that have a target.
    """

    def check_data(self) -> None:
        check_labelled(self.task.datasets.values())

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """Summed cross-entropy in nats; predictions without a known target (-1) don't count."""
        return F.nll_loss(
            self.log_probabilities(predictions), sample["target"], reduction="sum", ignore_index=UNKNOWN
        )

    def sample_size(self, sample: Sample) -> int:
        return int(sample["nlabelled"])


class TokenLevel(Labelled):
    """For models whose head has outputs at every token; the task adds the head."""

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.head: str = task.cfg.classification_head_name

    def check_model(self, model: nn.Module) -> None:
        check_classification_head(model, self.head)

    def at_tokens(self, model: nn.Module, sample: Sample) -> Tensor:
        """The head's outputs, (rows, tokens, outputs)."""
        outputs: Tensor
        outputs, _ = model(**sample["net_input"], features_only=True, classification_head_name=self.head)
        return outputs
