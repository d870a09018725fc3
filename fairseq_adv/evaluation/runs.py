"""Reads the logs and checkpoints of training runs and compares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.kept import measured_once, stamp
from fairseq_adv.evaluation.log_lines import INNER, TRAIN, VALID, LogLine, log_lines
from fairseq_adv.evaluation.trained import attack_checkpoint


@dataclass
class RunLog:
    """The epochs of one run.

    Attributes:
        train: fairseq's averages over each training epoch, by name (loss, adv_ratio, ups, …).
        valid: fairseq's scores on the first validation set after each epoch.
        inner: fairseq's averages since the line before, of each line that ``--log-interval`` made.
    """

    train: list[dict[str, float]]
    valid: list[dict[str, float]]
    inner: list[dict[str, float]]

    def best(self, name: str) -> float:
        """The highest value of a validation score over the epochs."""
        return max(epoch[name] for epoch in self.valid)

    def seconds_per_update(self) -> float:
        """Mean wall time of an update over the epochs; fairseq leaves the first ten updates out."""
        return sum(1 / epoch["ups"] for epoch in self.train) / len(self.train)


def read_log(path: Path, is_validated: bool = True) -> RunLog:
    """Reads what ``fairseq-train --log-format json --log-file`` wrote.

    Args:
        path: the log.
        is_validated: a log without a validation is refused.

    Raises:
        ValueError: there is no finished epoch in it, or it is of another ``--log-format``.
        FileNotFoundError: there is no such file.
    """
    lines = log_lines(path)
    valid = [line for line in lines if line.kind == VALID]
    log = RunLog(
        _by_update(line for line in lines if line.kind == TRAIN),
        _by_update(line for line in valid if line.split == valid[0].split),
        _by_update(line for line in lines if line.kind == INNER),
    )
    if not log.train or (is_validated and not log.valid):
        raise ValueError(
            f"{path}: no finished epoch in this log; was it written by fairseq-train --log-file?"
        )
    return log


def _by_update(lines: Iterable[LogLine]) -> list[dict[str, float]]:
    """The last of several lines for an update counts."""
    return list({line.updates: line.values for line in lines}.values())


@dataclass
class Summary:
    """One row of a comparison.

    Attributes:
        name: of the run.
        score: best validation score, x 100.
        loss: of the best checkpoint on the clean split, in nats.
        perturbed_loss: the same under attack.
        perturbed_accuracy: accuracy x 100 under attack.
        seconds_per_update: wall time.
        ratio: mean ||delta||/||X|| of the last epoch; 0 for a run without perturbation.
    """

    name: str
    score: float
    loss: float
    perturbed_loss: float
    perturbed_accuracy: float
    seconds_per_update: float
    ratio: float


def summarise(folder: Path, how: Attack, metric: str = "accuracy", data: str | None = None) -> Summary:
    """Summarises a run's folder, which holds ``train.log`` and ``checkpoint_best.pt``.

    The attack's outcome is kept in ``attack.json`` beside the checkpoint and used again for the same
    attack on the same file.

    Raises:
        ValueError: the log holds no finished epoch.
        FileNotFoundError: the log or the checkpoint is missing.
    """
    log = read_log(folder / "train.log")
    means = _attack_once(folder, how, data)
    return Summary(
        name=folder.name,
        score=log.best(metric),
        loss=means["loss"],
        perturbed_loss=means["perturbed_loss"],
        perturbed_accuracy=means["perturbed_accuracy"],
        seconds_per_update=log.seconds_per_update(),
        ratio=log.train[-1].get("adv_ratio", 0.0),
    )


def _attack_once(folder: Path, how: Attack, data: str | None) -> dict[str, float]:
    checkpoint = folder / "checkpoint_best.pt"
    made_from = {"attack": asdict(how), "data": data, **stamp(checkpoint)}
    return measured_once(
        folder / "attack.json", made_from, lambda: attack_checkpoint(str(checkpoint), how, data)
    )


def table(rows: Sequence[Summary], how: Attack, metric: str = "accuracy") -> str:
    """The rows as a table for a terminal, with a line that says what was measured."""
    width = max(len("method"), *(len(row.name) for row in rows))
    head = f"{'method':{width}}  {'dev ' + metric:>14}  {'dev loss':>9}  {'perturbed':>9}  {'s/update':>8}"
    lines = [head, "-" * len(head)]
    for row in rows:
        lines.append(
            f"{row.name:{width}}  {row.score:14.2f}  {row.loss:9.3f}  {row.perturbed_loss:9.3f}  "
            f"{row.seconds_per_update:8.2f}"
        )
    lines.append(
        f"Losses in nats, of the best checkpoint; perturbed: after {how.steps} ascent steps within epsilon "
        f"{how.epsilon:g}."
    )
    return "\n".join(lines)
