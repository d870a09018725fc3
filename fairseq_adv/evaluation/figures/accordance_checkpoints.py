"""Measures the gradient accordance of saved checkpoints, for a run that did not measure it itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_adv.evaluation.figures.accordance_curve import Curve, Measurement
from fairseq_adv.evaluation.figures.gaussian_noise import mean_loss
from fairseq_adv.evaluation.kept import file_for, measured_once, stamp
from fairseq_adv.evaluation.trained import load
from fairseq_adv.flooding_x import AccordanceProbe

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Probing:
    """How checkpoints are measured.

    Attributes:
        data: data folder; ``None``: the one in the checkpoint.
        batches: N, number of probe mini-batches.
        batch_size: examples per probe mini-batch.
        seed: for drawing the probe batches, and for dropout.
        dropout: measure with dropout.
        split: split to draw the probe batches from.
        valid_split: split whose mean loss is the dev loss.
    """

    data: str | None = None
    batches: int = 10
    batch_size: int = 32
    seed: int = 1
    dropout: bool = False
    split: str = "train"
    valid_split: str = "valid"


def probe_checkpoints(
    checkpoints: Sequence[Path], how: Probing, kept: Path, name: str, cpu: bool = False
) -> Curve:
    """The accordance of each checkpoint against its number of updates.

    Args:
        checkpoints: of one run. Of two with the same number of updates the first is used.
        how: the measurement.
        kept: folder for results; a stored result for the same file and settings is reused.
        name: of the run.
        cpu: don't use a GPU.

    Raises:
        ValueError: a checkpoint's objective has no classes, a split is missing or too small.
        FileNotFoundError: there is no such checkpoint.
    """
    found: dict[int, tuple[Path, dict[str, float]]] = {}
    for path in checkpoints:
        made_from = {"accordance": asdict(how), "checkpoint": str(path.resolve()), **stamp(path)}
        values = measured_once(
            file_for(kept, made_from),
            made_from,
            lambda path=path: _measure(path, how, cpu),  # type: ignore[misc]
        )
        update = int(values["update"])
        if update in found:
            logger.warning("%s: left out, because %s also has %d updates", path, found[update][0], update)
        else:
            found[update] = (path, values)
    ordered = [found[update][1] for update in sorted(found)]
    return Curve(
        name=name,
        measurements=[_measurement(values) for values in ordered],
        dev_loss=[(int(values["update"]), values["dev_loss"]) for values in ordered],
        train_loss_of="mean of the probe batches",
    )


def _measure(path: Path, how: Probing, cpu: bool) -> dict[str, float]:
    trained = load(str(path), how.data, [how.split, how.valid_split], cpu)
    probe = AccordanceProbe(
        trained.objective, trained.task, how.split, batches=how.batches, batch_size=how.batch_size,
        seed=how.seed, dropout=how.dropout, max_positions=trained.longest, options="--",
    )  # fmt: skip
    measured = probe.measure(trained.model)
    samples = trained.batches(how.valid_split, how.batch_size, doing=f"{path.name}, {how.valid_split}")
    return {
        "update": trained.updates,
        "train_loss": measured.loss,
        "dev_loss": mean_loss(trained.model, trained.objective, samples),
        **{f"cosine_{group}": value for group, value in measured.cosine.items()},
    }


def _measurement(values: dict[str, float]) -> Measurement:
    return Measurement(
        update=int(values["update"]),
        train_loss=values["train_loss"],
        cosine={key[len("cosine_") :]: value for key, value in values.items() if key.startswith("cosine_")},
    )
