"""Tasks read data sets and make mini-batches. Importing this package registers every task with fairseq."""

from fairseq_adv.tasks import (
    arc_retrieval,
    commonsense_qa,
    qnli_ranking,
    scheduled_masked_lm,
    span_qa,
    tagging,
    text_classification,
    wsc,
)

__all__ = [
    "arc_retrieval", "commonsense_qa", "qnli_ranking", "scheduled_masked_lm", "span_qa",
    "tagging", "text_classification", "wsc",
]  # fmt: skip
