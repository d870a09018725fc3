"""Turns the configuration in a checkpoint into plain Python, and refuses what fairseq does not write there.

Some classes that a checkpoint may name hold other data: omegaconf's containers and nodes, meters, fairseq's
own configurations. omegaconf and fairseq unwrap them later, out of sight of a check. So here only the types
that fairseq 0.12.2 writes pass, each by the identity of its class, and omegaconf's containers are unwrapped.
"""

from __future__ import annotations

import enum
from argparse import Namespace
from typing import Any

from omegaconf import DictConfig, ListConfig, nodes

__all__ = ["Refused", "plain_options", "type_name"]

_SCALARS = (type(None), bool, float)
_NODES = (
    nodes.AnyNode, nodes.BooleanNode, nodes.EnumNode, nodes.FloatNode, nodes.IntegerNode, nodes.StringNode,
)  # fmt: skip
# A RoBERTa has 800 values. hydra, which converts old-style args, takes seconds for a list of 5000.
_MOST = 10_000  # values in all; 50 characters count as one
_MOST_ITEMS = 1000  # of a list
_LONGEST = 1 << 17  # characters; Linux allows no longer argument of a command
_DEEPEST = 50  # levels of nested parts
_BITS = 64


class Refused(Exception):
    """A configuration that may run code; the message names the option, but not the file."""


def plain_options(value: Any, where: str, strict: bool = True) -> Any:
    """A copy of ``value`` made of None, bool, int, float, str, list, tuple, dict and Namespace only.

    Args:
        strict: refuse other types. Otherwise they pass as they are, for a configuration that was read before
            and to which a caller may have added objects.

    Raises:
        Refused: it holds an object of another type, an interpolation (``${...}``), or too much.
    """
    return _Copy(strict).of(value, where)


def type_name(value: Any) -> str:
    """The name of a value's class, with its module if it isn't a builtin."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Copy:
    def __init__(self, strict: bool) -> None:
        self.strict, self.left = strict, _MOST

    def of(self, value: Any, where: str, depth: int = 0) -> Any:
        kind, self.left = type(value), self.left - 1
        if self.left < 0:
            raise Refused(f"{where:.100} and what is before it are more than {_MOST} values")
        if depth > _DEEPEST:
            raise Refused(f"{where:.100} has more than {_DEEPEST} levels")
        if kind in _SCALARS or (kind is int and value.bit_length() < _BITS):
            return value
        if kind is str:
            return self._text(value, where)
        if kind is dict:
            return self._named(value, where, depth)
        if kind is Namespace:
            copy = Namespace()
            copy.__dict__.update(self._named(value.__dict__, where, depth))
            return copy
        if kind in (list, tuple):
            if len(value) > _MOST_ITEMS:
                raise Refused(f"{where:.100} is a {kind.__name__} of {len(value)} items")
            return kind([self.of(one, f"{where}[{i}]", depth + 1) for i, one in enumerate(value)])
        if kind in (DictConfig, ListConfig):
            return self._content(value.__dict__.get("_content"), where, depth)
        if isinstance(value, enum.Enum) and kind.__module__.startswith("fairseq."):
            return self.of(value.name, where, depth)  # as fairseq's trainer writes it
        if self.strict:
            raise Refused(f"{where} is a {type_name(value)}, which fairseq does not write there")
        return value

    def _content(self, content: Any, where: str, depth: int) -> Any:
        """What a container of omegaconf holds: nodes and containers."""
        unwrapped: Any = content
        if type(content) is dict:
            unwrapped = {name: _unwrapped(one) for name, one in content.items()}
        elif type(content) is list:
            unwrapped = [_unwrapped(one) for one in content]
        elif content is not None and type(content) is not str:  # a missing or an interpolated container
            raise Refused(f"{where} is a container of a {type_name(content)}")
        return self.of(unwrapped, where, depth)

    def _named(self, options: dict[Any, Any], where: str, depth: int) -> dict[str, Any]:
        copy = {}
        for name, one in options.items():
            if type(name) is not str or (name.startswith("__") and name.endswith("__")):
                raise Refused(f"{where} has an option with the name {name!r:.60}, a {type_name(name)}")
            shown = name if name.isidentifier() else repr(name)
            copy[name] = self.of(one, f"{where}.{shown:.60}", depth + 1)
        return copy

    def _text(self, text: str, where: str) -> str:
        self.left -= len(text) // 50
        if len(text) > _LONGEST:
            raise Refused(f"{where} is a text of {len(text)} characters")
        if "${" in text:
            raise Refused(f"{where} is {text!r:.60}: it refers to another value, which fairseq would look up")
        return text


def _unwrapped(node: Any) -> Any:
    return node.__dict__.get("_val") if type(node) in _NODES else node
