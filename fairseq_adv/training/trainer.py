"""fairseq's trainer, ours: what an update, a checkpoint and a restart do besides fairseq's.

Read it beside fairseq/trainer.py, whose order the methods have. :mod:`fairseq_adv.plugin` puts
:class:`Trainer` in the place of fairseq's, for every run. What changes an update is in
:class:`AdversarialTrainer`, which the run gets if its criterion is a :class:`Method`.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import fairseq.trainer
import torch
from fairseq import checkpoint_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.distributed import utils as distributed_utils
from fairseq.logging.meters import MetersDict
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_adv.criterions.logs import start_copy
from fairseq_adv.criterions.method import Method, UpdateLog
from fairseq_adv.criterions.method_options import PlainOptions
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.processes import own_cores
from fairseq_adv.data.text.rows_dataset import check_validation_tokens
from fairseq_adv.fairseq_patches.checkpoint_files import inference_copies, is_inference_copy
from fairseq_adv.fairseq_patches.data_loading import WholeEpochs
from fairseq_adv.fairseq_patches.gpu_waits import keep_originals
from fairseq_adv.fairseq_patches.replace import patch_loop
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv.fairseq_patches.signals import Stop
from fairseq_adv.fairseq_patches.training_loop import patience
from fairseq_adv.fairseq_patches.workers import end_all, end_together
from fairseq_adv.models.compiled_layers import check_compile, compile_layers
from fairseq_adv.models.lean_layers import use_lean_layers
from fairseq_adv.perturbation.passes import torchs_ddp
from fairseq_adv.tasks.tokenizer_task import TokenizerTask
from fairseq_adv.training import half_precision
from fairseq_adv.training.average import average_tied_weights_once
from fairseq_adv.training.data_digest import digests_of
from fairseq_adv.training.depth import freeze, set_rates_by_depth
from fairseq_adv.training.first_head import (
    kept_layers,
    number_as_before,
    prepare_head,
    starts_anew,
    tell_of_head,
)
from fairseq_adv.training.gradients import handle_together
from fairseq_adv.training.plateau import plateau_state, resume_plateau
from fairseq_adv.training.precision_option import PrecisionOption, refuse_precision, set_up_gpu
from fairseq_adv.training.restart import (
    DATA,
    FIRST_UPDATE,
    RECORD,
    check_restart,
    check_start,
    convert_position,
    follow_precision,
    forget_the_run,
    use_new_options,
)
from fairseq_adv_compat.checkpoints import Refused

logger = logging.getLogger(__name__)


def set_mode_once(model: nn.Module) -> None:
    """``model.train`` of this model does nothing if all modules are in the mode asked for.

    It takes longer than a layer, and an update calls it twice.
    """
    if "train" not in vars(model):
        model.train = partial(_train, model.train, list(model.modules()))  # type: ignore[method-assign]


def _train(original: Callable[[bool], nn.Module], modules: list[nn.Module], mode: bool = True) -> nn.Module:
    return modules[0] if all(module.training == mode for module in modules) else original(mode)


class Trainer(fairseq.trainer.Trainer):  # type: ignore[misc]
    """The trainer of every run for which the plug-in is loaded; a run's updates are fairseq's.

    Created with a criterion of ours, it is an :class:`AdversarialTrainer`, also if it is a subclass.
    """

    def __new__(cls, *args: Any, **options: Any) -> Trainer:
        criterion = options.get("criterion", args[3] if len(args) > 3 else None)
        kind: type[Trainer] = cls
        if isinstance(criterion, Method) and not issubclass(cls, AdversarialTrainer):
            kind = AdversarialTrainer if cls is Trainer else type(cls.__name__, (cls, AdversarialTrainer), {})
        trainer: Trainer = super().__new__(kind)
        return trainer

    def __init__(self, cfg: Any, task: Any, model: Any, criterion: Any, *rest: Any, **more: Any) -> None:
        super().__init__(cfg, task, model, criterion, *rest, **more)
        patch_loop()
        if self.is_data_parallel_master:
            text = "--num-workers %d: processes that load data, for each worker. Cores here: %d"
            logger.info(text, cfg.dataset.num_workers, own_cores())

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> None:
        """Also saves what ``--patience`` has counted."""
        if self.cfg.checkpoint.patience > 0:
            extra_state = {**extra_state, **patience()}
        super().save_checkpoint(filename, extra_state)

    def remark(self, meters: MetersDict) -> str:
        """Returns what the last line of the log should tell about the run; "": nothing.

        Args:
            meters: those of the last epoch.
        """
        return ""

    def _aggregate_logging_outputs(self, logging_outputs: Any, *stats: Any, ignore: bool = False) -> Any:
        """A signal to one worker reaches the others through the sums that all exchange in each update."""
        outputs, sums = super()._aggregate_logging_outputs(logging_outputs, *stats, Stop.sent, ignore=ignore)
        *sums, Stop.all_sent = sums
        return outputs, sums


class AdversarialTrainer(Trainer):
    """The trainer of a run whose criterion is a :class:`Method`.

    Attributes:
        method: the criterion.
        precision: ``--precision``.
        changes: those of options that the user agreed to, from a checkpoint to the next.

    Raises:
        DataError: an option has a value that it can't have, or is impossible with another one; the checkpoint
            to start from does not exist; or the task can't join splits.
    """

    def __init__(
        self, cfg: Any, task: Any, model: nn.Module, criterion: Method, *rest: Any, **more: Any
    ) -> None:
        check_run(cfg, is_built=True)  # of a program that calls the trainer itself; fairseq-train has done it
        check_start(cfg.checkpoint)
        if cfg.dataset.combine_valid_subsets and isinstance(task, TokenizerTask):
            raise DataError(
                "--combine-valid-subsets: only binarised splits can be joined. Name those to validate on: "
                "--valid-subset valid,valid1"
            )
        check_validation_tokens(task.datasets, cfg.dataset)
        self.method = criterion
        self._plain: PlainOptions | None = None  # the options of an update that is being made
        self._options_of_updates: PlainOptions | None = None
        self._data = digests_of(task, cfg.dataset)
        self._head_told = ""
        self.changes: list[Any] = []
        self._has_overflown = False  # in the present update
        self._overflows_at_floor = 0  # one after the other, at the least loss scale
        self.precision = PrecisionOption(criterion.cfg.precision)
        self.precision.begin(cfg.common)
        # fairseq trains these copies, although they get no gradient: in RoBERTa-large 302M parameters in
        # addition to 355M, each with an fp32 copy, two moments of Adam, and zeros in every all-reduce.
        for copy in inference_copies(model):
            copy.requires_grad_(False)
        if criterion.cfg.freeze is not None:
            freeze(model, criterion.cfg.freeze)
        criterion.begin_run(cfg, model)
        if criterion.cfg.compile:
            check_compile(criterion.cfg)
            compile_layers(model, str(criterion.cfg.compile_mode))
        else:
            use_lean_layers(model)
        super().__init__(cfg, task, model, criterion, *rest, **more)

    @property
    def cfg(self) -> Any:
        """The run's configuration; in an update, which reads it 40 times, as a plain object."""
        return self._cfg if self._plain is None else self._plain

    @cfg.setter
    def cfg(self, value: Any) -> None:
        self._cfg = value

    @contextmanager
    def _with_options(self, options: PlainOptions | None) -> Iterator[None]:
        before, self._plain = self._plain, options
        try:
            yield
        finally:
            self._plain = before

    def begin_epoch(self, epoch: int) -> None:
        self._options_of_updates = PlainOptions(self._cfg) if isinstance(self._cfg, DictConfig) else None
        super().begin_epoch(epoch)
        self.method.begin_epoch(epoch, self.get_model())

    def _set_seed(self) -> None:
        """Without a GPU, ``torch.manual_seed`` notes for one to come who called it, which takes long."""
        if self.cuda or self.tpu:
            super()._set_seed()
        else:
            torch.default_generator.manual_seed(self.cfg.common.seed + self.get_num_updates())

    def _build_ema(self) -> None:
        super()._build_ema()
        if self._ema is not None:
            average_tied_weights_once(self._ema)

    def _build_optimizer(self) -> None:
        """fairseq builds it once a checkpoint has been read."""
        self.precision.decide(self)
        super()._build_optimizer()
        if self.method.cfg.layer_lr_decay < 1:
            set_rates_by_depth(self, self.method.cfg.layer_lr_decay)
        handle_together(self._optimizer)
        set_mode_once(self.model)

    def consolidate_optimizer(self) -> None:
        """Called before a checkpoint is written; if gradients are not finite, before ``crash.pt``.

        For such a gradient (line 963), and when the loss scale of half precision has reached its minimum,
        fairseq writes that file, as large as a checkpoint, and repeats the update with its NanDetector, which
        ends in a StopIteration of torch 2. What recovers, recovers as before.
        """
        error = sys.exc_info()[1]
        if isinstance(error, FloatingPointError) and not self._differs_between_workers():
            self._stop(self.get_num_updates() + 1, is_scale="loss scale" in str(error))
        super().consolidate_optimizer()

    def _differs_between_workers(self) -> bool:
        """Whether the error is another one: finite gradients that should be the same on all workers."""
        norms = self._grad_norm_buf
        return norms is not None and bool(norms.isfinite().all() and (norms != norms[0]).any())

    def _stop(self, update: int, is_scale: bool = False) -> None:
        """Ends all workers with one line: the update, what was not finite, and the fix.

        Not with ``LOGLEVEL=DEBUG``, which asks for fairseq's own dump.
        """
        if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
            return
        log, saving = self.cfg.common.log_file, self.cfg.checkpoint
        last = os.path.join(saving.save_dir, "checkpoint_last.pt")
        reason = self.method.reason_not_finite(self, is_scale)
        text = f"update {update}: {reason} Earlier losses are in {log or 'the log above'}."
        if saving.restore_file == "checkpoint_last.pt" and os.path.isfile(last):
            text += f" {last} was written before that: the same command would resume from it."
        end_all(text, self, status=1)

    def state_dict(self) -> dict[str, Any]:
        """Leaves out fairseq's copies of weights for inference.

        What a checkpoint holds in them depends on when the run last loaded one: the files of a restarted and
        an uninterrupted run differed.
        """
        with self._with_options(None):  # also after an error in an update
            state: dict[str, Any] = super().state_dict()
        extra = state["extra_state"]
        for part, key in ((state, "model"), (extra, "ema"), (extra, "ema_fp32_params")):
            if key in part:
                weights = part[key]
                part[key] = {n: w for n, w in weights.items() if not is_inference_copy(n, weights)}
        return state

    validated_update = -1  # the one after which the last validation or checkpoint may have been due
    unseen_loss: float | None = None  # of the epoch at whose end a signal is about to end the run

    def extra_state(self) -> dict[str, Any]:
        """What is added to a checkpoint's ``extra_state`` for the next start."""
        kept = {RECORD: self.changes, FIRST_UPDATE: self.method.first_losses}
        return {
            **{key: value for key, value in kept.items() if value},
            DATA: self._data,
            **plateau_state(self),
        }

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> None:
        extra_state = {**extra_state, **half_precision.state_of(self), **self.extra_state()}
        super().save_checkpoint(filename, extra_state)

    def load_checkpoint(
        self, filename: str, reset_optimizer: bool = False, reset_lr_scheduler: bool = False,
        optimizer_overrides: dict[str, Any] | None = None, reset_meters: bool = False,
    ) -> Any:  # fmt: skip
        """Calls :meth:`_read` between fairseq's reading of the file and its loading of the model.

        Raises:
            DataError: see :meth:`_read`.
        """
        options = (reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
        with self._reading(reset_optimizer):
            extra = super().load_checkpoint(filename, *options)
        self.precision.decide(self)  # a new run; otherwise the optimizer has been built
        half_precision.go_on(self, extra, reset_optimizer)
        refuse_precision(self)
        set_up_gpu(self)
        use_new_options(extra, self, optimizer_overrides)
        if not (reset_lr_scheduler or reset_optimizer):
            resume_plateau(self, extra)
        tell_of_head(self, None if extra is None else self._head_told)
        changes, losses = ((extra or {}).get(name) for name in (RECORD, FIRST_UPDATE))
        self.changes = changes if isinstance(changes, list) else []
        self.method.first_losses = losses if isinstance(losses, dict) else {}
        return extra

    @contextmanager
    def _reading(self, reset_optimizer: bool) -> Iterator[None]:
        """In the block, :meth:`_read` changes what fairseq reads.

        Line 448: only rank 0 reads the file; the others wait for its contents. If they are refused, all
        workers end together.
        """
        load, broadcast = checkpoint_utils.load_checkpoint_to_cpu, distributed_utils.broadcast_object
        has_read = False

        def load_and_change(*args: Any, **kwargs: Any) -> dict[str, Any]:
            nonlocal has_read
            has_read, refused = True, ""
            state: dict[str, Any] = {}
            try:
                state = load(*args, **kwargs)
                self._read(state, reset_optimizer)
            except (DataError, Refused) as error:
                refused = str(error)
            end_together(refused, self)
            return state

        def wait_and_broadcast(*args: Any, **kwargs: Any) -> Any:
            nonlocal has_read
            if not has_read:
                has_read = True
                end_together("", self)
            return broadcast(*args, **kwargs)

        with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", load_and_change), \
                mock.patch.object(distributed_utils, "broadcast_object", wait_and_broadcast):  # fmt: skip
            yield

    def _read(self, state: dict[str, Any], reset_optimizer: bool) -> None:
        """Changes the contents of a checkpoint before they are used.

        Args:
            state: the contents; changed in place.
            reset_optimizer: a new run starts (``--finetune-from-model``, ``--reset-optimizer``). Otherwise
                the checkpoint's run resumes.

        Raises:
            DataError: options, data (see :mod:`fairseq_adv.training.restart`) or the order of the classes
                (:mod:`fairseq_adv.training.first_head`) have changed, or there is ``--fp16`` without a GPU.
        """
        refuse_precision(self)  # before fairseq loads the state of an optimizer
        number_as_before(state, self)
        starts = starts_anew(state, self, reset_optimizer)
        self._head_told = prepare_head(state, self, starts)
        if starts:
            forget_the_run(state, keeps_its_place=reset_optimizer)
        if reset_optimizer:
            if self.cfg.checkpoint.reset_optimizer and not self.cfg.checkpoint.reset_dataloader:
                convert_position(state, self, is_any_data=True)
        else:
            follow_precision(state, self, self.precision)
            check_restart(state, self, self.method.cfg.allow_changed_options, self._data)
        if reset_optimizer or not state.get("criterion"):  # a new run has new weights of the criterion
            state["criterion"] = self.method.state_dict()
        extra = state.get("extra_state")
        if self.cfg.ema.store_ema and isinstance(extra, dict) and (starts or "ema" not in extra):
            # A new run's average starts from its initial weights, not from an earlier run's average. fairseq
            # intends this for checkpoints without an average, too, but by then it has deleted the weights
            # (lines 572 and 649), and fails with `KeyError: 'model'`.
            extra["ema"] = kept_layers(state["model"], self)
            extra.pop("ema_fp32_params", None)

    def get_train_iterator(self, epoch: int, *rest: Any, **options: Any) -> Any:
        iterator = super().get_train_iterator(epoch, *rest, **options)
        if type(iterator) is EpochBatchIterator:
            iterator.__class__ = WholeEpochs
        return iterator

    def train_step(self, samples: Any, raise_oom: bool = False) -> UpdateLog:
        """An update, or several for a method that replays its mini-batches.

        Ends the run if the loss is not finite although the gradient is, which fairseq only logs. With
        ``--amp``, fairseq calls this method within itself to repeat an update after an overflow.
        """

        def update() -> UpdateLog:
            self._pass_average(self.method.uses_average)
            with self._with_options(self._options_of_updates):
                log = self._update(samples, raise_oom)
            if log is not None and not math.isfinite(log.get("loss", 0.0)):
                self._stop(self.get_num_updates())
            return log

        return self.method.replay_group(self, samples, update)

    def _update(self, samples: Any, raise_oom: bool) -> UpdateLog:
        """fairseq's update, with dummy mini-batches, of uneven shards, first.

        fairseq/trainer.py, line 873: if a worker's last one is a dummy, none of the worker's mini-batches
        counts, though their gradients are added up. Line 992: after an overflow a norm of 0 is created on a
        GPU, even if there is none.
        """
        samples = sorted(samples, key=bool)
        log: UpdateLog = None
        self.method.update_logs = []  # also in another attempt at an update
        # A worker that skips its pass reduces statistics while the others still reduce gradients.
        cant_recover = self.data_parallel_world_size > 1 and torchs_ddp(self.model) is not None
        try:
            log = super().train_step(samples, raise_oom or cant_recover)
        except (AssertionError, RuntimeError) as error:
            if cant_recover and "out of memory" in str(error):
                raise DataError(
                    "out of memory on one of several workers. Make the mini-batches smaller (--batch-size, "
                    "--max-tokens, --max-positions), or pass --ddp-backend legacy_ddp, which leaves out the "
                    "mini-batch"
                ) from error
            if self.cuda or not isinstance(error.__context__, OverflowError):
                raise
            self.zero_grad()
        return log

    def valid_step(self, sample: Any, raise_oom: bool = False) -> Any:
        self._pass_average(False)
        return super().valid_step(sample, raise_oom)

    def _pass_average(self, passes: bool) -> None:
        """Whether fairseq passes the average of the weights to the task's steps.

        It would do so in both, but the task's step of validation doesn't accept it.
        """
        if self.method.uses_average:
            self.task.uses_ema = passes

    def clip_grad_norm(self, clip_norm: float) -> Any:
        """The last that fairseq's update calls before the optimizer's step.

        The host has to wait for the norm; the update's logs come with it, so that reading them doesn't wait
        for the optimizer's step too.
        """
        self._has_overflown = True
        logs = self.method.update_logs
        read = start_copy(logs)
        # A norm that is on the host was moved there, after the logs and in the same stream.
        try:
            norm = super().clip_grad_norm(clip_norm).cpu()
        except OverflowError:
            self._overflows_at_floor = half_precision.at_the_floor(self.optimizer, self._overflows_at_floor)
            raise
        self._overflows_at_floor = 0
        for log, hosted in zip(logs, read()):
            log.update(hosted)
        self._has_overflown = False
        self.method.before_step(self)
        return norm

    def _reduce_and_log_stats(
        self, logging_outputs: Any, sample_size: Any, grad_norm: Tensor | None = None
    ) -> Any:
        """The first that it calls after the step; with slowmo, also after an overflow."""
        if grad_norm is not None and not self._has_overflown:  # not in validation
            self.method.after_step(self)
        return super()._reduce_and_log_stats(logging_outputs, sample_size, grad_norm)

    def remark(self, meters: MetersDict) -> str:
        return self.method.remark(self, meters)

    def _fp_convert_sample(self, sample: Any) -> Any:
        """Targets stay in fp32: fairseq would round a regression's numbers to half precision."""
        converted = super()._fp_convert_sample(sample)
        has_target = isinstance(converted, dict) and "target" in converted
        return {**converted, "target": sample["target"]} if has_target else converted

    def _prepare_sample(self, sample: Any, is_dummy: bool = False) -> tuple[Any, bool]:
        """The tensors that are moved to a GPU keep their originals on the host."""
        moved, is_without_gradient = super()._prepare_sample(sample, is_dummy)
        if isinstance(sample, dict):
            keep_originals(sample, moved)
        return moved, is_without_gradient

    def _aggregate_logging_outputs(self, logging_outputs: Any, *stats: Any, ignore: bool = False) -> Any:
        """The sums over the workers tell every worker what was not finite on one of them."""
        outputs, sums = super()._aggregate_logging_outputs(logging_outputs, *stats, ignore=ignore)
        if self.model.training:
            self.method.update_logs = outputs
        return outputs, sums

    def _fast_stat_sync_sum(
        self, logging_outputs: list[dict[str, Any]], *stats: Any, ignore: bool = False
    ) -> Any:
        """A worker that ran out of memory logs zeros.

        Line 1411: it has no logs of its update and sums fewer numbers over the workers than the others, which
        then hang or mix them up. It has to contribute zeros where the others contribute their logs. Not in
        validation, where an error ends the run.
        """
        if not logging_outputs and self.model.training:
            log = self.method.zeros()
            if log is None:
                raise RuntimeError(
                    "out of memory in this worker's first update, and fairseq can only recover after one "
                    "update. Make the mini-batches smaller (--batch-size, --max-tokens, --max-positions)"
                )
            logging_outputs, ignore = [log], True  # zeros with the same keys and types
        return super()._fast_stat_sync_sum(logging_outputs, *stats, ignore=ignore)
