"""Deep copies of omegaconf's nodes in half of the time: most of what composing a configuration takes.

omegaconf 2.0.6 copies the tree above a node along with it. Here a copy keeps its parent until the container
that is being copied takes it, as that does in any case.
``tests/test_composition.py`` compares the results.
"""

from __future__ import annotations

import copy
from typing import Any

from omegaconf import DictConfig, ListConfig
from omegaconf.base import Metadata
from omegaconf.nodes import ValueNode

# Class -> the method that is replaced, and what it was.
OMEGACONF_S_OWN: dict[Any, tuple[str, Any]] = {
    ValueNode: ("_deepcopy_impl", ValueNode._deepcopy_impl),
    DictConfig: ("__deepcopy__", DictConfig.__deepcopy__),
    ListConfig: ("__deepcopy__", ListConfig.__deepcopy__),
}


def use() -> None:
    """From now on, in this process."""
    ValueNode._deepcopy_impl = _copy_value  # type: ignore[method-assign]
    for kind in (DictConfig, ListConfig):
        kind.__deepcopy__ = _copied_container  # type: ignore[method-assign, assignment]


def _copy_value(self: ValueNode, res: Any, memo: Any = None) -> None:
    res.__dict__ = {**self.__dict__, "_metadata": _copied(self._metadata)}
    value = self.__dict__["_val"]
    if not isinstance(value, (str, int, float, bool, type(None))):
        res.__dict__["_val"] = copy.deepcopy(value, memo)


def _copied_container(self: Any, memo: Any = None) -> Any:
    made = object.__new__(type(self))
    made.__dict__.update(self.__dict__)
    made.__dict__["_metadata"] = _copied(self._metadata)
    content = self.__dict__["_content"]
    if isinstance(content, dict):
        made.__dict__["_content"] = {key: copy.deepcopy(value, memo) for key, value in content.items()}
    elif isinstance(content, list):
        made.__dict__["_content"] = [copy.deepcopy(value, memo) for value in content]
    made._re_parent()
    return made


def _copied(metadata: Metadata) -> Metadata:
    made = copy.copy(metadata)
    made.flags = dict(metadata.flags)
    made.resolver_cache = copy.deepcopy(metadata.resolver_cache)
    return made
