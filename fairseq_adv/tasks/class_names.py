"""Stores the class names in the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf, open_dict

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import changes_in_omegaconf


def keep_class_names(cfg: Any, names: Sequence[str]) -> None:
    """Writes the names to ``cfg.class_names``, which the trainer saves.

    Args:
        names: the data's class names, in the order of the head's outputs.

    Raises:
        DataError: the checkpoint has different names, or could not store one.
    """
    odd = next((name for name in names if changes_in_omegaconf(name)), None)
    if odd is not None:
        raise DataError(
            f"{cfg.data}: fairseq can't store the class name {odd!r:.40} in a checkpoint. Rename the class."
        )
    known = cfg.class_names
    if known is not None and list(known) != list(names):
        raise DataError(
            f"{cfg.data}/label/dict.txt: lists the classes {', '.join(names)}, but the checkpoint was "
            f"trained with {', '.join(known)}, in that order. Prepare the data with the same training file."
        )
    # A task gets a copy of its options (fairseq/dataclass/utils.py, merge_with_parent), but the trainer saves
    # the configuration that they were copied from.
    root = cfg._get_parent() if OmegaConf.is_config(cfg) else None
    for options in (cfg, *([] if root is None else [root.task])):
        with open_dict(options):
            options.class_names = list(names)
