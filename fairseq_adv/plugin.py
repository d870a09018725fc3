"""What ``fairseq-train --user-dir`` sets up: everything is registered with fairseq, and fairseq is patched.

fairseq imports this module through ``tasks/load_plugin.py``. A program that calls fairseq's trainer itself
imports it: fairseq ignores a ``--user-dir`` whose package is already imported.

What an update, a checkpoint and a restart do besides fairseq's stands in :mod:`fairseq_adv.training.trainer`.
:data:`PATCHES` and :data:`LOOP` are what can't be there. Each patch gives its reason and its place in fairseq
0.12.2. They apply to every run, and those with a criterion of others train as before.

These replace functions elsewhere, because a list in this module would be too early, too late or too much:

- :mod:`fairseq_adv.registration` has a list of what programs need that only read and compute models.
- The first trainer puts :data:`LOOP` in place: to import ``fairseq_cli.train`` sets up a log.
- A trainer replaces two functions while it reads a checkpoint, ``fairseq-adv train`` two while it starts a
  run (:mod:`fairseq_adv.cli.train_run`): they need that object, or that run's options.
- A criterion replaces its task's ``train_step`` and ``reduce_metrics``, its objective ``load_dataset``. In
  :mod:`fairseq_adv.training`, ``gradients``, ``depth`` and ``average`` replace methods of one optimizer or
  average, and ``trainer`` replaces ``train`` of one model.
"""

from __future__ import annotations

import logging
import multiprocessing.util
from collections.abc import Callable
from functools import partial
from typing import Any

import fairseq.trainer
from fairseq import checkpoint_utils, options
from fairseq.data import TokenBlockDataset, data_utils
from fairseq.data.iterators import BackgroundConsumer
from fairseq.dataclass import initialize
from fairseq.dataclass import utils as dataclass_utils
from fairseq.distributed import DistributedTimeoutWrapper, LegacyDistributedDataParallel
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks.fairseq_task import FairseqTask
from omegaconf import DictConfig, ListConfig
from omegaconf.nodes import ValueNode
from torch.utils.data import DataLoader

import fairseq_adv.registration  # noqa: F401
from fairseq_adv.fairseq_patches import (
    checkpoint_files,
    commands,
    data_loading,
    gpu_waits,
    mixed_precision,
    progress,
    signals,
    start,
    training_loop,
    workers,
)
from fairseq_adv.fairseq_patches.replace import LOOP, Original, put, replace
from fairseq_adv.training.metrics_file import MetricsFile
from fairseq_adv.training.trainer import Trainer
from fairseq_adv_compat.machine import ask_for_huge_pages


def _run(main: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a worker that fairseq starts is told to call: it imports this module to find it."""
    return main(*args, **options)


def call_main(original: Original, cfg: Any, main: Callable[..., Any], **options: Any) -> Any:
    """Loads the plug-in in the workers that fairseq starts itself, one for each GPU.

    fairseq/distributed/utils.py, line 334: each of them is a new process, which first runs the file of the
    parent's command. That of ``fairseq-adv train`` imports :mod:`fairseq_adv`, and so fairseq takes
    ``--user-dir`` for imported.
    """
    return original(cfg, partial(_run, main), **options)


PATCHES: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    # Configurations.
    (DictConfig, "__deepcopy__", start.copy_alone),
    (ListConfig, "__deepcopy__", start.copy_alone),
    (ValueNode, "_deepcopy_impl", start.copy_value),
    # How a run is asked for, and its log.
    (options, "parse_args_and_arch", commands.parse_args_and_arch),
    (dataclass_utils, "eval_str_list", commands.read_list),
    (logging.FileHandler, "handleError", commands.go_on_or_exit_at_an_error_of_the_log),
    # How it begins and resumes, and its workers.
    (initialize, "add_defaults", training_loop.add_defaults),
    (distributed_utils, "call_main", call_main),
    (multiprocessing.util, "spawnv_passfds", workers.spawn_elsewhere),
    (checkpoint_utils, "load_checkpoint", training_loop.load_checkpoint),
    (LegacyDistributedDataParallel, "no_sync", workers.no_sync),
    (DistributedTimeoutWrapper, "_check_heartbeat", signals.kill_a_hanging_run),
    # Files of checkpoints.
    (checkpoint_utils, "torch_persistent_save", checkpoint_files.save_whole),
    (PathManager, "copy", checkpoint_files.copy_whole),
    # Data.
    (BackgroundConsumer, "run", data_loading.load_ahead),
    (DataLoader, "__init__", data_loading.load_for_one_epoch),
    (data_utils, "numpy_seed", data_loading.numpy_seed),
    (data_utils, "raise_if_valid_subsets_unintentionally_ignored", training_loop.refuse_unused_splits),
    (TokenBlockDataset, "_build_slice_indices", data_loading.build_slice_indices),
    # --amp.
    (AMPOptimizer, "__init__", mixed_precision.scale_on_gpus),
    (AMPOptimizer, "clip_grad_norm", mixed_precision.unscale_once),
    (FairseqTask, "train_step", mixed_precision.autocast_on_the_device),
    # Mini-batches that AdversarialTrainer has moved to a GPU.
    (TransformerEncoderBase, "forward_scriptable", gpu_waits.encode_without_waiting),
    (RobertaLMHead, "forward", gpu_waits.use_known_places),
    # What a run logs, for its file of numbers and for the screen.
    (checkpoint_utils, "load_checkpoint", progress.begin),
    (checkpoint_utils, "save_checkpoint", progress.save),
    (progress_bar, "progress_bar", progress.watched),
)

start.leave_the_compiler_out()
ask_for_huge_pages()
workers.end_with_torchrun()
commands.report_mistakes_in_one_line()
commands.print_in_any_locale()
for owner, name, patch in PATCHES:
    replace(owner, name, patch)
LOOP.update(  # functions of fairseq_cli.train
    train=training_loop.train,
    validate_and_save=training_loop.validate_and_save,
    get_valid_stats=training_loop.get_valid_stats,
)
put(fairseq.trainer, "Trainer", Trainer)
progress.watchers.append(MetricsFile())
