"""Compares the options of a run with those of the checkpoint that it resumes from.

Every option counts, except those in :data:`MAY_CHANGE`. docs/cluster.md lists them for users.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf

from fairseq_adv_compat.configurations import CLEARED

# By fairseq's groups: what doesn't change the weights. (compile and checkpoint_activations change them as
# another seed for dropout does.)
MAY_CHANGE: dict[str, set[str]] = {
    "common": {
        "no_progress_bar", "log_interval", "log_format", "log_file", "aim_repo", "aim_run_hash",
        "tensorboard_logdir", "wandb_project", "azureml_logging", "cpu", "tpu", "user_dir",
        "empty_cache_freq", "all_gather_list_size", "profile", "reset_logging", "suppress_crashes",
        "use_plasma_view", "plasma_path",
    },
    "distributed_training": {
        "distributed_num_procs", "distributed_rank", "distributed_backend", "distributed_init_method",
        "distributed_port", "device_id", "distributed_no_spawn", "bucket_cap_mb",
        "find_unused_parameters", "gradient_as_bucket_view", "fast_stat_sync", "heartbeat_timeout",
        "nprocs_per_node", "zero_sharding", "no_reshard_after_forward", "cpu_offload", "use_sharded_state",
        "not_fsdp_flatten_parameters",
    },
    "dataset": {
        "num_workers", "data_buffer_size", "skip_invalid_size_inputs_valid_test",
        "ignore_unused_valid_subsets", "validate_interval", "validate_interval_updates",
        "validate_after_updates", "fixed_validation_seed", "disable_validation", "max_tokens_valid",
        "batch_size_valid", "gen_subset", "num_shards", "shard_id",
    },
    "checkpoint": {
        "save_dir", "restore_file", "continue_once", "reset_dataloader", "reset_lr_scheduler", "reset_meters",
        "reset_optimizer", "save_interval", "save_interval_updates", "keep_interval_updates",
        "keep_interval_updates_pattern", "keep_last_epochs", "keep_best_checkpoints", "no_save",
        "no_epoch_checkpoints", "no_last_checkpoints", "no_save_optimizer_state", "checkpoint_suffix",
        "checkpoint_shard_count", "load_checkpoint_on_all_dp_ranks", "write_checkpoints_asynchronously",
    },
    # What precision chooses is compared as common.amp.
    "criterion": {"allow_changed_options", "compile", "compile_mode", "cuda_graphs", "precision"},
    "model": {"checkpoint_activations", "offload_activations", "min_params_to_wrap", "load_checkpoint_heads"},
}  # fmt: skip
# These may change too, and the log tells it: how long the run goes on, …
LIMITS = {"max_epoch", "max_update", "stop_time_hours", "stop_min_lr", "patience"}
# … the length of the schedule, but only with a larger --max-epoch or --max-update, …
SCHEDULE = {"total_num_update", "warmup_updates"}
# … and where files are, if they are no longer where they were.
PATHS = {"data", "tokenizer_dir", "finetune_from_model", "hf_model"}
# Compared as one product.
FACTORS = {"batch_size", "max_tokens", "update_freq", "distributed_world_size"}
# Groups that training doesn't read.
UNUSED = {"_name", "common_eval", "generation", "eval_lm", "interactive", "scoring"}
# Groups of which one is chosen by name, and the option that does so.
CHOSEN = {
    "criterion": "--criterion", "task": "--task", "model": "--arch", "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler", "bpe": "--bpe", "tokenizer": "--tokenizer",
}  # fmt: skip

Options = dict[str, dict[str, Any]]  # values by group and option


class Changes(NamedTuple):
    """What differs, each as "option: there -> here"."""

    refused: list[str]  # what the user has to agree to
    told: list[str]  # what may change, but belongs in the log


def compare(there: Any, here: Any, is_over: bool = False) -> Changes:
    """Compares two configurations.

    An option that a checkpoint of an earlier version lacks counts as its default. Options that only the
    checkpoint has are ignored.

    Args:
        is_over: the checkpoint has made all the updates that this run asks for, so that the length of the
            schedule no longer matters.
    """
    old, new = options_of(there), options_of(here)
    refused: list[str] = []
    told: list[str] = []
    for group in (name for name in FairseqConfig.__dataclass_fields__ if name not in UNUSED):
        if not old[group] and group in ("criterion", "task", "model"):
            continue  # not a configuration of a training
        before, now = old[group].get("_name"), new[group].get("_name")
        if before != now:
            refused.append(f"{CHOSEN.get(group, group)}: {before} -> {now}")
            continue
        for key, default in _own_options(group, now).items():
            one, other = _pair(key, default, group, old, new)
            if _same(key, one, other):
                continue
            line = f"{'data' if key == 'data' else '--' + key.replace('_', '-')}: {_shown(one)} -> "
            line += _shown(other)
            follows = key in SCHEDULE and (is_over or (_is_longer(old, new) and _is_more(one, other)))
            (told if key in LIMITS or follows or _has_moved(key, one, other) else refused).append(line)
    for size in ("batch_size", "max_tokens"):
        one, other = (factors(options, size) for options in (old, new))
        if one != other and (one[0] or other[0]):
            line = f"--{size.replace('_', '-')} x --update-freq x workers: "
            line += f"{_product(one)} -> {_product(other)}"
            (told if _per_update(one) == _per_update(other) else refused).append(line)
    return Changes(list(dict.fromkeys(refused)), list(dict.fromkeys(told)))


def options_of(cfg: Any) -> Options:
    """A configuration as plain values; the groups that it lacks are empty."""
    options = {}
    for group in FairseqConfig.__dataclass_fields__:
        values = cfg[group] if hasattr(cfg, "get") and group in cfg else None
        if isinstance(values, argparse.Namespace):  # classes without a dataclass
            values = vars(values)
        elif OmegaConf.is_config(values):
            values = OmegaConf.to_container(values, resolve=True, enum_to_str=True)
        options[group] = dict(values) if isinstance(values, dict) else {}
    return options


def _own_options(group: str, name: Any) -> dict[str, Any]:
    """A group's options and their defaults; without a dataclass, an option's default is ``...``."""
    registry: Mapping[str, Any] = {
        "model": MODEL_DATACLASS_REGISTRY, "task": TASK_DATACLASS_REGISTRY,
    }.get(group) or REGISTRIES.get(group, {}).get("dataclass_registry", {})  # fmt: skip
    kind = registry.get(name) if group in CHOSEN else type(getattr(FairseqConfig(), group))
    if kind is not None:
        fields = kind.__dataclass_fields__
        known = {
            key: f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            for key, f in fields.items()
        }
    else:
        classes = {"model": ARCH_MODEL_REGISTRY, "task": TASK_REGISTRY}.get(group)
        classes = classes or REGISTRIES.get(group, {}).get("registry", {})
        parser = argparse.ArgumentParser(add_help=False)
        if hasattr(classes.get(name), "add_args"):
            classes[name].add_args(parser)
        known = dict.fromkeys((action.dest for action in parser._actions), ...)
    # The files that a checkpoint may name aren't read again: it has their weights.
    left_out = {*MAY_CHANGE.get(group, set()), *FACTORS, *CLEARED, "_name"}
    return {key: default for key, default in known.items() if key not in left_out}


def _pair(key: str, default: Any, group: str, old: Options, new: Options) -> tuple[Any, Any]:
    """The two values of an option; the same one twice if they needn't be compared."""
    if key not in new[group] or (key not in old[group] and default in (..., "???")):
        return None, None
    if str(default).startswith("${"):  # a copy of another option, unless a yaml sets it
        source, _, name = str(default)[2:-1].partition(".")
        if all(
            key not in side[group] or side[group][key] == side.get(source, {}).get(name)
            for side in (old, new)
        ):
            return None, None
    if key == "finetune_from_model" and new[group][key] is None:  # the run has begun
        return None, None
    return old[group].get(key, default), new[group][key]


