"""Training without perturbation: the baseline of every table.

For ``sentence_prediction`` and ``masked_lm`` losses are bitwise identical to those of fairseq's own
criterions, and gradients but for the rounding of :mod:`fairseq_adv.models.lean_layers`.
"""

from __future__ import annotations

from fairseq.criterions import register_criterion

from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig


@register_criterion("standard", dataclass=MethodConfig)
class StandardCriterion(Method):
    """Training without perturbation, with this project's metrics and checks."""

    has_graphs = True
