"""What the pickle of a fairseq checkpoint may name, for ``torch.load(weights_only=True)``.

Only Namespace, dictionaries, meters and plain containers are built. omegaconf's classes, fairseq's
dataclasses and numpy's types have stand-ins, which hold what the pickle gives them, and no more.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import re
from typing import Any

import numpy as np

__all__ = ["StandIn", "built_objects", "checked_globals", "class_name", "plain_globals", "type_name"]

_OMEGACONF = (
    "base.Metadata base.ContainerMetadata dictconfig.DictConfig listconfig.ListConfig nodes.AnyNode "
    "nodes.BooleanNode nodes.EnumNode nodes.FloatNode nodes.IntegerNode nodes.StringNode"
)

_NUMBERS = [f"numpy.{core}.multiarray.scalar" for core in ("core", "_core")]


class StandIn:
    """Stands in place of an object of another class; each class has a subclass with its name."""

    def content(self) -> Any:
        """What a node or a container of omegaconf holds; the stand-in itself if it is neither."""
        return vars(self).get("_val", vars(self).get("_content", self))


class _NumpyType(StandIn):
    """Stands for a type of numbers: the whole process shares numpy's own, which a pickle could change."""

    def __init__(self, code: Any = "", align: Any = False, copy: Any = True) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        self.code = f"{state[1]}{self.code}"  # the order of the bytes


def _numpy_number(dtype: Any, data: Any = b"") -> Any:
    """A number as a metric that was computed with numpy leaves it."""
    if type(dtype) is not _NumpyType or not re.fullmatch(r"[<|=]?[biufc]\d{1,2}", str(dtype.code)):
        raise pickle.UnpicklingError("a number of numpy that is none")
    return np.frombuffer(data, dtype.code)[0]


def built_objects() -> tuple[type, ...]:
    """Classes whose objects are built, from their attributes."""
    from fairseq.data.dictionary import Dictionary
    from fairseq.logging import meters

    classes = (meters.AverageMeter, meters.SumMeter, meters.StopwatchMeter, meters.TimeMeter)
    return (argparse.Namespace, Dictionary, *classes)


def plain_globals() -> list[Any]:
    """Pairs of an object and its name in the pickle, of what fairseq 0.12.2 writes: for a user's own
    ``torch.load``. Beside them torch builds tensors, sets and ordered dictionaries.

    numpy's numbers are numpy's own here. Other libraries allow these, too, and torch would take either of two
    objects that have one name.
    """
    build = np.float64(1).__reduce__()[0]
    types = {
        type(np.dtype(code))
        for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    }
    of_numpy = [*((build, name) for name in _NUMBERS), (np.dtype, "numpy.dtype")]
    return [*_plain(), *of_numpy, *((cls, class_name(cls)) for cls in types)]


def checked_globals() -> list[Any]:
    """Returns them for our own reading, with stand-ins for numpy's numbers, and with :func:`old_globals`."""
    numbers = [(_numpy_number, name) for name in _NUMBERS]
    return [*_plain(), *numbers, (_NumpyType, "numpy.dtype"), *old_globals()]


def _plain() -> list[Any]:
    classes = (collections.defaultdict, bool, dict, float, int, list, str, tuple, *built_objects())
    return [(cls, class_name(cls)) for cls in classes]


def old_globals() -> list[Any]:
    """Returns them for what earlier versions of fairseq wrote: meters, under the name of their module before
    0.9, and options of omegaconf. Dataclasses of plug-ins are found once these were imported."""
    from fairseq.dataclass import FairseqDataclass

    meters = [
        (cls, f"fairseq.meters.{cls.__name__}") for cls in built_objects() if "meters" in class_name(cls)
    ]
    named = ["typing.Any", *(f"omegaconf.{name}" for name in _OMEGACONF.split())]
    named += map(class_name, (FairseqDataclass, *_subclasses(FairseqDataclass)))
    return [*meters, *((type(name, (StandIn,), {}), name) for name in named)]


def class_name(cls: Any) -> str:
    """Names a class or function as a pickle does."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _subclasses(cls: type) -> list[type]:
    subclasses: list[type] = []
    children: list[type] = type.__subclasses__(cls)
    for child in children:
        subclasses += [child, *_subclasses(child)]
    return subclasses


def type_name(value: Any) -> str:
    """The name of a value's class, with its module if it isn't a builtin."""
    cls = type(value)
    is_short = cls.__module__ == "builtins" or isinstance(value, StandIn)
    return cls.__qualname__ if is_short else class_name(cls)
