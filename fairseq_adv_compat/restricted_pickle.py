"""A pickle module for ``torch.load`` that builds tensors and the listed classes, and nothing else.

:func:`scan` reads every checkpoint with it before torch does, without its tensors, because torch's own
``weights_only=True`` calls a listed class with any arguments and hashes any key: a few bytes are enough for
it to run forever. For torch < 2.10 this module is also the reader, since ``weights_only=True`` either accepts
no further classes (< 2.4) or can be bypassed (CVE-2025-32434, < 2.6; CVE-2026-24747, < 2.10). Like torch's
later one it refuses, in addition to unknown names, every instruction that would call or change anything but
an object of a listed class, and tensors whose part of the file has the wrong size.
"""

from __future__ import annotations

import _compat_pickle
import collections
import io
import math
import os
import pickle
import tarfile
from typing import IO, Any, Callable

import numpy as np
import torch

from .allow_list import fairseq_globals, plain_globals
from .plain_options import type_name
from .zip_files import part_sizes

_MOST_BYTES = 1 << 22  # of a pickle without its tensors; torch.save writes 200 for each of them
_DEEPEST = 1000  # levels of unfinished lists, dicts and tuples
_MOST_COPIED = 1 << 20  # items and characters of all arguments: each call copies its own
_DICTS = (dict, collections.OrderedDict, collections.defaultdict)
_SCALARS = (type(None), bool, int, float, str, bytes)  # whose hash takes no longer than reading them

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


# The other instructions that torch's reader knows; they only make and store data.
_HARMLESS = (
    pickle.GLOBAL + pickle.TUPLE + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3 + pickle.NONE
    + pickle.NEWFALSE + pickle.NEWTRUE + pickle.EMPTY_TUPLE + pickle.EMPTY_LIST + pickle.EMPTY_DICT
    + pickle.EMPTY_SET + pickle.BININT + pickle.BININT1 + pickle.BININT2 + pickle.BINFLOAT
    + pickle.BINUNICODE + pickle.SHORT_BINSTRING + pickle.BINGET + pickle.LONG_BINGET + pickle.BINPUT
    + pickle.LONG_BINPUT + pickle.LONG1 + pickle.PROTO + pickle.STOP
)  # fmt: skip


class _Part:
    """Stands for a tensor, or its storage, in :func:`scan`."""

    def __init__(self, items: int) -> None:
        self.items = items


def _part(of: Any, *args: Any) -> _Part:
    """In place of torch's functions, which get a storage, an offset and a size, or a tensor."""
    if type(of) is not _Part or (len(args) > 3 and math.prod(args[1]) > of.items):
        raise pickle.UnpicklingError("a tensor of more items than are in the file")
    return of


def _refused(unpickler: Any) -> None:
    raise pickle.UnpicklingError("an instruction that torch.save does not write")


def _checked(opcode: bytes, allowed: Callable[[Any], bool]) -> Any:
    """The instruction ``opcode``, executed only if ``allowed(unpickler)``."""
    carry_out = _Base.dispatch[opcode[0]]

    def checked(unpickler: Any) -> None:
        if not allowed(unpickler):
            kinds = " and ".join(type_name(one) for one in unpickler.stack[-2:])  # their texts may be endless
            raise pickle.UnpicklingError(f"an instruction that torch.save does not write, with {kinds}")
        carry_out(unpickler)

    return checked


def _may_call(unpickler: Any) -> bool:
    called, args = unpickler.stack[-2:]
    if type(args) is not tuple or id(called) not in unpickler.listed_ids:  # by identity: some define `==`
        return False
    return not args or (id(called) in unpickler.called_ids and all(map(unpickler.is_argument, args)))


def _may_make(unpickler: Any) -> bool:
    return id(unpickler.stack[-2]) in unpickler.listed_ids and unpickler.stack[-1] == ()


def _may_build(unpickler: Any) -> bool:
    made, state = unpickler.stack[-2:]
    if isinstance(made, np.dtype):  # (version, byte order, subarray, names, fields, …)
        return type(state) is tuple and state[2:5] == (None, None, None)
    return id(type(made)) in unpickler.listed_ids and type(state) is dict


def _is_storage_key(unpickler: Any) -> bool:
    value = unpickler.stack[-1]
    return type(value) is tuple and value[:1] in (("storage",), (b"storage",)) and len(value) > 4


def _may_set(unpickler: Any) -> bool:
    names = unpickler.stack[::2]
    return type(_below_mark(unpickler)) in _DICTS and all(type(name) in _SCALARS for name in names)


def _may_set_one(unpickler: Any) -> bool:
    return type(unpickler.stack[-3]) in _DICTS and type(unpickler.stack[-2]) in _SCALARS


def _below_mark(unpickler: Any) -> Any:
    return unpickler.metastack[-1][-1]  # the items since the mark are on a separate stack


