"""The only connection between fairseq's trainer and a method."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_adv.criterions import diverged
from fairseq_adv.criterions.flood import Flood, check_flood_options
from fairseq_adv.criterions.logs import Log, Logged, Scored, complete, on_host, reduce_logs
from fairseq_adv.criterions.method_options import MethodConfig, check_options, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch, ModelParts
from fairseq_adv.criterions.ratio import is_useful
from fairseq_adv.criterions.renamed import tell
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.rows_dataset import check_validation_tokens
from fairseq_adv.fairseq_patches.checkpoint_files import let_criterions_read_checkpoints
from fairseq_adv.fairseq_patches.data_loading import (
    count_long_rows_whole,
    load_the_shard_of_the_epoch,
    seed_one_thread_at_a_time,
    skip_the_remainder_of_a_resumed_epoch,
)
from fairseq_adv.fairseq_patches.extra_weights import (
    average_tied_weights_once,
    freeze_inference_copies,
    leave_out_inference_copies,
    tell_of_earlier_averages,
)
from fairseq_adv.fairseq_patches.failed_updates import log_zeros_after_out_of_memory, stop_when_not_finite
from fairseq_adv.fairseq_patches.gpu_waits import spare_gpu_waits
from fairseq_adv.fairseq_patches.mixed_precision import fast_products
from fairseq_adv.fairseq_patches.optimizer import handle_gradients_together
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv.fairseq_patches.training_loop import let_criterions_begin_runs, remark_in_the_last_line
from fairseq_adv.fairseq_patches.workers import end_no_sync_after_an_error
from fairseq_adv.objectives import build_objective
from fairseq_adv.objectives.base import Sample, refuse_pruning_options
from fairseq_adv.objectives.parallel import workers
from fairseq_adv.perturbation import DropoutReplay
from fairseq_adv.tasks.tokenizer_task import TokenizerTask
from fairseq_adv.training.compiled_layers import check_compile, compile_layers
from fairseq_adv.training.data_digest import digests_of
from fairseq_adv.training.first_head import prepare_head, tell_of_head
from fairseq_adv.training.kept_layers import kept_layers, number_as_before
from fairseq_adv.training.precision_option import PrecisionOption, allow_tf32, refuse_fp16_without_gpu
from fairseq_adv.training.restart import DATA, RECORD, check_restart, follow_precision, use_new_options

logger = logging.getLogger(__name__)
StepOutput = tuple[Tensor, int, Log]  # loss, sample size, logging output, as in fairseq
FIRST_UPDATE = "first_update"  # its losses, in a checkpoint's extra_state


class Method(FairseqCriterion):
    """A training method: a function of a mini-batch, :meth:`step`, that trains on the task's objective.

    Methods such as FreeLB make several backward passes per update; ``FairseqTask.train_step`` makes one.
    :meth:`train_step` therefore replaces that method on the task instance, in this class for all methods.
    :meth:`forward` is the unperturbed objective, which validation uses.

    Args:
        cfg: the options; each subclass has its own dataclass.
        task: the task; its training step is replaced by this method's.

    Attributes:
        logs: what the method logs in addition to the loss.
        sizes: the options that set the size of the perturbation, and the weight of its term in the loss.
        train_sizes: the sizes that ``fairseq-adv train`` passes if the user passes none.
        train_lr: the learning rate that it passes with a small encoder; with larger ones 5e-5.
        train_options: further options that it passes, each unless the user does.
        dropout_option: the option that shares dropout masks, or with a name that begins with "no" doesn't.
        update_logs: the logs of the last update's mini-batches; with several workers, their sum.
        has_single_backward: whether a mini-batch's gradient is that of a single loss, passed to
            :meth:`MiniBatch.descend`.
        makes_one_pass: whether the model reads a mini-batch once, in a ``step`` of the method's own.
        freezes_parameters: whether some passes compute the gradient of delta only.
        freezes_inference_copies: see :mod:`fairseq_adv.fairseq_patches.extra_weights`.
        averages_tied_weights_once: see :mod:`fairseq_adv.fairseq_patches.extra_weights`.
        keeps_host_copies: see :mod:`fairseq_adv.fairseq_patches.gpu_waits`.
        handles_gradients_together: see :mod:`fairseq_adv.fairseq_patches.optimizer`.
        flood: flooding, an option of every method; ``None``: nothing is flooded or measured.
        precision: see :mod:`fairseq_adv.training.precision_option`.

    Raises:
        DataError: an option is out of range, no objective is registered for the task, or the task has its
            own training step.
    """

    cfg: MethodConfig
    logs: tuple[Logged, ...] = ()
    sizes: tuple[str, ...] = ()
    train_sizes: str = ""
    train_lr: str = ""
    train_options: str = ""
    dropout_option: str = ""
    has_single_backward = True
    makes_one_pass = False
    freezes_parameters = False
    freezes_inference_copies = True
    averages_tied_weights_once = True
    keeps_host_copies = True
    handles_gradients_together = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "descends_once" in vars(cls):
            tell("descends_once", "has_single_backward")
            cls.has_single_backward = vars(cls)["descends_once"]

    def __init__(self, cfg: MethodConfig, task: FairseqTask) -> None:
        own = {field.name for field in fields(MethodConfig)} | self.own_options()
        check_options(cfg, getattr(self, "__dataclass"), own)
        check_flood_options(cfg, self.has_single_backward)
        check_compile(cfg)
        if self.freezes_parameters and str(cfg.ddp_backend) == "fully_sharded":
            raise DataError(
                f"--ddp-backend fully_sharded with --criterion {cfg._name}: some of its passes freeze the "
                "weights, which is untested with flat shards; pass --ddp-backend legacy_ddp or pytorch_ddp"
            )
        if str(cfg.ddp_backend) == "fully_sharded":
            logger.warning(
                f"--ddp-backend fully_sharded is untested with --criterion {cfg._name}; legacy_ddp and "
                "pytorch_ddp are tested"
            )
        super().__init__(task)
        self.cfg = cfg
        self.objective = build_objective(cfg, task)
        self.precision = PrecisionOption(cfg.precision)
        floods = cfg.flood_level is not None or cfg.accordance_interval
        self.flood = Flood(cfg, task, self.objective) if floods else None
        self._checked_data = False
        self._last_log: Log | None = None
        self.update_logs: list[Log] = []
        self._update = -1
        self._is_useful = True
        self._kept: dict[str, Any] = {}
        self._data: dict[str, Any] = {}
        self._head_told = ""
        self._parts: list[ModelParts] = []
        self.shares_dropout = not self.dropout_option or self._has_shared_dropout()
        self._bind(task)
        let_criterions_begin_runs()
        leave_out_inference_copies()
        average_tied_weights_once()
        spare_gpu_waits()
        handle_gradients_together()
        let_criterions_read_checkpoints()
        remark_in_the_last_line()
        stop_when_not_finite()
        end_no_sync_after_an_error()
        log_zeros_after_out_of_memory()
        seed_one_thread_at_a_time()
        count_long_rows_whole()
        load_the_shard_of_the_epoch()
        skip_the_remainder_of_a_resumed_epoch()

    def step(self, batch: MiniBatch) -> Log:
        """The method: accumulates the gradient of one mini-batch. The default is standard training.

        Returns:
            the log of the mini-batch, from :meth:`log`.
        """
        return self.plain_step(batch)

    def plain_step(self, batch: MiniBatch) -> Log:
        """One forward and one backward pass, as in ``FairseqTask.train_step``."""
        predictions, loss = batch.forward()
        log = self.log(predictions, loss, batch.sample)
        batch.descend(loss)
        return log

    @property
    def size_option(self) -> str:
        """The option that makes the perturbation larger or smaller; "": there is none."""
        return self.sizes[-1] if self.sizes else ""

    @property
    def start_update(self) -> int:
        """The number of standard updates before the method starts."""
        return 0

    @classmethod
    def own_options(cls) -> set[str]:
        """The options that this method, or its family, has and others have not."""
        there = fields(getattr(cls, "__dataclass"))
        own = {field.name for field in there if not str(field.default).startswith("${")}  # that are fairseq's
        return own - {field.name for field in fields(MethodConfig)}

    @classmethod
    def updates_per_batch(cls, options: Mapping[str, str]) -> int:
        """How many updates a mini-batch gives; ``options`` are those of the command line, by name."""
        return 1

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> StepOutput:
        """The unperturbed objective, which validation and ``fairseq-validate`` use."""
        predictions = self.objective.predict(model, sample)
        loss = self.objective.loss(predictions, sample)
        log = self._sizes(loss, sample)
        log.update(self.objective.logging_output(predictions, sample, gather=True))
        return loss, log["sample_size"], log

    def train_step(
        self, sample: Sample, model: nn.Module, criterion: FairseqCriterion, optimizer: Any, update_num: int,
        ignore_grad: bool = False, ema_model: nn.Module | None = None,
    ) -> StepOutput:  # fmt: skip
        """Replaces ``FairseqTask.train_step``, with the same arguments and result."""
        model.train()
        model.set_num_updates(update_num)  # type: ignore[operator]
        if self.flood is not None:
            self.flood.begin(model, optimizer)
        parts, average = self._parts_of(model), None if ema_model is None else self._parts_of(ema_model)
        batch = MiniBatch(
            self.objective, sample, parts, optimizer, update_num, ignore_grad, average, self.flood
        )  # fmt: skip
        step = self.plain_step if update_num < self.start_update else self.step
        with fast_products(optimizer, next(model.parameters())):
            log = step(batch)
        if self.flood is not None:
            self.flood.add(log, ignore_grad)
        if update_num != self._update:
            self._update, self.update_logs = update_num, []
        self.update_logs.append(log)
        self._last_log = log
        return log["loss"], log["sample_size"], log

    def replay(self, batch: MiniBatch) -> DropoutReplay:
        """A context manager for every pass of the mini-batch: repeats the dropout masks of the first, unless
        :attr:`dropout_option` says otherwise.
        """
        return batch.replay(self.shares_dropout)

    def scores(self, predictions: Tensor, sample: Sample) -> Log:
        """The scores (accuracy, …) of a pass, for :meth:`log`: smaller than the predictions."""
        return self.objective.logging_output(predictions.detach(), sample, gather=False)

    def log(self, predictions: Scored, loss: Tensor, sample: Sample, **measured: Any) -> Log:
        """The log of one training step.

        Args:
            predictions: those of the first pass, or their :meth:`scores`, if other passes followed.
            loss: the loss that the update descends on, summed over the batch, in nats.
            sample: the batch.
            measured: the numbers that :attr:`logs` declares, and their counts.
        """
        scores = predictions if isinstance(predictions, dict) else self.scores(predictions, sample)
        return complete({**self._sizes(loss, sample), **scores}, self.logs, measured)

    def zeros(self) -> Log | None:
        """The last log, as a template for a log of zeros; ``None`` before the first mini-batch."""
        return self._last_log

    def reason_not_finite(self, trainer: Trainer, is_scale: bool) -> str:
        """See :func:`fairseq_adv.criterions.diverged.reason_not_finite`."""
        names = [number.name for number in self.logs if number.per == "sample_size"]
        return diverged.reason_not_finite(trainer, self.update_logs, names, self.sizes, is_scale)

    def remark(self, trainer: Trainer, meters: MetersDict) -> str:
        """See :func:`fairseq_adv.criterions.diverged.above_the_start`; ``meters`` are the last epoch's."""
        return diverged.above_the_start(
            meters, self.objective.constant_loss(meters), self._kept.get(FIRST_UPDATE) or {}, trainer.cfg
        )

    def begin_run(self, cfg: Any, model: nn.Module) -> None:
        """Called before the trainer is built, with the run's configuration.

        Raises:
            DataError: an option has a number that it can't have, the checkpoint to start from does not exist,
                or the task can't join splits.
        """
        check_run(cfg)  # of a program that calls the trainer itself; fairseq-train has done it
        _check_start(cfg.checkpoint)
        if cfg.dataset.combine_valid_subsets and isinstance(self.task, TokenizerTask):
            raise DataError(
                "--combine-valid-subsets: only binarised splits can be joined. Name those to validate on: "
                "--valid-subset valid,valid1"
            )
        check_validation_tokens(self.task.datasets, cfg.dataset)
        self._data = digests_of(self.task, cfg.dataset)
        self.precision.begin(cfg.common)
        if self.freezes_inference_copies:
            freeze_inference_copies(model)

    def begin_optimizer(self, trainer: Trainer) -> None:
        """Called on every worker before the optimizer is built, after a checkpoint has been read."""
        self.precision.decide(trainer)

    def read_checkpoint(self, state: dict[str, Any], trainer: Trainer, reset_optimizer: bool) -> None:
        """Changes a checkpoint's state after ``trainer`` has read it and before it is used.

        Args:
            state: the checkpoint's contents; changed in place.
            trainer: fairseq's trainer.
            reset_optimizer: a new run starts (``--finetune-from-model``, ``--reset-optimizer``). Otherwise
                the checkpoint's run resumes, which may have used version 0.2 of this project.

        Raises:
            DataError: options, data (see :mod:`fairseq_adv.training.restart`) or the order of the classes
                (:mod:`fairseq_adv.training.first_head`) have changed, or there is ``--fp16`` without a GPU.
        """
        refuse_fp16_without_gpu(trainer)  # before fairseq loads the state of an optimizer
        number_as_before(state, trainer)
        self._head_told = prepare_head(state, trainer, reset_optimizer)
        if reset_optimizer:
            # --stop-time-hours counts from now on.
            for name in (RECORD, FIRST_UPDATE, "previous_training_time"):
                (state.get("extra_state") or {}).pop(name, None)
        else:
            follow_precision(state, trainer, self.precision)
            check_restart(state, trainer, self.cfg.allow_changed_options, self._data)
            tell_of_earlier_averages(state, trainer)
        if trainer.cfg.ema.store_ema:
            _begin_average(state, trainer, reset_optimizer)

    def has_read_checkpoint(
        self, extra: dict[str, Any] | None, trainer: Trainer, overrides: dict[str, Any] | None
    ) -> None:
        """Called on every worker when ``trainer`` has loaded a checkpoint.

        Args:
            extra: the checkpoint's ``extra_state``; ``None`` if there was no checkpoint.
            trainer: fairseq's trainer.
            overrides: ``--optimizer-overrides``.

        Raises:
            DataError: ``--fp16`` without a GPU.
        """
        refuse_fp16_without_gpu(trainer)
        allow_tf32(trainer)
        use_new_options(extra, trainer, overrides)
        tell_of_head(trainer, None if extra is None else self._head_told)
        kinds, there = {RECORD: list, FIRST_UPDATE: dict}, extra or {}
        self._kept = {key: there[key] for key, kind in kinds.items() if isinstance(there.get(key), kind)}

    def extra_state(self) -> dict[str, Any]:
        """What is added to a checkpoint's ``extra_state``."""
        return {**self._kept, DATA: self._data}

    def check_before_training(self, model: nn.Module) -> None:
        """Raises DataError if something would make the run pointless, or its updates wrong; called before
        the first update of each epoch."""
        if "fairseq_adv.plugin" not in sys.modules:
            raise DataError(
                f"--criterion {self.cfg._name}: fairseq_adv.plugin, which adapts fairseq's training, is not "
                "imported. Import it in the __init__.py of your --user-dir, or in your program"
            )
        if not self._checked_data:  # only once: fairseq itself reports what later shards lack
            self.objective.check_data()
            self._checked_data = True
        self.objective.check_model(model)
        refuse_pruning_options(model)
        _refuse_checkpointing_under_torchs_ddp(str(self.cfg.ddp_backend), model)
        if type(self).step is not Method.step and not self.makes_one_pass:
            _refuse_quant_noise(str(self.cfg._name), model)

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
        """Replaces methods of the task; except for ``train_step``, the replacements call the originals."""
        if type(task).train_step is not FairseqTask.train_step:
            raise DataError(
                f"{type(task).__name__} has its own training step, which --criterion {self.cfg._name} "
                "would replace. Choose another --task or another --criterion."
            )
        task.train_step = self.train_step
        task.begin_epoch = partial(self._begin_epoch, task.begin_epoch)
        task.reduce_metrics = partial(self._reduce_metrics, task.reduce_metrics)
        if self.flood is not None:
            task.optimizer_step = partial(self.flood.optimizer_step, task.optimizer_step)

    def _parts_of(self, model: nn.Module) -> ModelParts:
        found = next((parts for parts in self._parts if parts.model is model), None)
        if found is None:
            if self.cfg.compile:
                compile_layers(model)
            found = ModelParts(model)
            self._parts = [*self._parts[-1:], found]  # keeps those of the model and its average
        return found

    def _begin_epoch(self, begin_epoch: Any, epoch: int, model: nn.Module) -> None:
        self.check_before_training(model)
        begin_epoch(epoch, model)
        if self.flood is not None:
            self.flood.begin_epoch(epoch, model)

    def _reduce_metrics(self, reduce_metrics: Any, logging_outputs: list[Log], criterion: Any) -> None:
        """Logs the objective's metrics too: fairseq reduces logs with a class method of the criterion, which
        has no access to the objective."""
        logging_outputs = on_host(logging_outputs)
        reduce_metrics(logging_outputs, criterion)
        if self.training and self._update == 0:
            with metrics.aggregate(new_root=True) as found:
                reduce_logs(logging_outputs, self.logs)
            self._kept = {**self._kept, FIRST_UPDATE: diverged.losses_of(found)}
        if sum(log.get("sample_size", 0) for log in logging_outputs):
            self.objective.reduce_metrics(logging_outputs)
            if self.flood is not None:
                self.flood.reduce_metrics(logging_outputs)
        self._is_useful = self._is_useful and is_useful(self, logging_outputs)

    def _sizes(self, loss: Tensor, sample: Sample) -> Log:
        return {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": self.objective.sample_size(sample),
        }


