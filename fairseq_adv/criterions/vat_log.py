"""What virtual adversarial training logs, as means over examples."""

from __future__ import annotations

import math
from typing import Any

from fairseq.logging import metrics

VAT_LOG = (
    "task_loss", "vat_divergence", "vat_divergence_start", "vat_divergence_zero", "vat_norm_inf",
    "vat_norm_l2", "vat_cosine", "vat_skipped",
)  # fmt: skip
VAT_COUNTS = ("nexamples", "vat_zero_size")  # nexamples is 0 in an update of plain training


def reduce_vat_metrics(logging_outputs: list[dict[str, Any]]) -> None:
    """Logs the parts of the loss, in bits, and the size and direction of delta.

    ``loss`` = ``task_loss`` + alpha * ``vat_divergence`` (+ mu * ``smart_proximal``).
    """

    def total(key: str) -> Any:
        return sum(log.get(key, 0) for log in logging_outputs)

    def logged(key: str) -> bool:
        return any(key in log for log in logging_outputs)

    examples = total("nexamples")
    for key, size_key in (
        ("task_loss", "sample_size"),
        ("vat_divergence", "sample_size"),
        ("vat_divergence_start", "sample_size"),
        ("vat_divergence_zero", "vat_zero_size"),
        ("smart_proximal", "sample_size"),
    ):
        size = total(size_key)
        if logged(key) and size and (examples or key == "task_loss"):
            metrics.log_scalar(key, total(key) / size / math.log(2), size, round=_ROUND.get(key, 9))
    for key in ("vat_norm_inf", "vat_norm_l2", "vat_cosine"):
        if logged(key) and examples:
            metrics.log_scalar(key, total(key) / examples, examples, round=9 if "norm" in key else 4)
    if logged("vat_skipped") and examples:
        metrics.log_scalar_sum("vat_skipped", total("vat_skipped"))


# A divergence at the paper's epsilon is of the order of 1e-9.
_ROUND = {"task_loss": 3, "vat_divergence": 12, "vat_divergence_start": 12, "vat_divergence_zero": 12}
