"""Loads checkpoints without running code, on every torch that the project supports.

fairseq 0.12.2 calls ``torch.load(f)``. torch >= 2.6 then refuses its checkpoints, because they contain a
Namespace and omegaconf containers; older torch runs any code in the file. Here both load what
:mod:`fairseq_adv_compat.allow_list` lists and refuse everything else, with an error that names what and
where. The result is checked by :mod:`fairseq_adv_compat.configurations`.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import IO, Any, Callable

import torch

from . import configurations, restricted_pickle
from .allow_list import fairseq_globals, plain_globals
from .newer_versions import ModuleView
from .plain_options import Refused as RefusedOptions
from .zip_files import Damaged, check_parts

_KINDS = {"TorchScript": "a TorchScript program", "legacy .tar": "of torch's old format, a tar archive"}
# What a pickle reader raises, in addition to its own error, for bytes that are not a pickle.
_UNREADABLE = (AttributeError, EOFError, LookupError, OverflowError, TypeError, ValueError)
_MACHINE = "CUDA|cuda|alloc"  # in torch's RuntimeErrors that a damaged file is not the reason for
OPT_OUT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"  # torch >= 2.6 uses the same variable
_checks: ContextVar[tuple[Callable[[Any], None], ...]] = ContextVar(
    "checks", default=(configurations.check_types, configurations.check_strings)
)  # called with a checkpoint's contents before it is used
_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
_BY_DEFAULT = _VERSION >= (2, 6)  # torch.load uses weights_only by default
NATIVE = _VERSION >= (2, 10)  # torch's own weights_only is safe: before, CVE-2025-32434 and CVE-2026-24747


class Refused(pickle.UnpicklingError, ValueError):
    """A file that is not a checkpoint, or that might run code or exhaust the memory."""


def load_safely(module: ModuleType) -> None:
    """Replaces ``torch.load`` by the load below, for the given module of fairseq only.

    In ``fairseq.checkpoint_utils`` a configuration is checked again after fairseq has converted it, and a
    state that a model is about to be built from is checked more strictly. ``fairseq.distributed.utils`` reads
    what rank 0 has read, checked and converted: nothing is built from its configuration.
    """
    patched: Any = module
    if not hasattr(patched, "load_checkpoint_to_cpu"):
        patched.torch = ModuleView(torch, load=_load_unchecked)
        return
    patched.torch = ModuleView(torch, load=load)
    patched.convert_namespace_to_omegaconf = _converting(patched.convert_namespace_to_omegaconf)
    patched.load_checkpoint_to_cpu = _reading(patched.load_checkpoint_to_cpu)
    patched.load_model_ensemble_and_task = _building(patched.load_model_ensemble_and_task)


def _converting(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """fairseq's conversion of old-style ``args``, by hydra, which may fill in values of files."""

    @functools.wraps(plain)
    def convert_namespace_to_omegaconf(args: Any) -> Any:
        if _is_trusted():
            return plain(args)
        configurations.check_groups(args)
        try:
            cfg = plain(args)
        except Exception as error:
            told = " ".join(f"{type(error).__name__}: {error}".split())
            raise RefusedOptions(f"args can't be converted ({told:.300})") from error
        configurations.check_strings({"cfg": cfg})
        return cfg

    return convert_namespace_to_omegaconf