def _check_start(saving: Any) -> None:
    option, path = "--restore-file", saving.restore_file
    if path == "checkpoint_last.pt":
        has_begun = os.path.isfile(os.path.join(saving.save_dir, path))
        option, path = "--continue-once", None if has_begun else saving.continue_once
    if path and "://" not in path and not os.path.isfile(path):
        raise DataError(
            f"{option} {path}: no such file. fairseq would train from random weights; pass the path of the "
            "pre-trained checkpoint, or leave the option out to train from scratch."
        )


def _begin_average(state: dict[str, Any], trainer: Trainer, new_run: bool) -> None:
    """A new run's average starts from the run's initial weights, not from an earlier run's average.

    fairseq 0.12.2 intends this for checkpoints without an average too, but by then it has deleted the
    weights (fairseq/trainer.py, lines 572 and 649), and fails with ``KeyError: 'model'``.
    """
    extra = state.get("extra_state")
    if isinstance(extra, dict) and (new_run or "ema" not in extra):
        extra["ema"] = kept_layers(state["model"], trainer)  # the trainer deletes the other key only
        extra.pop("ema_fp32_params", None)


def _refuse_quant_noise(criterion: str, model: nn.Module) -> None:
    """fairseq/modules/quant_noise.py, line 104: the noise of a pass stays in the weights."""
    if getattr(getattr(model, "args", None), "quant_noise_pq", 0):
        raise DataError(
            f"--quant-noise-pq with --criterion {criterion}: fairseq changes the weights in each pass, so "
            "that the passes of an update would differ. Leave it out, or pass --criterion standard"
        )


def _refuse_checkpointing_under_torchs_ddp(backend: str, model: nn.Module) -> None:
    """Two limitations of fairseq 0.12.2 conflict. With activation checkpointing each weight may be used in
    only one backward pass. The unused copies in fairseq's layers require DDP's search for unused weights,
    which mistakes checkpointed weights for unused ones.
    """
    recomputed = any(hasattr(module, "precheckpoint_forward") for module in model.modules())
    if workers() > 1 and recomputed and backend in ("pytorch_ddp", "c10d"):
        raise DataError(
            f"--ddp-backend {backend} can't train this encoder with activation checkpointing "
            "(checkpoint_activations) in fairseq 0.12.2: pass --ddp-backend legacy_ddp"
        )