class Unpickler(_Base):  # type: ignore[misc]
    """``pickle.Unpickler`` reduced to what a checkpoint needs (protocol 2, as ``torch.save`` writes)."""

    dispatch = {
        **dict.fromkeys(_Base.dispatch, _refused),
        **{instruction: _Base.dispatch[instruction] for instruction in _HARMLESS},
        pickle.MARK[0]: _checked(pickle.MARK, lambda unpickler: len(unpickler.metastack) < _DEEPEST),
        pickle.REDUCE[0]: _checked(pickle.REDUCE, _may_call),
        pickle.NEWOBJ[0]: _checked(pickle.NEWOBJ, _may_make),
        pickle.BUILD[0]: _checked(pickle.BUILD, _may_build),
        pickle.BINPERSID[0]: _checked(pickle.BINPERSID, _is_storage_key),
        # Lists and dicts are filled by their own methods, never by a method of a listed class.
        pickle.APPEND[0]: _checked(pickle.APPEND, lambda unpickler: type(unpickler.stack[-2]) is list),
        pickle.APPENDS[0]: _checked(pickle.APPENDS, lambda unpickler: type(_below_mark(unpickler)) is list),
        pickle.SETITEM[0]: _checked(pickle.SETITEM, _may_set_one),
        pickle.SETITEMS[0]: _checked(pickle.SETITEMS, _may_set),
    }

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(file, **options)
        tensors, others = _tensor_globals(), {**plain_globals(), **fairseq_globals()}
        self.listed = {**tensors, **others}
        self.listed_ids = {id(value) for value in self.listed.values()}
        called = [value for value in others.values() if not isinstance(value, type)]  # functions
        self.called_ids = {id(value) for value in (*called, *tensors.values(), collections.defaultdict)}
        self.left = _MOST_COPIED

    def is_argument(self, value: Any) -> bool:
        """Whether a call takes no longer for this argument than reading it did."""
        kind = type(value)
        if kind in (list, tuple, str, bytes):
            self.left -= len(value)
            return self.left >= 0 and (kind in _SCALARS or all(type(one) in _SCALARS for one in value))
        return (
            kind in _SCALARS
            or (kind is collections.OrderedDict and not value)
            or id(value) in self.listed_ids
            or isinstance(value, (_Part, torch.Tensor, np.dtype))
            or torch.is_storage(value)
        )

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


def load(file: IO[bytes], **options: Any) -> Any:
    """``pickle.load`` with :class:`Unpickler`."""
    return Unpickler(file, **options).load()


class _Scan(Unpickler):
    """Reads a pickle with stand-ins for its tensors, and notes their storages: key -> bytes."""

    def __init__(self, content: bytes | IO[bytes]) -> None:
        super().__init__(io.BytesIO(content) if isinstance(content, bytes) else content, encoding="utf-8")
        self.storages: dict[Any, int] = {}
        for name, value in _tensor_globals().items():
            if name.startswith("torch._utils."):
                self.listed[name] = _part
                self.listed_ids.discard(id(value))
        self.listed_ids.add(id(_part))
        self.called_ids.add(id(_part))

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "torch" and "Storage" in name:
            return torch.serialization.StorageType(name)  # type: ignore[no-untyped-call]
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> _Part:
        _, kind, key, _, numel = pid[:5]
        if type(key) is not str or type(numel) is not int or numel < 0:
            raise pickle.UnpicklingError("a tensor of no size")
        bytes_each = torch.empty(0, dtype=getattr(kind, "dtype", torch.uint8)).element_size()
        self.storages[key] = max(self.storages.get(key, 0), numel * bytes_each)
        return _Part(numel)


def scan(file: IO[bytes]) -> None:
    """Reads the pickles of a checkpoint, without its tensors; restores the position in ``file``.

    Raises:
        pickle.UnpicklingError: they contain anything but data, more than 4 MB without the tensors, or a
            tensor of another size than its part of the file (which torch < 2.10 would read anyway).
    """
    start = file.tell()
    try:
        is_zip = file.read(2) == b"PK"
        file.seek(start)
        if is_zip:
            _scan_zip(file)
        elif tarfile.is_tarfile(file):
            raise pickle.UnpicklingError("legacy .tar")
        else:
            _scan_old(file)
    finally:
        file.seek(start)


def _scan_zip(file: IO[bytes]) -> None:
    sizes = part_sizes(file)
    if sizes.get("data.pkl", 0) > _MOST_BYTES:
        raise pickle.UnpicklingError(f"a pickle of {sizes['data.pkl']} bytes")
    reader = torch._C.PyTorchFileReader(file)
    if "constants.pkl" in sizes:
        raise pickle.UnpicklingError("a TorchScript program")
    found = _Scan(reader.get_record("data.pkl"))
    found.load()
    for key, size in found.storages.items():
        if size != sizes.get(f"data/{key}"):
            raise pickle.UnpicklingError(f"a tensor of {size} bytes, in a part of another size")


def _scan_old(file: IO[bytes]) -> None:
    """torch's format before 1.6: a magic number, a version, the machine, the object, the keys of its
    storages, and the storages, each after the number of its items."""
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    content = io.BytesIO(file.read(_MOST_BYTES))
    for _ in range(3):
        _Scan(content).load()
    found = _Scan(content)
    found.load()
    keys = _Scan(content).load()
    if type(keys) is not list or set(keys) != set(found.storages) or sum(found.storages.values()) > size:
        raise pickle.UnpicklingError("tensors that are not in the file")