def _reading(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            state = plain(path, *args, **kwargs)
        except RefusedOptions as error:
            raise _refusal(path, str(error)) from None
        except (AttributeError, LookupError, TypeError) as error:
            told = f"{type(error).__name__}: {error}"
            raise Refused(f"{path}: not a checkpoint written by fairseq-train ({told:.200})") from error
        _run_checks(state, path, [configurations.check_strings])
        return state

    return load_checkpoint_to_cpu


def _building(plain: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's ``load_model_ensemble_and_task``, which may be given the contents of its file."""

    @functools.wraps(plain)
    def load_model_ensemble_and_task(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(plain).bind(*args, **kwargs).arguments
        try:
            with to_build_from():
                if given.get("state") is not None:
                    _run_checks(given["state"], given["filenames"][0], _checks.get()[1:])
                return plain(*args, **kwargs)
        except RefusedOptions as error:
            raise _refusal(", ".join(map(str, given["filenames"])), str(error)) from None

    return load_model_ensemble_and_task


@contextmanager
def to_build_from() -> Iterator[None]:
    """In this block, checkpoints are read to build a model from them, so names and sizes are checked too."""
    if _is_trusted():
        yield
        return
    from .model_size import ModelSize

    size = ModelSize()
    token = _checks.set((*_checks.get()[:2], configurations.check_before_building, size.add))
    try:
        with size:
            yield
    finally:
        _checks.reset(token)


def load(f: IO[bytes], map_location: Any = None) -> Any:
    """``torch.load`` for the checkpoint in the open file ``f``.

    Returns:
        the result of ``torch.load(f, map_location)``, with ``cfg`` and ``args`` as plain Python.

    Raises:
        Refused: it names anything that a fairseq checkpoint does not contain, or its configuration may run
            code (the message has the name, the file and the opt-out); or it is not a checkpoint, or was
            damaged since it was written. None of it has been run in these cases.
    """
    state = _load_unchecked(f, map_location)
    _run_checks(state, _source(f), _checks.get())
    return state


def _load_unchecked(f: IO[bytes], map_location: Any = None) -> Any:
    """As above, without the checks of the configuration; or the buffer of a broadcast."""
    if _is_trusted():
        return torch.load(f, map_location=map_location, weights_only=False)
    try:
        check_parts(f)
        restricted_pickle.scan(f)
        return _load_native(f, map_location) if NATIVE else _load_restricted(f, map_location)
    except pickle.UnpicklingError as error:
        raise _error(f, str(error)) from None
    except Damaged as error:
        told = f"is damaged, or not a checkpoint: {error}. Copy it again, or use an earlier one."
        raise Refused(f"{_source(f)} {told}") from None
    except (RuntimeError, *_UNREADABLE) as error:
        if isinstance(error, RuntimeError) and re.search(_MACHINE, str(error)):
            raise  # a problem of the machine: no GPU, no memory
        told = " ".join(str(error).split())
        raise Refused(f"{_source(f)}: not a checkpoint ({type(error).__name__}: {told:.200})") from None
    except MemoryError:
        raise Refused(f"{_source(f)} was not loaded: it needs more memory than there is.") from None


def _is_trusted() -> bool:
    return os.environ.get(OPT_OUT, "").lower() in ("1", "y", "yes", "true")


def _run_checks(state: Any, source: str, checks: Iterable[Callable[[Any], None]]) -> None:
    if _is_trusted():
        return
    try:
        for check in checks:
            check(state)
    except RefusedOptions as error:
        raise _refusal(source, str(error)) from None


def mark_plain_globals(_: object = None) -> None:
    """Makes a user's own ``torch.load(checkpoint)`` accept the basic names in fairseq's checkpoints.

    Called once ``fairseq`` is imported: before that, it would change the order in which its modules are
    imported. torch before 2.6 accepts them anyway, without any check.
    """
    if _BY_DEFAULT:
        torch.serialization.add_safe_globals([(value, name) for name, value in plain_globals().items()])


def _load_native(f: IO[bytes], map_location: Any) -> Any:
    mark_plain_globals()  # again, because a user's `clear_safe_globals` would have removed them
    with torch.serialization.safe_globals([(kind, name) for name, kind in fairseq_globals().items()]):
        return torch.load(f, map_location=map_location, weights_only=True)


def _load_restricted(f: IO[bytes], map_location: Any) -> Any:
    # The two readers behind torch.load (the same in every torch), because torch.load of 1.13 does not use its
    # `pickle_module`.
    readers: Any = torch.serialization
    if not readers._is_zipfile(f):
        return readers._legacy_load(f, map_location, restricted_pickle, encoding="utf-8")
    with readers._open_zipfile_reader(f) as archive:
        return readers._load(archive, map_location, restricted_pickle, encoding="utf-8")


def _source(f: IO[bytes]) -> str:
    return str(getattr(f, "name", "the state that another worker sent"))


def _error(f: IO[bytes], told: str) -> Refused:
    """The error for a pickle reader's message, without torch's advice to read the file unsafely."""
    name = re.search(r"GLOBAL ([\w.]+)", told)
    if name:
        what = f"it names `{name.group(1)}`, which fairseq's checkpoints don't contain and might run code"
        return _refusal(_source(f), what)
    for sign, what in _KINDS.items():
        if sign in told:
            return _refusal(_source(f), f"it is {what}")
    reason = (told.rpartition("WeightsUnpickler error: ")[2].strip().splitlines() or ["empty"])[0]
    f.seek(0)
    if f.read(1) in (b"P", b"\x80"):  # of a zip file, of a pickle
        return _refusal(_source(f), f"it can't be read as data alone ({reason})")
    return Refused(f"{_source(f)}: not a checkpoint")


def _refusal(source: str, reason: str) -> Refused:
    return Refused(
        f"{source} was not loaded: {reason}. None of it was run. "
        f"To load it anyway, set {OPT_OUT}=1: only for files you trust."
    )
