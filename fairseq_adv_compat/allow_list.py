"""The classes and functions that a fairseq checkpoint may name: all of them only hold data.

A name is written in the pickle as ``module.name``. It is looked up in these tables and never imported, so
what is not listed can't be reached.
"""

from __future__ import annotations

import argparse
import collections
import enum
import pickle
import re
import sys
import typing
from functools import partial
from typing import Any

import numpy as np

__all__ = ["fairseq_globals", "plain_globals"]


def numpy_scalar(dtype: Any, data: Any = b"") -> Any:
    """A numpy number from the bytes of its pickle, as left behind by a metric computed with numpy.

    Raises:
        pickle.UnpicklingError: it is not a bool, an integer, a float or a complex number.
    """
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufc" or not isinstance(data, bytes):
        raise pickle.UnpicklingError(f"GLOBAL numpy.core.multiarray.scalar of {dtype!r}")
    return np.frombuffer(data, dtype)[0]


def numpy_dtype(code: Any, align: Any = False, copy: Any = True) -> Any:
    """A type of numbers of its own: numpy's are shared, and a pickle could change them.

    Raises:
        pickle.UnpicklingError: it is not a number's.
    """
    if not isinstance(code, str) or not re.fullmatch(r"[biufc]\d{1,2}", code):
        raise pickle.UnpicklingError(f"GLOBAL numpy.dtype of {code!r:.60}")
    return np.dtype(code, False, True)


def plain_globals() -> dict[str, Any]:
    """The names that any fairseq checkpoint may contain in addition to tensors: name in the pickle -> object.

    ``args``/``cfg``: Namespace and omegaconf's containers; ``extra_state``: meters (whole objects in
    checkpoints of fairseq < 0.9, also under their old module name) and numpy numbers; ``task_state``:
    dictionaries.
    """
    from fairseq.data.dictionary import Dictionary
    from fairseq.logging import meters
    from omegaconf import base, dictconfig, listconfig, nodes

    found: dict[str, Any] = {
        "argparse.Namespace": argparse.Namespace,
        "collections.defaultdict": collections.defaultdict,
        "typing.Any": typing.Any,
        "fairseq.data.dictionary.Dictionary": Dictionary,
        "numpy.core.multiarray.scalar": numpy_scalar,
        "numpy._core.multiarray.scalar": numpy_scalar,
        "numpy.dtype": numpy_dtype,
    }
    kind: Any
    for kind in (bool, dict, float, int, list, str, tuple):
        found[f"builtins.{kind.__name__}"] = kind
    for meter in (meters.AverageMeter, meters.SumMeter, meters.StopwatchMeter, meters.TimeMeter):
        found[f"fairseq.meters.{meter.__name__}"] = meter
        found[f"fairseq.logging.meters.{meter.__name__}"] = meter
    for kind in (
        base.Metadata, base.ContainerMetadata, dictconfig.DictConfig, listconfig.ListConfig, nodes.AnyNode,
        nodes.BooleanNode, nodes.EnumNode, nodes.FloatNode, nodes.IntegerNode, nodes.StringNode,
    ):  # fmt: skip
        found[_name(kind)] = kind
    for code in "?bBhHiIlLqQefdgFDG":
        kind = type(np.dtype(code))  # a pickled dtype sets the state of an object of this class
        found[_name(kind)] = kind
    return found


class ConfigurationClass:
    """Stands for a dataclass of fairseq, which a ``DictConfig`` names that was made from one."""


def fairseq_globals() -> dict[str, Any]:
    """Configuration classes and enums of fairseq and of plug-ins that have been imported.

    The dataclasses are not built. A member of an enum is looked up by a function: an object of a listed class
    could be changed by the pickle, and a member is shared by the whole process. In the state that rank 0
    sends to the other workers each tensor is replaced by a placeholder.
    """
    from fairseq.dataclass import FairseqDataclass
    from fairseq.distributed.utils import _TensorPlaceholder

    dataclasses = (FairseqDataclass, *_subclasses(FairseqDataclass))
    found: dict[str, Any] = {_name(kind): ConfigurationClass for kind in dataclasses}
    enums = (kind for kind in _subclasses(enum.Enum) if kind.__module__.startswith("fairseq."))
    found.update({_name(kind): partial(_member, kind) for kind in enums if _is_found_by_name(kind)})
    return {**found, _name(_TensorPlaceholder): _TensorPlaceholder}


def _member(kind: Any, value: Any) -> Any:
    return kind(value)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_found_by_name(kind: Any) -> bool:
    """False for fairseq's ``ChoiceEnum`` classes, which pickle can't write either."""
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


def _subclasses(kind: type) -> list[type]:
    found: list[type] = []
    children: list[type] = type.__subclasses__(kind)
    for child in children:
        found += [child, *_subclasses(child)]
    return found