def _same(key: str, old: Any, new: Any) -> bool:
    if old == new or str(old) == str(new):
        return True
    if key == "encoder_layerdrop":  # an encoder of transformers in a yaml had None
        return not (old or new)
    if key == "ddp_backend":
        return "slowmo" not in (str(old), str(new))  # the others make the same updates
    if _numbers(old) is not None:
        return _numbers(old) == _numbers(new)
    return isinstance(old, str) and isinstance(new, str) and _places(old) == _places(new)


def _numbers(value: Any) -> list[float] | None:
    """The numbers in "0.30", "1e-05", "(0.9, 0.98)" or a list; ``None`` for anything else."""
    text = str(value).translate(dict.fromkeys(map(ord, "[]()' ")))
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return None


def _places(path: str) -> list[str]:
    return [os.path.realpath(part) for part in path.split(":")]


def _has_moved(key: str, old: Any, new: Any) -> bool:
    """Whether files are no longer where they were; there is nothing left to compare."""
    if key not in PATHS or not (isinstance(old, str) and isinstance(new, str)):
        return False
    pairs = list(zip(_places(old), _places(new)))
    is_as_many = len(_places(old)) == len(_places(new))
    return is_as_many and all(one == other or not os.path.exists(one) for one, other in pairs)


def _is_longer(old: Options, new: Options) -> bool:
    """Whether the run may now make more epochs or updates; 0 is no limit."""
    limits = [
        [side["optimization"].get(key) or float("inf") for side in (old, new)]
        for key in ("max_epoch", "max_update")
    ]
    return any(after > before for before, after in limits)


def _is_more(old: Any, new: Any) -> bool:
    return (_numbers(new) or [0.0]) > (_numbers(old) or [0.0])


def factors(options: Options, size: str) -> tuple[Any, list[int], int]:
    """Batch size, ``--update-freq`` and number of workers."""
    return (
        options["dataset"].get(size),
        list(options["optimization"].get("update_freq") or [1]),
        options["distributed_training"].get("distributed_world_size") or 1,
    )


def _per_update(factors: tuple[Any, list[int], int]) -> list[int]:
    """The size of an update in each epoch, without repetitions of the last one."""
    size, update_freq, workers = factors
    sizes = [(size or 0) * parts * workers for parts in update_freq]
    while len(sizes) > 1 and sizes[-1] == sizes[-2]:
        sizes.pop()
    return sizes


def _product(factors: tuple[Any, list[int], int]) -> str:
    return " x ".join(map(_shown, factors))


def _shown(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if text.isprintable() else repr(text)
