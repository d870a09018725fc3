"""The only connection between the trainer and a method."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any, Optional, cast

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_adv.accordance.preserve_state import preserve_random_state
from fairseq_adv.criterions import diverged
from fairseq_adv.criterions.flood import Flood, check_flood_options
from fairseq_adv.criterions.logs import Log, Logged, complete, on_host, reduce_logs
from fairseq_adv.criterions.method_options import MethodConfig, PlainOptions, check_options, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch, ModelParts
from fairseq_adv.criterions.ratio import is_useful
from fairseq_adv.criterions.step_graphs import StepGraphs
from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.mixed_precision import fast_products, loss_scale
from fairseq_adv.objectives import build_objective
from fairseq_adv.objectives.base import Sample, refuse_pruning_options
from fairseq_adv.objectives.class_loss import class_loss_of
from fairseq_adv.objectives.gathered import workers
from fairseq_adv.perturbation import Passes, Perturbation
from fairseq_adv.perturbation.precision import warn_of_rounding

logger = logging.getLogger(__name__)
StepOutput = tuple[Tensor, int, Log]  # loss, sample size, logging output, as in fairseq
UpdateLog = Optional[dict[str, Any]]  # of Trainer.train_step; None: no update was made


class Method(FairseqCriterion):
    """A training method: a function of a mini-batch, :meth:`step`, that trains on the task's objective.

    Methods such as FreeLB make several backward passes per update; ``FairseqTask.train_step`` makes one.
    :meth:`train_step` therefore replaces that method on the task instance, in this class for all methods. The
    trainer, :class:`fairseq_adv.training.trainer.AdversarialTrainer`, calls the others.
    :meth:`forward` is the unperturbed objective, which validation uses.

    Args:
        cfg: the options; each subclass has its own dataclass.
        task: the task; its training step is replaced by this method's.

    Attributes:
        logs: what the method logs in addition to the loss.
        sizes: the options that set the size of the perturbation, and the weight of its term in the loss.
        suggested_options: the sizes that ``fairseq-adv train`` passes if the user passes none.
        small_encoder_lr: the learning rate that it passes with a small encoder; with larger ones 5e-5.
        further_options: further options that it passes, each unless the user does.
        dropout_option: the option that shares dropout masks, or with a name that begins with "no" doesn't.
        shares_dropout: whether the passes of a mini-batch have the same dropout masks; set by that option.
        update_logs: the logs of the last update's mini-batches; with several workers, their sum.
        has_single_backward: whether a mini-batch's gradient is that of a single loss, passed to
            :meth:`MiniBatch.descend`.
        makes_one_pass: whether the model reads a mini-batch once, in a ``step`` of the method's own.
        has_further_backwards: whether backward passes compute another gradient before it: that of delta, or
            of an ascent on the weights.
        no_checkpointing: why it can't train an encoder with activation checkpointing; "": it can.
        no_bf16: why ``--precision auto`` doesn't train it with weights in bf16; "": it does.
        uses_average: whether training steps get the average of the weights, ``--store-ema``.
        has_graphs: whether ``--cuda-graphs`` captures the method's step; not inherited.
        flood: flooding, an option of every method; ``None``: nothing is flooded or measured.
        first_losses: the losses of the run's first update in nats, also after a restart.

    Raises:
        DataError: an option is out of range, no objective is registered for the task, the task has its own
            training step, or ``--ddp-backend`` reduces gradients in each of several backward passes.
    """

    cfg: MethodConfig
    logs: tuple[Logged, ...] = ()
    sizes: tuple[str, ...] = ()
    suggested_options: str = ""
    small_encoder_lr: str = ""
    further_options: str = ""
    dropout_option: str = ""
    shares_dropout = True
    has_single_backward = True
    makes_one_pass = False
    has_further_backwards = False
    uses_average = False
    has_graphs = False
    no_checkpointing: str = ""
    no_bf16: str = ""

    def __init__(self, cfg: MethodConfig, task: FairseqTask) -> None:
        checked = {field.name for field in fields(MethodConfig)} | self.own_options()
        check_options(cfg, getattr(self, "__dataclass"), checked)
        check_flood_options(cfg, self.has_single_backward)
        if str(cfg.ddp_backend) in ("fully_sharded", "slowmo"):
            if self.has_further_backwards or not self.has_single_backward:
                raise DataError(
                    f"--ddp-backend {cfg.ddp_backend} with --criterion {cfg._name}: it would reduce "
                    "gradients in each of an update's backward passes; pass --ddp-backend legacy_ddp or "
                    "pytorch_ddp"
                )
            logger.warning(
                f"--ddp-backend {cfg.ddp_backend} is untested with --criterion {cfg._name}; legacy_ddp and "
                "pytorch_ddp are tested"
            )
        super().__init__(task)
        self.objective = build_objective(cfg, task)
        names, count = self.objective.class_names(), self.objective.class_counts
        self.objective.class_loss = class_loss_of(cfg, names, count)
        self.cfg = cast(MethodConfig, PlainOptions(cfg)) if isinstance(cfg, DictConfig) else cfg
        floods = cfg.flood_level is not None or cfg.accordance_interval
        self.flood = Flood(cfg, task, self.objective) if floods else None
        self._graphs = StepGraphs(self) if cfg.cuda_graphs else None
        self._checked_data = False
        self._last_log: Log | None = None
        self.update_logs: list[Log] = []
        self._update = -1
        self._is_useful = True
        self.first_losses: dict[str, Any] = {}
        self._has_begun = False
        self._parts: list[ModelParts] = []
        if self.dropout_option:
            self.shares_dropout = self._has_shared_dropout()
        self._bind(task)

    def step(self, batch: MiniBatch) -> Log:
        """The method: accumulates the gradient of one mini-batch. The default is standard training.

        Returns:
            the log of the mini-batch, from :meth:`log`.
        """
        return self.standard_step(batch)

    def standard_step(self, batch: MiniBatch) -> Log:
        """One forward and one backward pass, as in ``FairseqTask.train_step``."""
        loss = batch.loss()
        log = self.log(batch, loss)
        batch.descend(loss)
        return log

    @property
    def rounding_advice(self) -> str:
        """What half precision may round away if no layer norm follows the embeddings, and what to do about
        it; "": nothing."""
        return ""

    @property
    def norm_option(self) -> str:
        """The option that makes the perturbation larger or smaller; "": there is none."""
        return self.sizes[-1] if self.sizes else ""

    @property
    def start_update(self) -> int:
        """The number of standard updates before the method starts."""
        return 0

    @classmethod
    def own_options(cls) -> set[str]:
        """The options that this method, or its family, has and others have not."""
        declared = fields(getattr(cls, "__dataclass"))
        names = {
            field.name for field in declared if not str(field.default).startswith("${")
        }  # that are fairseq's
        return names - {field.name for field in fields(MethodConfig)}

    @classmethod
    def updates_per_batch(cls, options: Mapping[str, str]) -> int:
        """How many updates a mini-batch gives; ``options`` are those of the command line, by name."""
        return 1

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> StepOutput:
        """The unperturbed objective, which validation and ``fairseq-validate`` use."""
        predictions = self.objective.predict(model, sample)
        loss = self.objective.loss(predictions, sample)
        log = self.sizes_of_batch(loss, sample)
        log.update(self.objective.logging_output(predictions, sample, gather=True))
        return loss, log["sample_size"], log

    def train(self, mode: bool = True) -> Method:
        """Changes the mode, as each update begins by doing.

        Raises:
            DataError: the trainer is not ours. In an update, fairseq would save a crash.pt first.
        """
        if mode and not self._has_begun:
            raise DataError(
                f"--criterion {self.cfg._name} in fairseq's own trainer: import fairseq_adv.plugin in the "
                "__init__.py of your --user-dir, or in your program, before fairseq.trainer.Trainer is "
                "imported or made a subclass of"
            )
        super().train(mode)
        return self

    def train_step(
        self, sample: Sample, model: nn.Module, criterion: FairseqCriterion, optimizer: Any, update_num: int,
        ignore_grad: bool = False, ema_model: nn.Module | None = None,
    ) -> StepOutput:  # fmt: skip
        """Replaces ``FairseqTask.train_step``, with the same arguments and result."""
        parts, average = self._parts_of(model), None if ema_model is None else self._parts_of(ema_model)
        model.train()
        if parts.notes_updates:
            model.set_num_updates(update_num)  # type: ignore[operator]
        if self.flood is not None:
            self.flood.begin(model, optimizer)
        batch = MiniBatch(
            self.objective, sample, parts, optimizer, update_num, ignore_grad, average, self.flood
        )  # fmt: skip
        step = self.standard_step if update_num < self.start_update else self.step
        # The masks of a worker's own mini-batches must not depend on the shape of a dummy before them.
        weight = next(model.parameters())
        draws = preserve_random_state(weight.device) if ignore_grad else nullcontext()
        with fast_products(optimizer, weight), draws:
            log = step(batch) if self._graphs is None else self._graphs.run(step, batch)
        self._last_log = dict(log)  # the trainer puts the host's numbers in the other
        if ignore_grad:
            log = {name: torch.zeros_like(one) if isinstance(one, Tensor) else 0 for name, one in log.items()}
        elif self.flood is not None:
            self.flood.add(log)
        if update_num != self._update:
            self._update, self.update_logs = update_num, []
        self.update_logs.append(log)
        return log["loss"], log["sample_size"], log

    def passes(
        self, batch: MiniBatch, delta: Perturbation | None = None, forward: Callable[[], Tensor] | None = None
    ) -> Passes:
        """The passes of a mini-batch.

        Args:
            batch: the mini-batch.
            delta: its perturbation; ``None``: there is none.
            forward: makes one pass; :meth:`MiniBatch.loss` if it isn't given.
        """
        return Passes(
            batch.model, forward or batch.loss, delta,
            backward=batch.backward, weights=batch.parts.weights, replay=batch.replay(self.shares_dropout),
            scale=partial(loss_scale, batch.optimizer),
        )  # fmt: skip

    def log(self, batch: MiniBatch, loss: Tensor, **measured: Any) -> Log:
        """The log of one training step, with the scores (accuracy, …) of the first pass.

        Args:
            batch: the mini-batch.
            loss: the loss that the update descends on, summed over the batch, in nats.
            measured: the numbers that :attr:`logs` declares, and their counts.
        """
        return complete({**self.sizes_of_batch(loss, batch.sample), **batch.scores}, self.logs, measured)

    def sizes_of_batch(self, loss: Tensor, sample: Sample) -> Log:
        """What the log of every mini-batch begins with."""
        return {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": self.objective.sample_size(sample),
        }

    def is_repeatable(self, batch: MiniBatch) -> bool:
        """Whether the step of this mini-batch launches what that of any other of its shape does."""
        return True

    def zeros(self) -> Log | None:
        """The last log, as a template for a log of zeros; ``None`` before the first mini-batch."""
        return self._last_log

    def reason_not_finite(self, trainer: Trainer, is_scale: bool) -> str:
        """See :func:`fairseq_adv.criterions.diverged.reason_not_finite`."""
        names = [number.name for number in self.logs if number.per == "sample_size"]
        return diverged.reason_not_finite(trainer, self.update_logs, names, self.sizes, is_scale)

    def remark(self, trainer: Trainer, meters: MetersDict) -> str:
        """See :func:`fairseq_adv.criterions.diverged.above_the_start`; ``meters`` are the last epoch's."""
        constant = self.objective.constant_loss(meters)
        level = 0.0 if self.flood is None else self.flood.level.value
        return diverged.above_the_start(meters, constant, self.first_losses, trainer.cfg, level)

    def begin_run(self, cfg: Any, model: nn.Module) -> None:
        """Called before :class:`fairseq_adv.training.trainer.AdversarialTrainer` is built, with the run's
        configuration, which checkpoints keep."""
        self._has_begun = True
        cfg.criterion.class_weights = self.cfg.class_weights  # the numbers, if they are balanced

    def replay_group(
        self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], UpdateLog]
    ) -> UpdateLog:
        """Trains on a group of mini-batches, those of ``--update-freq``.

        Args:
            update: makes an update of fairseq's trainer on ``samples``, with all that belongs to it
                (all-reduce, loss scale, clipping, recovery, logs), and returns its log.
        """
        return update()

    def begin_epoch(self, epoch: int, model: nn.Module) -> None:
        """Called before the first update of each epoch."""
        self.check_before_training(model)
        if self.flood is not None:
            self.flood.begin_epoch(epoch, model)

    def before_step(self, trainer: Trainer) -> None:
        """Called when the gradient of an update is complete, before the optimizer's step."""
        if self.flood is not None:
            self.flood.before_step(trainer.optimizer, trainer.model)

    def after_step(self, trainer: Trainer) -> None:
        """Called after the optimizer's step, unless an overflow has prevented it; the update is counted."""
        if self.flood is not None:
            self.flood.after_step(trainer.optimizer, trainer.model, trainer.get_num_updates())

    def check_before_training(self, model: nn.Module) -> None:
        """Raises DataError if something would make the run pointless, or its updates wrong; called before
        the first update of each epoch."""
        if not self._checked_data:  # only once: fairseq itself reports what later shards lack
            self.objective.check_data()
            if self.rounding_advice:
                warn_of_rounding(model, self.rounding_advice)
            self._checked_data = True
        self.objective.check_model(model)
        refuse_pruning_options(model)
        name = str(self.cfg._name)
        _refuse_checkpointing(name, self.no_checkpointing, str(self.cfg.ddp_backend), model)
        if type(self).step is not Method.step and not self.makes_one_pass:
            _refuse_quant_noise(name, model)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every logging output is a sum, or a vector that can be summed."""
        return True

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[Log]) -> None:
        """Logs the loss in bits, as fairseq does, and the numbers that the method declares."""
        reduce_logs(logging_outputs, cls.logs)

    def _has_shared_dropout(self) -> bool:
        name, value = self.dropout_option, str(getattr(self.cfg, self.dropout_option)).lower()
        if value not in ("true", "false"):
            refuse(name.replace("_", "-"), getattr(self.cfg, name), "pass true or false")
        return (value == "true") != name.startswith("no_")

    def _bind(self, task: FairseqTask) -> None:
        """Replaces the task's ``train_step``, and adds to its ``reduce_metrics``, which ``fairseq-validate``
        calls without a trainer."""
        if type(task).train_step is not FairseqTask.train_step:
            raise DataError(
                f"{type(task).__name__} has its own training step, which --criterion {self.cfg._name} "
                "would replace. Choose another --task or another --criterion."
            )
        task.train_step = self.train_step
        task.reduce_metrics = partial(self._reduce_metrics, task.reduce_metrics)

    def _parts_of(self, model: nn.Module) -> ModelParts:
        parts = next((known for known in self._parts if known.model is model), None)
        if parts is None:
            parts = ModelParts(model)
            self._parts = [*self._parts[-1:], parts]  # keeps those of the model and its average
        return parts

    def _reduce_metrics(self, reduce_metrics: Any, logging_outputs: list[Log], criterion: Any) -> None:
        """Logs the objective's metrics too: fairseq reduces logs with a class method of the criterion, which
        has no access to the objective."""
        logging_outputs = on_host(logging_outputs)
        reduce_metrics(logging_outputs, criterion)
        if self.training and self._update == 0:
            with metrics.aggregate(new_root=True) as meters:
                reduce_logs(logging_outputs, self.logs)
            self.first_losses = diverged.losses_of(meters)
        if sum(log.get("sample_size", 0) for log in logging_outputs):
            self.objective.reduce_metrics(logging_outputs)
            if self.flood is not None:
                self.flood.reduce_metrics(logging_outputs)
        sizes = self.norm_option, self.suggested_options, self.cfg
        self._is_useful = self._is_useful and is_useful(logging_outputs, *sizes)


def _refuse_quant_noise(criterion: str, model: nn.Module) -> None:
    """Refuses noise that stays in the weights after a pass (fairseq/modules/quant_noise.py, line 104)."""
    if getattr(getattr(model, "args", None), "quant_noise_pq", 0):
        raise DataError(
            f"--quant-noise-pq with --criterion {criterion}: fairseq changes the weights in each pass, so "
            "that the passes of an update would differ. Leave it out, or pass --criterion standard"
        )


def _refuse_checkpointing(criterion: str, reason: str, backend: str, model: nn.Module) -> None:
    """Refuses activation checkpointing if the criterion has a reason, or under torch's DDP.

    There two limitations of fairseq 0.12.2 conflict. With activation checkpointing each weight may be used in
    only one backward pass. The unused copies in fairseq's layers require DDP's search for unused weights,
    which mistakes checkpointed weights for unused ones.
    """
    if not any(hasattr(module, "precheckpoint_forward") for module in model.modules()):
        return
    if reason:
        raise DataError(
            f"--criterion {criterion} can't train an encoder with activation checkpointing, {reason}. Leave "
            "checkpoint_activations out"
        )
    if workers() > 1 and backend in ("pytorch_ddp", "c10d"):
        raise DataError(
            f"--ddp-backend {backend} can't train this encoder with activation checkpointing "
            "(checkpoint_activations) in fairseq 0.12.2: pass --ddp-backend legacy_ddp"
        )
