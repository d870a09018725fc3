"""A pickle module for ``torch.load`` that builds tensors and the listed classes, and nothing else.

Only for torch < 2.10, whose own ``weights_only=True`` either accepts no further classes (< 2.4) or can be
bypassed (CVE-2025-32434, < 2.6; CVE-2026-24747, < 2.10). Like torch's later one it refuses, in addition to
unknown names, every instruction that would call or change anything but an object of a listed class, and
tensors whose part of the file has the wrong size.
"""

from __future__ import annotations

import _compat_pickle
import collections
import pickle
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import IO, Any, Callable, Optional

import torch

from .allow_list import fairseq_globals, plain_globals
from .module_view import ModuleView

# `pickle._Unpickler` is the standard library's own, in Python: BUILD can't be overridden in the C version.
_Base: Any = pickle._Unpickler  # type: ignore[attr-defined]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Protocol 2 writes bytes as a latin-1 string; other codecs are not needed here."""
    if encoding != "latin1":
        raise pickle.UnpicklingError("GLOBAL _codecs.encode with a codec other than latin1")
    return text.encode("latin1")


def _tensor_globals() -> dict[str, Any]:
    found: dict[str, Any] = {
        "_codecs.encode": _encode,
        "builtins.set": set,
        "collections.OrderedDict": collections.OrderedDict,
        "torch.Size": torch.Size,
        "torch.device": torch.device,
    }
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"):
        found[f"torch._utils.{name}"] = getattr(torch._utils, name)
    for value in vars(torch).values():
        if isinstance(value, torch.dtype):
            found[str(value)] = value
    for name in ("TypedStorage", "UntypedStorage", "_TypedStorage", "_UntypedStorage"):
        if hasattr(torch.storage, name):
            found[f"torch.storage.{name}"] = getattr(torch.storage, name)
    return found


def _refused(unpickler: Any) -> None:
    raise pickle.UnpicklingError("an instruction that torch.save does not write")


def _checked(opcode: bytes, target: Callable[[Any], Any], allowed: Callable[[Any, Any], bool]) -> Any:
    """The instruction ``opcode``, executed only if ``allowed(unpickler, target(unpickler))``."""
    carry_out = _Base.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        value = target(unpickler)
        if not allowed(unpickler, value):
            raise pickle.UnpicklingError(f"an instruction that would call or change {value!r:.80}")
        carry_out(unpickler)

    return checked


def _is_listed(unpickler: Any, value: Any) -> bool:
    return id(value) in unpickler.listed_ids  # by identity: some classes define their own `==`


def _is_storage_key(unpickler: Any, value: Any) -> bool:
    if type(value) is not tuple or value[:1] not in (("storage",), (b"storage",)) or len(value) < 5:
        return False
    _, kind, key, _, numel = value[:5]
    if unpickler.sizes is None:
        return True
    # torch < 2.10 reads this many numbers, whether they exist or not (CVE-2026-24747).
    bytes_each = torch.empty(0, dtype=getattr(kind, "dtype", torch.uint8)).element_size()
    return type(numel) is int and numel * bytes_each == unpickler.sizes.get(key)


def _is_list(unpickler: Any, value: Any) -> bool:
    return type(value) is list


def _is_dict(unpickler: Any, value: Any) -> bool:
    return type(value) in (dict, collections.OrderedDict, collections.defaultdict)


def _below(depth: int) -> Callable[[Any], Any]:
    return lambda unpickler: unpickler.stack[-1 - depth]


def _below_mark(unpickler: Any) -> Any:
    return unpickler.metastack[-1][-1]  # the items since the mark are on a separate stack


class Unpickler(_Base):  # type: ignore[misc]
    """``pickle.Unpickler`` reduced to what a checkpoint needs (protocol 2, as ``torch.save`` writes)."""

    dispatch = {
        **_Base.dispatch,
        pickle.REDUCE[0]: _checked(pickle.REDUCE, _below(1), _is_listed),
        pickle.NEWOBJ[0]: _checked(pickle.NEWOBJ, _below(1), _is_listed),
        pickle.BUILD[0]: _checked(pickle.BUILD, lambda u: type(u.stack[-2]), _is_listed),
        pickle.BINPERSID[0]: _checked(pickle.BINPERSID, _below(0), _is_storage_key),
        # Lists and dicts are filled by their own methods, never by a method of a listed class.
        pickle.APPEND[0]: _checked(pickle.APPEND, _below(1), _is_list),
        pickle.APPENDS[0]: _checked(pickle.APPENDS, _below_mark, _is_list),
        pickle.SETITEM[0]: _checked(pickle.SETITEM, _below(2), _is_dict),
        pickle.SETITEMS[0]: _checked(pickle.SETITEMS, _below_mark, _is_dict),
        **dict.fromkeys(pickle.INST + pickle.OBJ + pickle.NEWOBJ_EX + pickle.PERSID, _refused),
        **dict.fromkeys(pickle.EXT1 + pickle.EXT2 + pickle.EXT4, _refused),
    }

    sizes: Optional[Mapping[str, int]] = None
    """Bytes of each tensor's part in a zip file; None for another format, whose reader checks them."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(file, **options)
        self.listed = {**_tensor_globals(), **plain_globals(), **fairseq_globals()}
        self.listed_ids = {id(value) for value in self.listed.values()}

    def find_class(self, module: str, name: str) -> Any:
        """The listed object of this name (torch's own subclass handles the names of storages before).

        Raises:
            pickle.UnpicklingError: there is none.
        """
        if (module, name) in _compat_pickle.NAME_MAPPING:
            module, name = _compat_pickle.NAME_MAPPING[(module, name)]
        else:
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        try:
            return self.listed[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not allowed") from None


def of_sizes(sizes: Mapping[str, int]) -> ModuleType:
    """This module, with an unpickler for a file with parts of these sizes."""
    return ModuleView(sys.modules[__name__], Unpickler=type("Unpickler", (Unpickler,), {"sizes": sizes}))


def load(file: IO[bytes], **options: Any) -> Any:
    """``pickle.load`` with :class:`Unpickler`."""
    return Unpickler(file, **options).load()
