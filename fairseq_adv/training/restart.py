"""Refuses to resume from a checkpoint that was made with other options or data, unless the user agrees.

fairseq resumes from ``SAVE_DIR/checkpoint_last.pt`` whatever made it: two jobs of a sweep that share a folder
would train one model, one after the other, and a changed learning rate, or data prepared anew at the same
path, would go unnoticed.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers import FOLDER
from fairseq_adv.data.tokenizers.saved_tokenizer import remove_saved_tokenizer
from fairseq_adv.fairseq_patches.training_loop import PATIENCE, which_limit
from fairseq_adv.training.changed_options import Options, compare, factors, options_of
from fairseq_adv.training.data_digest import differences
from fairseq_adv.training.plateau import PLATEAU
from fairseq_adv.training.precision_option import PrecisionOption

logger = logging.getLogger(__name__)

# In a checkpoint's ``extra_state``: the changes that the user agreed to, and at which update.
RECORD = "changed_options"
FIRST_UPDATE = "first_update"  # there too: the losses of a run's first update
# There too, from reading the checkpoint until the end of ``load_checkpoint``, on all workers.
JUST_NOW = "changed_options_now"
# Digests of the data, see :mod:`fairseq_adv.training.data_digest`.
DATA = "data"
# And the updates of a finished run, if it has no optimizer's state from which fairseq would know them.
_ENDED = "ended_after_update"
# Options without which scores can't be compared.
_OF_SCORES = {
    "--best-checkpoint-metric", "--maximize-best-checkpoint-metric", "--valid-subset",
    "--combine-valid-subsets", "--max-valid-steps", "data", "tokenizer",
}  # fmt: skip
# With others the optimizer's state doesn't fit.
_OF_WEIGHTS = {"--layer-lr-decay", "--freeze", "--optimizer"}
# What may mean another tokenizer.
_OF_TOKENIZER = {"data", "tokenizer", "--tokenizer-dir"}


def check_start(saving: Any) -> None:
    """Raises DataError if the checkpoint to start from, by the options ``checkpoint``, does not exist, or if
    there are two.
    """
    suffix = f"{saving.checkpoint_suffix}.pt"
    option, path = "--restore-file", saving.restore_file
    if path == "checkpoint_last.pt":
        has_begun = os.path.isfile(os.path.join(saving.save_dir, path.replace(".pt", suffix)))
        name = "finetune_from_model" if saving.continue_once is None else "continue_once"
        option, path = f"--{name.replace('_', '-')}", None if has_begun else saving[name]
    elif saving.finetune_from_model:
        raise DataError("--restore-file and --finetune-from-model: a run starts from one. Leave one out")
    else:
        path = path.replace(".pt", suffix)
    if path and "://" not in path and not os.path.isfile(path):
        raise DataError(
            f"{option} {path}: no such file. Pass the path of the pre-trained checkpoint, or leave the "
            "option out to train from scratch."
        )


def check_restart(state: dict[str, Any], trainer: Trainer, is_allowed: bool, data: Mapping[str, Any]) -> None:
    """Compares the options and the data of the checkpoint with this run's.

    fairseq's ``--reset-…`` options ask for a change, so nothing is compared with them.

    Args:
        state: the checkpoint's contents. If the batch size or the number of workers has changed, the position
            in the epoch is converted. A change that the user agreed to is recorded.
        data: of this run, from :func:`fairseq_adv.training.data_digest.digests_of`.
    """
    saving, saved = trainer.cfg.checkpoint, state.get("cfg")
    asked = (saving.reset_optimizer, saving.reset_lr_scheduler, saving.reset_meters, saving.reset_dataloader)
    if not _is_of_a_training(state, trainer):
        return
    if any(asked):
        if not saving.reset_dataloader:
            convert_position(state, trainer, is_any_data=True)
        return
    extra = state["extra_state"] = state.get("extra_state") or {}
    updates, position = _updates(state), extra.get("train_iterator", {})
    seconds, runs = extra.get("previous_training_time", 0), extra.get(PATIENCE, {}).get("num_runs", 0)
    is_over = bool(which_limit(trainer.cfg, updates, position.get("epoch", 1) - 1, seconds, runs))
    changes, path = compare(saved, trainer.cfg, is_over), checkpoint_path(trainer)
    is_named = saving.restore_file != "checkpoint_last.pt" or path == saving.continue_once
    of_data = _data_changes(extra.get(DATA), data, trainer)
    refused = changes.refused + of_data
    if refused and not is_allowed:
        what = " and ".join(["options"] * bool(changes.refused) + ["data"] * bool(of_data))
        fix = "another --save-dir (checkpoint.save_dir; in a sweep one per job)"
        if is_named:
            fix = f"--finetune-from-model {path} instead, with an empty --save-dir, to start from its weights"
        raise DataError(
            f"{path} was made with other {what}, and this run would resume from it "
            f"({'; '.join(refused)}). Pass {fix}, or --allow-changed-options "
            f"(criterion.allow_changed_options=true) to go on with the new {what}, which the checkpoint will "
            "record"
        )
    own = _options(refused) & _OF_WEIGHTS
    if bool(state.get("criterion")) != utils.has_parameters(trainer.get_criterion()):
        own |= _options(refused) & {"--criterion"}  # infobert, which has weights of its own
    if is_allowed and own:
        raise DataError(
            f"{path} has the state of another optimizer, or of an optimizer of other weights: no run "
            "goes on from it with another "
            f"{' or '.join(sorted(own))} ({'; '.join(refused)}). Pass --finetune-from-model {path} with an "
            "empty --save-dir to start from its weights"
        )
    if updates and not is_named and state.get("last_optimizer_state") is None:
        if not is_over:
            raise DataError(
                f"{path} has no optimizer's state (--no-save-optimizer-state), so this run can't resume from "
                "it. Pass another --save-dir (checkpoint.save_dir) to begin anew, or --finetune-from-model "
                f"{path} with an empty --save-dir to start from its weights"
            )
        extra[_ENDED] = updates
    convert_position(state, trainer, is_any_data=bool(refused))
    if "data" in _options(refused) and _is_another_shard(position, saved, extra.get(DATA), trainer.cfg, data):
        _move_to(position, 0)
    if changes.told:
        logger.info(f"{path}: resumes after update {updates} with {'; '.join(changes.told)}")
    if refused:
        logger.warning(f"{path}: resumes after update {updates} with {'; '.join(refused)}")
        extra[RECORD] = [*extra.get(RECORD, []), {"update": updates, "changes": refused}]
        extra[JUST_NOW] = refused
        _rename(state.get("optimizer_history"), saved, trainer)
        _forget_scores(state, refused, saving.maximize_best_checkpoint_metric)


def forget_the_run(state: dict[str, Any], keeps_its_place: bool) -> None:
    """Drops what a checkpoint knows of the run that wrote it, for another that starts from its weights.

    Args:
        keeps_its_place: with fairseq's ``--reset-…`` options, which say what of it is dropped:
            ``--stop-time-hours`` counts from now on, and the rest stays.
    """
    extra = state.get("extra_state") or {}
    names = [RECORD, FIRST_UPDATE, "previous_training_time"]
    if not keeps_its_place:
        names += ["best", "val_loss", "metrics", PATIENCE, PLATEAU]
        if "train_iterator" in extra:
            extra["train_iterator"] = {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True}
    for name in names:
        extra.pop(name, None)


def _data_changes(before: Any, now: Mapping[str, Any], trainer: Trainer) -> list[str]:
    if before is None:
        return ["contents of the data: not known, since it was made before 0.4 or without fairseq_adv"]
    return differences(before, now, str(getattr(trainer.cfg.task, "data", "")))


def follow_precision(state: dict[str, Any], trainer: Trainer, option: PrecisionOption) -> None:
    """With ``--precision auto``, the run goes on in the checkpoint's precision."""
    if option.is_open and _is_of_a_training(state, trainer):
        saved = options_of(state["cfg"])["common"]
        precision = next((name for name in ("amp", "bf16") if saved.get(name)), "fp32")
        option.follow(precision, checkpoint_path(trainer), trainer.cfg.common)


