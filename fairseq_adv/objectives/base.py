"""The interface between methods and objectives, and which task has which objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ContextManager, TypeVar

import torch
import torch.nn.functional as F
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.objectives.class_loss import ClassLoss
from fairseq_adv.objectives.encoder_states import first_states
from fairseq_adv.perturbation import Groups
from fairseq_adv.perturbation.divergence import divergence
from fairseq_adv.perturbation.host_copies import host_copy
from fairseq_adv.tasks import task_record

Sample = dict[str, Any]  # a mini-batch as fairseq's data sets collate it


class Objective(ABC):
    """Turns a mini-batch into predictions, a loss and metrics; independent of perturbations.

    Subclasses must define :meth:`predict`, :meth:`loss` and :meth:`log_probabilities`. They may override the
    other methods if the task needs it; :meth:`logging_output` and :meth:`reduce_metrics` go together.

    Args:
        cfg: the criterion's options.
        task: its ``source_dictionary`` defines the padding token.

    Attributes:
        has_graphs: whether ``--cuda-graphs`` captures its passes; not inherited.
        no_bf16: why ``--precision auto`` trains it in fp32; "" if it may be bf16.
        class_loss: the loss with ``--class-weights`` or ``--label-smoothing``, which the method sets;
            ``None``: there is neither.
    """

    has_graphs = False
    no_bf16 = ""

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        self.cfg = cfg
        self.task = task
        self.class_loss: ClassLoss | None = None
        self.padding_idx: int = task.source_dictionary.pad()
        self._cached: tuple[list[Any], Any] = [self], None  # belongs to no mini-batch yet

    def check_model(self, model: nn.Module) -> None:  # noqa: B027 - a task may take any encoder
        """Raises DataError if ``model`` can't be trained with this objective; called before training."""

    def check_split(self, split: str, epoch: int = 1, combine: bool = False) -> None:  # noqa: B027
        """Raises DataError for files and rows with errors that fairseq would find too late, or not at all;
        called whenever the task opens a split. Most tasks check what they read themselves.

        Args:
            epoch: counted from 1; it selects the shard of a corpus.
            combine: ``SPLIT1``, ``SPLIT2``, … are read too.
        """

    def check_data(self) -> None:  # noqa: B027 - most tasks check what they read when they load it
        """Raises DataError for training data with errors that fairseq would find too late; called before
        training.
        """

    def check_metric(self, metric: str) -> None:  # noqa: B027 - what is logged is known after a validation
        """Raises DataError if validation won't log ``--best-checkpoint-metric``; called before training."""

    @abstractmethod
    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """The model's outputs for the batch, in the shape that :meth:`loss` expects."""

    @abstractmethod
    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """The loss in nats, summed over the batch: a scalar in fp32."""

    def log_probabilities(self, predictions: Tensor) -> Tensor:
        """Log-probabilities in fp32 along the last dimension, -inf for missing columns.

        (examples, columns) for classes or choices, (predictions, columns) for tags and masked words,
        (windows, 2, tokens) for spans. For a regression: its values. For several labels: (examples, labels)
        of each label by itself. For WSC: mean log-probabilities of the query (column 0) and the candidates.
        """
        return F.log_softmax(predictions, dim=-1, dtype=torch.float32)

    def batch_cache(self, sample: Sample) -> Any:
        """The result of :meth:`prepare_batch` for a mini-batch, computed once for all its passes."""
        inputs = self._inputs(sample)
        if any(one is not other for one, other in zip(self._cached[0], inputs)):
            self._cached = inputs, self.prepare_batch(sample)
        return self._cached[1]

    def prepare_batch(self, sample: Sample) -> Any:
        """What :meth:`predict` and :meth:`loss` need from a mini-batch but can't compute without waiting
        for the GPU."""
        return None

    def _inputs(self, sample: Sample) -> list[Any]:
        return [sample.get("net_input", {}).get("src_tokens"), sample.get("target"), sample.get("span")]

    def set_batch_cache(self, sample: Sample, prepared: Any) -> None:
        """From now on :meth:`batch_cache` of this mini-batch is ``prepared``."""
        self._cached = self._inputs(sample), prepared

    def use_fixed_sizes(self) -> None:  # noqa: B027 - most results have the size of the mini-batch
        """From now on the results of :meth:`prepare_batch` have one of few sizes, for CUDA graphs."""

    def fixed_key(self, sample: Sample) -> Any:
        """The sizes of the result of :meth:`prepare_batch`."""
        return None

    def fixed_batch(self, sample: Sample) -> Any:
        """A copy of :meth:`batch_cache` in tensors of its own, which CUDA graphs read."""
        return None

    def copy_batch(self, fixed: Any, sample: Sample) -> None:  # noqa: B027 - goes with fixed_batch
        """Copies the mini-batch's :meth:`batch_cache` into a result of :meth:`fixed_batch`."""

    def divergence(
        self, clean: Tensor, perturbed: Tensor, sample: Sample, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """How much two predictions for the batch differ, summed over its examples: a scalar in fp32.

        Args:
            clean: from :meth:`predict`.
            perturbed: the same, for a perturbed input.
            sample: the batch.
            kind: one of :data:`fairseq_adv.perturbation.divergence.DIVERGENCES`; a regression uses the
                squared difference instead.
            detach_targets: see :func:`fairseq_adv.perturbation.divergence.divergence`.
        """
        return self.row_divergence(clean, perturbed, kind, detach_targets).sum()

    def row_divergence(
        self, clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """:meth:`divergence` of each prediction, (predictions,) fp32."""
        return divergence(
            self.log_probabilities(clean), self.log_probabilities(perturbed), kind, detach_targets
        )

    def first_states(self, model: nn.Module) -> ContextManager[list[Tensor]]:
        """The encoder's state for each row, which CreAT compares: the last layer's output at its first token.

        Each forward pass in this context appends a tensor of shape (rows, dim) to the list.

        Raises:
            DataError: the encoder is neither one of fairseq's Transformer encoders nor one of transformers'.
        """
        return first_states(model)

    def sample_size(self, sample: Sample) -> int:
        """The divisor of the summed gradient: the number of examples, unless overridden."""
        return int(sample["nsentences"])

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        """Sums for this objective's metrics over one batch.

        Args:
            predictions: from :meth:`predict`.
            sample: the batch.
            gather: also return the individual predictions, for metrics that can't be computed from sums. As
                fairseq adds up logs over workers, return them by
                :func:`fairseq_adv.objectives.gathered.gathered`.

        Returns:
            the sums by name; in training, the names must be the same for every batch, since fairseq adds the
            sums up over workers by name.
        """
        return {}

    @staticmethod  # noqa: B027 - the loss may be enough
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs the metrics, from the sums of :meth:`logging_output`, to fairseq's meters."""

    def constant_loss(self, meters: MetersDict) -> float | None:
        """The mean loss, in nats, of the best prediction that is the same for all of an epoch's examples.

        Args:
            meters: what :meth:`reduce_metrics` has logged in this epoch.

        Returns:
            ``None`` if it is not known, which is the default.
        """
        return None

    def groups(self, sample: Sample) -> Groups | None:
        """The rows of the embedded batch that form one example; ``None``: every row is an example."""
        return None

    def set_thresholds(self, thresholds: Mapping[str, float]) -> None:
        """From now on a label is answered from this probability on, by its name.

        Raises:
            DataError: a text has one label, or none, which is the default.
        """
        raise DataError(f"{type(self.task).__name__}: thresholds are for several labels a text")

    def classes(self) -> int:
        """The number of classes, at least 2.

        Raises:
            DataError: there are none, which is the default.
        """
        raise self._without_classes("this task has none")

    def class_names(self) -> list[str]:
        """The names of the classes, in the order of the predictions' columns; empty, the default: there are
        none.
        """
        return []

    def class_counts(self) -> list[int]:
        """How many labels of the training data each of :meth:`class_names` has."""
        raise NotImplementedError

    def of_class(self, sample: Sample, index: int) -> Sample | None:
        """The batch's examples of one class, as a mini-batch; ``None`` if there are none.

        Raises:
            DataError: see :meth:`classes`.
        """
        raise self._without_classes("this task has none")

    def _without_classes(self, reason: str) -> DataError:
        return DataError(
            "gradient accordance compares the gradients of different classes (Flooding-X, eq. 11), but "
            f"{reason}: {type(self.task).__name__}, objective {type(self).__name__}."
        )

    def row_ids(self, sample: Sample) -> list[int]:
        """The id of each row of the embedded batch, in the data set's numbering."""
        ids: list[int] = sample["row_ids"] if "row_ids" in sample else host_copy(sample["id"]).tolist()
        return ids


_Class = TypeVar("_Class", bound=type[Objective])


def register_objective(task_class: type[FairseqTask]) -> Callable[[_Class], _Class]:
    """Class decorator: puts the objective into the record of a task, for it and for its subclasses without a
    record of their own.

    Raises:
        ValueError: the task already has another objective.
    """

    def register(objective_class: _Class) -> _Class:
        task_record.set_objective(task_class, objective_class)
        return objective_class

    return register


def build_objective(cfg: Any, task: FairseqTask) -> Objective:
    """The objective for ``task``, of its record. From now on, the objective checks each split before the task
    loads it.

    Args:
        cfg: the criterion's options.
        task: the fairseq task.

    Raises:
        DataError: there is no objective for this task, or the options don't match the task.
    """
    _check_token_ids(task)
    record = task_record.record_of(type(task))
    if record is None or not record.objective:
        known = ", ".join(task_record.names_with_objective())
        raise DataError(
            f"no objective for {type(task).__name__}; the adversarial criterions train {known}. Choose "
            "another --task, another --criterion, or write an objective and register it with "
            "@fairseq_adv.objectives.register_objective (CONTRIBUTING.md)."
        )
    objective: Objective = task_record.load(record.objective)(cfg, task)
    task.load_dataset = partial(_load_checked, objective, task.load_dataset)  # type: ignore[method-assign]
    return objective


def _check_token_ids(task: FairseqTask) -> None:
    """fairseq puts these ids into each row, whether or not the encoder knows them."""
    words = getattr(task, "source_dictionary", None)
    for name in ("init_token", "separator_token"):
        index = getattr(task.cfg, name, None)
        if words is not None and index is not None and not 0 <= index < len(words):
            raise DataError(
                f"--{name.replace('_', '-')} {index}: pass the id of a token, from 0 to {len(words) - 1}"
            )


def _load_checked(
    objective: Objective, load: Callable[..., Any], split: str, combine: bool = False, **options: Any
) -> Any:
    """``FairseqTask.load_dataset``."""
    objective.check_split(split, options.get("epoch", 1), combine)
    return load(split, combine=combine, **options)


def check_classification_head(model: nn.Module, name: str) -> None:
    """Raises DataError if ``model`` lacks the head."""
    heads = getattr(model, "classification_heads", None)
    if heads is None or name not in heads:
        raise DataError(
            f"the model has no classification head named {name!r} (it has: "
            f"{', '.join(heads) if heads else 'none'}). Pass an --arch with classification heads, such as "
            "roberta_base, and the same --classification-head-name for task and criterion."
        )


def check_masked_lm_head(model: nn.Module) -> None:
    """Raises DataError if ``model`` lacks a masked-LM head."""
    if not (
        hasattr(getattr(model, "encoder", None), "lm_head") or getattr(model, "has_masked_lm_head", False)
    ):
        raise DataError(
            f"{type(model).__name__} has no masked-LM head, which this task needs. Pass an "
            "--arch such as roberta_base."
        )


def refuse_pruning_options(model: nn.Module) -> None:
    """Raises DataError for regularisers that only fairseq's own criterions add to the loss."""
    args = getattr(model, "args", None)
    for option in ("mha_reg_scale_factor", "ffn_reg_scale_factor"):
        if getattr(args, option, 0.0):
            raise DataError(
                f"--{option.replace('_', '-')} has no effect with this project's criterions. Leave it out; "
                "of fairseq's criterions only sentence_prediction, for the classes of texts, uses it."
            )
