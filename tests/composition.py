"""fairseq's configurations, composed in a thirtieth of the time.

fairseq takes a second to turn a command line into a configuration, and most of it goes into hydra loading and
merging the same default groups. After :func:`remember`, a command line with the options of an earlier one is
a copy of what hydra composed then, to which hydra applies the values that differ.
``tests/test_composition.py`` compares the results with hydra's own.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental import compose as compose_from_scratch
from hydra.experimental import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

# the choices of groups, such as "task=masked_lm" -> the configuration with their defaults alone
_bases: dict[tuple[str, ...], DictConfig] = {}
# the same -> a configuration with all options, and what they are
_composed: dict[tuple[str, ...], tuple[DictConfig, list[str]]] = {}
_primary: dict[str, Any] = {}
_load_primary = ConfigLoaderImpl._load_primary_config


def remember() -> None:
    """From now on, in this process."""
    utils.compose, utils.initialize = compose, initialize
    ConfigLoaderImpl._load_primary_config = load_hydra_s_own  # type: ignore[method-assign]


def initialize(config_path: str) -> Any:
    """hydra's own searches the stack for the file that calls it, which takes longer than the rest."""
    return initialize_config_dir(str((Path(utils.__file__).parent / config_path).resolve()))


def compose(config_name: str, overrides: list[str], strict: bool) -> DictConfig:
    """What hydra composes, as ``fairseq.dataclass.utils`` asks for it: with all options of the groups."""
    groups = tuple(line for line in overrides if "." not in line.partition("=")[0])
    if groups in _composed:
        earlier, lines = _composed[groups]
        changed = _parsed([new for old, new in zip(lines, overrides) if old != new])
        # hydra merges a dictionary into the one that is there, so the earlier one would shine through.
        same = [line.partition("=")[0] for line in lines] == [line.partition("=")[0] for line in overrides]
        if same and changed is not None and not any(isinstance(one.value(), dict) for one in changed):
            return _with_values(earlier, changed, strict)
    values = _parsed([line for line in overrides if line not in groups])
    if values is None:
        return compose_from_scratch(config_name, overrides=overrides, strict=strict)  # says what is wrong
    made = _with_values(_base(config_name, groups), values, strict)
    _composed[groups] = (copy.deepcopy(made), list(overrides))
    return made


def _base(config_name: str, groups: tuple[str, ...]) -> DictConfig:
    """The parts that groups choose are independent: what fairseq has stored for each is put beside others."""
    if groups not in _bases:
        if groups:
            made = copy.deepcopy(_base(config_name, ()))
            for line in groups:
                name, _, choice = line.partition("=")
                part = copy.deepcopy(ConfigStore.instance().load(f"{name}/{choice}.yaml").node)
                made.__dict__["_content"][name] = part
                part._set_parent(made)
        else:
            with mock.patch.object(ConfigLoaderImpl, "_load_primary_config", load_primary):
                made = compose_from_scratch(config_name, overrides=[], strict=False)
        _bases[groups] = made
    return _bases[groups]


def _parsed(lines: list[str]) -> list[Any] | None:
    """As hydra understands them; ``None`` where it would refuse."""
    overrides = OverridesParser.create().parse_overrides(lines)
    return None if any(override.is_sweep_override() for override in overrides) else overrides


def _with_values(earlier: DictConfig, overrides: list[Any], strict: bool) -> DictConfig:
    made = copy.deepcopy(earlier)
    OmegaConf.set_struct(made, strict)
    ConfigLoaderImpl._apply_overrides_to_config(overrides, made)
    return made


def load_hydra_s_own(self: ConfigLoaderImpl, cfg_filename: str, record_load: bool = True) -> Any:
    """hydra's own defaults are the same for all, also where a recipe is composed."""
    load = load_primary if cfg_filename == "hydra_config" else _load_primary
    return load(self, cfg_filename, record_load)


def load_primary(self: ConfigLoaderImpl, cfg_filename: str, record_load: bool = True) -> Any:
    """fairseq's and hydra's own defaults, which are the same for all command lines: half of the time."""
    if cfg_filename not in _primary:
        _primary[cfg_filename] = _load_primary(self, cfg_filename, record_load)
    return copy.deepcopy(_primary[cfg_filename])
