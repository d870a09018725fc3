"""fairseq's configurations, composed in a fiftieth of the time.

fairseq takes a second to turn a command line into a configuration, and most of it goes into hydra loading and
merging the same default groups. After :func:`remember`, a command line with the options of an earlier one is
a copy of what hydra composed then, to which hydra applies the values that differ.
``tests/test_composition.py`` compares the results with hydra's own.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any, Callable
from unittest import mock

from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental import compose as compose_from_scratch
from hydra.experimental import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

# (the groups chosen, the names of all options) -> the configuration, and the options that made it
_composed: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[DictConfig, list[str]]] = {}
_primary: dict[str, Any] = {}
_tell: Callable[[list[str]], None] | None = None
_load_primary = ConfigLoaderImpl._load_primary_config


def remember(tell: Callable[[list[str]], None] | None = None) -> None:
    """From now on, in this process. ``tell`` gets the options of what hydra had to compose."""
    global _tell
    utils.compose, _tell = compose, tell


def compose(config_name: str, overrides: list[str], strict: bool) -> DictConfig:
    """What hydra composes, as ``fairseq.dataclass.utils`` asks for it."""
    names = tuple(line.partition("=")[0] for line in overrides)
    key = (tuple(line for name, line in zip(names, overrides) if "." not in name), names)
    if key in _composed:
        earlier, lines = _composed[key]
        changed = OverridesParser.create().parse_overrides(
            [new for old, new in zip(lines, overrides) if old != new]
        )
        # hydra merges a dictionary into the one that is there, so the earlier one would shine through.
        if not any(isinstance(override.value(), dict) for override in changed):
            made = copy.deepcopy(earlier)
            OmegaConf.set_struct(made, strict)
            ConfigLoaderImpl._apply_overrides_to_config(changed, made)
            return made
    with mock.patch.object(ConfigLoaderImpl, "_load_primary_config", load_primary):
        made = compose_from_scratch(config_name, overrides=overrides, strict=strict)
    _composed[key] = (copy.deepcopy(made), list(overrides))
    if _tell is not None:
        _tell(list(overrides))
    return made


def compose_ahead(overrides: list[str]) -> None:
    """What a forked process had to compose, for those that are forked from this one later."""
    GlobalHydra.instance().clear()
    directory = str(Path(utils.__file__).parent.parent / "config")
    with mock.patch.object(sys.modules[__name__], "_tell", None), initialize_config_dir(directory):
        compose("config", overrides, strict=False)


def load_primary(self: ConfigLoaderImpl, cfg_filename: str, record_load: bool = True) -> Any:
    """fairseq's and hydra's own defaults, which are the same for all command lines: half of the time."""
    if cfg_filename not in _primary:
        _primary[cfg_filename] = _load_primary(self, cfg_filename, record_load)
    return copy.deepcopy(_primary[cfg_filename])