def use_new_options(extra: dict[str, Any] | None, trainer: Trainer, overrides: dict[str, Any] | None) -> None:
    """If the user agreed to a change, the optimizer uses its options, not those that it was saved with, and
    the save folder's copy of a tokenizer of other data is removed.

    Args:
        overrides: ``--optimizer-overrides``, which win.
    """
    if extra is not None and _ENDED in extra:
        trainer.set_num_updates(extra.pop(_ENDED))
    now, saving = None if extra is None else extra.pop(JUST_NOW, None), trainer.cfg.checkpoint
    if not isinstance(now, list):
        return
    given = dict(trainer.optimizer.optimizer_config)
    if not _options(now) & {"--lr", "--lr-scheduler"}:
        given.pop("lr", None)  # reduce_lr_on_plateau has reduced it
    for group in trainer.optimizer.param_groups:
        group.update({**given, **(overrides or {})})
    trainer.optimizer.set_lr(trainer.optimizer.get_lr())  # of each group its own
    if trainer.is_data_parallel_master and not saving.no_save and _options(now) & _OF_TOKENIZER:
        # fairseq-adv train then puts the new one there; without it, predict reads that of the data.
        try:
            remove_saved_tokenizer(Path(saving.save_dir, FOLDER))
        except DataError as error:  # on this worker alone
            logger.warning(error)


def _options(refused: list[str]) -> set[str]:
    return {line.partition(":")[0] for line in refused}


