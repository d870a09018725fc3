"""Refuses to resume from a checkpoint that was made with other options.

fairseq resumes from ``SAVE_DIR/checkpoint_last.pt`` whatever made it: two jobs of a sweep that share a folder
would train one model, one after the other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_adv.data.errors import DataError

NAMES = {"criterion": "--criterion", "task": "--task", "model": "--arch"}
FOLDERS = ("data", "tokenizer_dir")
# Options that only affect memory use, or what is read from another checkpoint.
HARMLESS = {
    "checkpoint_activations", "offload_activations", "min_params_to_wrap", "load_checkpoint_heads",
}  # fmt: skip


def refuse_other_run(state: Mapping[str, Any], trainer: Trainer) -> None:
    """Refuses to resume from ``checkpoint_last.pt`` if criterion, task, model or data have changed.

    ``--restore-file`` and the ``--reset-…`` options ask for such a change, so they are not checked. Options
    that only one side has are ignored, so that checkpoints of other versions can be resumed.

    Args:
        state: the checkpoint's contents.
        trainer: fairseq's trainer, of this run.

    Raises:
        DataError: lists the differences and what to do.
    """
    saving = trainer.cfg.checkpoint
    path = os.path.join(saving.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    asked = (saving.reset_optimizer, saving.reset_lr_scheduler, saving.reset_meters, saving.reset_dataloader)
    if saving.restore_file != "checkpoint_last.pt" or any(asked) or not os.path.isfile(path):
        return
    found = differences(state.get("cfg"), trainer.cfg)
    if found:
        raise DataError(
            f"{path} was made with other options, and this run would resume from it ({'; '.join(found)}). "
            "Pass another --save-dir (hydra: checkpoint.save_dir; in a sweep one per job), or remove that "
            "file. To start from its weights: --finetune-from-model, with another --save-dir"
        )


def differences(there: Any, here: Any) -> list[str]:
    """The options of criterion, task and model that differ, as "option: there → here".

    Args:
        there: a checkpoint's configuration.
        here: this run's.
    """
    found = []
    for group, name in NAMES.items():
        old, new = _values(there, group), _values(here, group)
        if not old or not new:
            continue
        if old.get("_name") != new.get("_name"):
            # Flooding used to be a criterion that wrapped another one; now it is an option of all.
            if not (old.get("_name") == "flooding" and old.get("base_method") == new.get("_name")):
                found.append(f"{name}: {old.get('_name')} → {new.get('_name')}")
            continue
        for key in sorted(_own_options(group, str(new["_name"])) & old.keys() & new.keys()):
            if not _same(key, old[key], new[key]):
                option = "data" if key == "data" else f"--{key.replace('_', '-')}"
                found.append(f"{option}: {old[key]} → {new[key]}")
    return found


def _values(cfg: Any, group: str) -> dict[str, Any]:
    """A group's options by name; for models without a dataclass, fairseq stores them in a Namespace."""
    values = cfg.get(group) if hasattr(cfg, "get") else None
    if isinstance(values, argparse.Namespace):
        return vars(values)
    if OmegaConf.is_config(values):
        values = OmegaConf.to_container(values, resolve=True, enum_to_str=True)
    return dict(values) if isinstance(values, dict) else {}


def _own_options(group: str, name: str) -> set[str]:
    """The group's own options, without those interpolated from other groups, such as the seed."""
    if group == "model":
        parser = argparse.ArgumentParser(add_help=False)
        if name in ARCH_MODEL_REGISTRY:
            ARCH_MODEL_REGISTRY[name].add_args(parser)
        return {action.dest for action in parser._actions} - HARMLESS
    known = TASK_DATACLASS_REGISTRY if group == "task" else REGISTRIES[group]["dataclass_registry"]
    fields = getattr(known.get(name), "__dataclass_fields__", {})
    return {key for key, field in fields.items() if not str(field.default).startswith("${")} - {"_name"}


def _same(key: str, old: Any, new: Any) -> bool:
    if old == new or str(old) == str(new):
        return True
    if key in FOLDERS and isinstance(old, str) and isinstance(new, str):
        parts = (old.split(":"), new.split(":"))
        # A folder that no longer exists was moved: there is nothing to compare.
        return len(parts[0]) == len(parts[1]) and all(
            not os.path.exists(one) or os.path.realpath(one) == os.path.realpath(other)
            for one, other in zip(*parts)
        )
    try:
        return float(old) == float(new)
    except (TypeError, ValueError):
        return False
