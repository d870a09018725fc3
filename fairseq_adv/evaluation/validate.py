"""A checkpoint's scores on a split, as fairseq-validate measures them, with losses in nats."""

from __future__ import annotations

import math

from fairseq.logging import metrics

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.trained import load

# Logged by fairseq and the criterions in bits: log2(e) times the training loss.
IN_BITS = ("loss", "nll_loss", "task_loss")


def validate(
    path: str, data: str | None = None, split: str = "valid", batch_size: int = 32, cpu: bool = False,
    precision: str = "fp32",
) -> dict[str, float]:  # fmt: skip
    """The scores of a checkpoint with the criterion that it was trained with, and the number of examples.

    Args:
        path: the checkpoint.
        data: data folder; ``None``: the one in the checkpoint.
        split: a labelled split.
        batch_size: examples per mini-batch.
        cpu: don't use a GPU.
        precision: to compute in, ``fp32`` or ``bf16``.

    Returns:
        ``examples``, and the values that the criterion logs: losses in nats, scores such as accuracy x 100.

    Raises:
        DataError: the split has no examples.
        DataError: the checkpoint's task has no registered objective, or the split is missing.
        FileNotFoundError: there is no such checkpoint.
    """
    trained = load(path, data, [split], cpu, precision)
    criterion = trained.task.build_criterion(trained.cfg.criterion)
    trained.model.eval()
    criterion.eval()
    with trained.autocast():
        logs = [
            trained.task.valid_step(sample, trained.model, criterion)[2]
            for sample in trained.batches(split, batch_size, doing=f"validating {split}")
        ]
    if not logs:
        raise DataError(f"{data or trained.cfg.task.data}: the split {split!r} has no examples")
    examples = sum(log["nsentences"] for log in logs)
    with metrics.aggregate(new_root=True) as found:
        trained.task.reduce_metrics(logs, criterion)
    scores = {name: float(value) for name, value in found.get_smoothed_values().items()}
    scores.update({name: scores[name] * math.log(2) for name in IN_BITS if name in scores})
    return {"examples": examples, **{n: v for n, v in scores.items() if n not in ("wps", "wpb", "bsz")}}
