"""A pickle module for ``torch.load`` that builds tensors and the listed classes, and nothing else.

For torch < 2.6 only, whose own ``weights_only=True`` cannot be told of further classes (< 2.4) or can
be got round (CVE-2025-32434, < 2.6). Like torch's later one it refuses, besides unknown names, every
instruction that would call or change anything but an object of a listed class.
"""

from __future__ import annotations

import _compat_pickle
import collections
import pickle
from typing import IO, Any, Callable

import torch

from .allow_list import fairseq_globals, plain_globals

# `pickle._Unpickler` is the standard library's own, in Python: the C one can't be told how to BUILD.
_Base: Any = pickle._Unpickler  # type: ignore[attr-defined]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Protocol 2 writes bytes as a latin-1 string; other codecs have no business here."""
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


def _checked(opcode: bytes, allowed: Callable[[Any], bool], what: str) -> Callable[[Any], None]:
    """The instruction ``opcode``, carried out only if ``allowed(unpickler)``."""
    run = _Base.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        if not allowed(unpickler):
            raise pickle.UnpicklingError(f"{what} is not allowed")
        run(unpickler)

    return checked


_DICTS = (dict, collections.OrderedDict, collections.defaultdict)


class Unpickler(_Base):  # type: ignore[misc]
    """``pickle.Unpickler`` reduced to what a checkpoint needs (protocol 2, as ``torch.save`` writes)."""

    dispatch = {
        **_Base.dispatch,
        pickle.REDUCE[0]: _checked(pickle.REDUCE, lambda u: u.is_listed(u.stack[-2]), "calling it"),
        pickle.NEWOBJ[0]: _checked(pickle.NEWOBJ, lambda u: u.is_listed(u.stack[-2]), "making such an object"),
        pickle.BUILD[0]: _checked(pickle.BUILD, lambda u: u.is_listed(type(u.stack[-2])), "changing its state"),
        # Filled by their own methods, never by a method of a listed class. After a MARK the target
        # lies under the items, on the stack that was put aside.
        pickle.APPEND[0]: _checked(pickle.APPEND, lambda u: type(u.stack[-2]) is list, "appending to it"),
        pickle.APPENDS[0]: _checked(pickle.APPENDS, lambda u: type(u.metastack[-1][-1]) is list, "extending it"),
        pickle.SETITEM[0]: _checked(pickle.SETITEM, lambda u: type(u.stack[-3]) in _DICTS, "setting its items"),
        pickle.SETITEMS[0]: _checked(
            pickle.SETITEMS, lambda u: type(u.metastack[-1][-1]) in _DICTS, "setting its items"
        ),
        pickle.BINPERSID[0]: _checked(
            pickle.BINPERSID,
            lambda u: type(u.stack[-1]) is tuple and u.stack[-1][:1] in (("storage",), (b"storage",)),
            "a persistent object other than a storage",
        ),
        **dict.fromkeys(
            (code[0] for code in (pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX, pickle.PERSID)), _refused
        ),
        **dict.fromkeys((code[0] for code in (pickle.EXT1, pickle.EXT2, pickle.EXT4)), _refused),
    }

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(file, **options)
        self.listed = {**_tensor_globals(), **plain_globals(), **fairseq_globals()}
        # By identity: some of the classes have an `==` of their own.
        self._listed_ids = {id(value) for value in self.listed.values()}

    def is_listed(self, value: Any) -> bool:
        """Whether ``value`` is itself one of the listed objects."""
        return id(value) in self._listed_ids

    def find_class(self, module: str, name: str) -> Any:
        """The listed object of this name (torch's own subclass takes the names of storages before).

        Raises:
            pickle.UnpicklingError: if there is none.
        """
        if (module, name) in _compat_pickle.NAME_MAPPING:
            module, name = _compat_pickle.NAME_MAPPING[(module, name)]
        else:
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        try:
            return self.listed[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not allowed") from None


def load(file: IO[bytes], **options: Any) -> Any:
    """``pickle.load`` with :class:`Unpickler`."""
    return Unpickler(file, **options).load()