def _rename(history: Any, saved: Any, trainer: Trainer) -> None:
    """fairseq refuses another class's state: of a criterion, which has none, and of an optimizer, whose state
    is the same when ``--amp`` wraps it."""
    current = trainer.cfg
    if history:
        history[-1]["criterion_name"] = type(trainer.get_criterion()).__name__
    alone, wrapped = OPTIMIZER_REGISTRY[current.optimizer._name].__name__, AMPOptimizer.__name__
    before, now = (wrapped if options_of(cfg)["common"].get("amp") else alone for cfg in (saved, current))
    if history and history[-1].get("optimizer_name") == before:
        history[-1]["optimizer_name"] = now


def _forget_scores(state: dict[str, Any], refused: list[str], is_maximized: bool) -> None:
    """Drops scores that can't be compared with new ones, and the state of another ``--lr-scheduler``.

    With the best score by another metric, fairseq might never write ``checkpoint_best.pt`` again.
    """
    changed, history = _options(refused), state.get("optimizer_history")
    is_other, is_rescheduled = bool(changed & _OF_SCORES), "--lr-scheduler" in changed
    if is_other:
        for name in ("best", PATIENCE, PLATEAU):
            state["extra_state"].pop(name, None)
    if history and (is_other or is_rescheduled):
        # Every scheduler reads these, and adds what it lacks. reduce_lr_on_plateau needs a number.
        kept = {} if is_rescheduled else history[-1].get("lr_scheduler_state")
        history[-1]["lr_scheduler_state"] = {**(kept or {}), "best": -math.inf if is_maximized else math.inf}


def _updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history")
    return int(history[-1].get("num_updates", 0)) if history else 0


def _is_of_a_training(state: dict[str, Any], trainer: Trainer) -> bool:
    """Whether the file is of a training: it has a configuration, and an optimizer's state or the run's own
    name."""
    is_own = trainer.cfg.checkpoint.restore_file == "checkpoint_last.pt"
    return bool(state.get("cfg") and (is_own or state.get("last_optimizer_state")))


def checkpoint_path(trainer: Trainer) -> str:
    """The checkpoint that a run resumes or starts from."""
    saving = trainer.cfg.checkpoint
    if saving.restore_file != "checkpoint_last.pt":
        return str(saving.restore_file)
    own = os.path.join(saving.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    first = saving.continue_once or saving.finetune_from_model or own
    return own if os.path.isfile(own) else str(first)


def _is_another_shard(
    position: Mapping[str, Any], saved: Any, digests: Any, current: Any, digests_now: Mapping[str, Any]
) -> bool:
    """Whether the epoch's data folder is another, with other files: fairseq takes several in turn."""
    shards = []
    for cfg, known in ((saved, digests), (current, digests_now)):
        folders = utils.split_paths(str(options_of(cfg)["task"].get("data") or ""))
        number = (position.get("epoch", 1) - 1) % len(folders)
        files = (known or {}).get("folders", [])
        shards.append((folders[number], files[number] if number < len(files) else None))
    (path, before), (path_now, now) = shards
    return bool(path != path_now and (before != now or not now))


def convert_position(state: dict[str, Any], trainer: Trainer, is_any_data: bool) -> None:
    """Keeps the number of examples seen; fairseq counts mini-batches per worker, and doesn't convert them.

    A position within an update is moved back to its first mini-batch: fairseq (fairseq/data/iterators.py,
    line 594) would take it for the end of the epoch, and begin the epoch again.

    Args:
        is_any_data: the data may be others than those of the checkpoint.
    """
    position = (state.get("extra_state") or {}).get("train_iterator")
    if not position or not state.get("cfg"):
        return
    if is_any_data:
        position["version"] = 1  # past the end of fewer rows is the end
    done, old, new = position.get("iterations_in_epoch", 0), options_of(state["cfg"]), options_of(trainer.cfg)
    for size in ("batch_size", "max_tokens"):
        before, now = _per_iteration(old, size), _per_iteration(new, size)
        if before == now or not done:
            continue
        position["version"] = 1  # to fairseq a position past the end is the end, then
        if before and now:
            done = done * before // now
            break
    parts = new["optimization"].get("update_freq") or [1]
    together = parts[min(position.get("epoch", 1), len(parts)) - 1]
    _move_to(position, done // together * together)


def _move_to(position: dict[str, Any], done: int) -> None:
    """At an epoch's beginning fairseq drops the means of the last one with version 2 only."""
    position["iterations_in_epoch"] = done
    if not done:
        position["version"] = 2


def _per_iteration(options: Options, size: str) -> int:
    """The size of a mini-batch times the number of workers; 0 if this option does not limit it."""
    limit, _, workers = factors(options, size)
    if size == "batch_size" and limit:
        limit = whole_multiple(limit, options["dataset"].get("required_batch_size_multiple") or 1)
    return (limit or 0) * workers


def whole_multiple(batch_size: int, multiple: int) -> int:
    """The rows of a mini-batch: fairseq/data/data_utils_fast.pyx rounds ``--batch-size``."""
    return batch_size // multiple * multiple or batch_size
