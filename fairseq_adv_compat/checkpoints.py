"""Loads fairseq's checkpoints with ``torch.load(weights_only=True)``, without running code.

fairseq 0.12.2 calls ``torch.load(f)``, which refuses its checkpoints: they contain a Namespace. Here what
:mod:`fairseq_adv_compat.allow_list` lists is loaded, and everything else refused, with an error that names
what and where. The result is checked by :mod:`fairseq_adv_compat.configurations`.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import torch

from . import configurations
from .allow_list import checked_globals, class_name, plain_globals
from .configurations import Refused
from .newer_versions import ModuleView

__all__ = ["OPT_OUT", "Refused", "check_to_build", "load", "load_safely", "trust_workers"]

OPT_OUT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"  # torch's own
_SAFE_TORCH = (2, 10)  # before, weights_only had a hole: CVE-2026-24747
# What torch, fairseq, hydra and omegaconf raise for contents that no checkpoint has.
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError,
    SyntaxError, TypeError, ValueError,
)  # fmt: skip
_MACHINE = "CUDA|cuda|alloc"  # in torch's RuntimeErrors that the file is not the reason for
_FOLDER = 0x10  # for such a part torch reads nothing, and uses uninitialised memory as the weights
_to_build: ContextVar[bool] = ContextVar("to_build", default=False)


def load_safely(module: ModuleType) -> None:
    """Replaces the readers of checkpoints in ``fairseq.checkpoint_utils``."""
    patched: Any = module
    patched.torch = ModuleView(torch, load=load)
    patched.load_checkpoint_to_cpu = _reading(patched.load_checkpoint_to_cpu)
    patched.load_model_ensemble_and_task = _building(patched.load_model_ensemble_and_task)


def mark_plain_globals(_: object = None) -> None:
    """Makes a user's own ``torch.load`` accept the checkpoints that fairseq 0.12.2 writes.

    Called once ``fairseq`` is imported: before, it would change the order in which its modules are imported.
    """
    torch.serialization.add_safe_globals(plain_globals())


def trust_workers(module: ModuleType) -> None:
    """Lets the workers of a training read what rank 0 has read and checked, and sends them.

    fairseq/distributed/utils.py, line 770: ``_broadcast_object_slow``. Their other messages are pickles, too.
    """
    trusting = functools.partial(torch.load, weights_only=False)
    module.torch = ModuleView(torch, load=trusting)  # type: ignore[attr-defined]


def load(f: IO[bytes] | Path, map_location: Any = None, **_: Any) -> Any:
    """``torch.load`` for a checkpoint, with ``cfg`` and ``args`` as plain Python.

    Args:
        f: an open file; or a path, of which only the weights that are used are read, and not checked for
            damage (all are, if it was written before torch 1.6).
        _: ``weights_only``, which people add to fairseq's call; this is safe whatever they pass.

    Raises:
        Refused: it names anything that a fairseq checkpoint does not contain, or its configuration may run
            code (the message has the name, the file and the opt-out); or it is not a checkpoint, or was
            damaged since it was written. None of it has been run in these cases.
    """
    is_path = isinstance(f, Path)
    mmap = is_path and zipfile.is_zipfile(f)
    if _is_trusted():
        return torch.load(f, map_location=map_location, weights_only=False, mmap=mmap)
    source = str(f if is_path else getattr(f, "name", "the checkpoint"))
    _warn_of_old_torch(source)
    try:
        if not isinstance(f, Path):
            _check_sums(f)
        with _allowed(checked_globals()):
            state = torch.load(f, map_location=map_location, weights_only=True, mmap=mmap)
        return configurations.checked(state)
    except Refused as error:
        raise _refusal(source, str(error)) from None
    except pickle.UnpicklingError as error:
        raise _refusal(source, _reason(str(error))) from None
    except (OSError, zipfile.BadZipFile, zlib.error, *_UNREADABLE) as error:
        if re.search(_MACHINE, str(error)):
            raise  # no GPU, no memory
        message = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        raise Refused(f"{source} is damaged, or not a checkpoint ({message:.200}).") from None


@contextmanager
def _allowed(pairs: list[Any]) -> Iterator[None]:
    """In this context ``torch.load`` builds these, and what the user has allowed under other names."""
    before = torch.serialization.get_safe_globals()
    names = {name for _, name in pairs}
    others = [one for one in before if (one[1] if isinstance(one, tuple) else class_name(one)) not in names]
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*others, *pairs])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _is_trusted() -> bool:
    return os.environ.get(OPT_OUT, "").lower() in ("1", "y", "yes", "true")


def _warn_of_old_torch(source: str) -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_TORCH:
        message = f"{source}: a checkpoint may run code in torch {torch.__version__}, which is before 2.10"
        print(f"warning: {message}. Load only files you trust.", file=sys.stderr)


def _check_sums(file: IO[bytes]) -> None:
    """Compares the CRC-32 of each part of a zip file, which ``torch.load`` doesn't: a flipped bit would
    silently change a weight."""
    start = file.tell()
    if file.read(2) == b"PK":
        with zipfile.ZipFile(file) as archive:
            for part in archive.infolist():
                if part.external_attr & _FOLDER:
                    raise zipfile.BadZipFile(f"{part.filename!r:.60} is marked as a folder")
                if part.CRC:  # torch.serialization.set_crc32_options(False) leaves it out
                    with archive.open(part) as content:
                        while content.read(1 << 20):
                            pass
    file.seek(start)


def _reason(message: str) -> str:
    """A pickle reader's message, without torch's advice to read the file unsafely."""
    name = re.search(r"GLOBAL ([\w.]+)", message)
    if name:
        return f"it names `{name.group(1)}`, which fairseq's checkpoints don't contain and might run code"
    reason = message.rpartition("WeightsUnpickler error: ")[2].strip().splitlines() or ["empty"]
    return f"it can't be read as data alone ({reason[0]:.200})"


def _refusal(source: str, reason: str) -> Refused:
    return Refused(
        f"{source} was not loaded: {reason}. None of it was run. "
        f"To load it anyway, set {OPT_OUT}=1: only for files you trust."
    )


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's ``load_checkpoint_to_cpu``, whose result has a configuration converted by omegaconf or hydra,
    which may fill in values of files."""

    @functools.wraps(original)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        from hydra.errors import HydraException

        try:
            state = original(path, *args, **kwargs)
        except Refused:
            raise
        except (HydraException, *_UNREADABLE) as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            raise Refused(f"{path}: not a checkpoint written by fairseq-train ({message:.200})") from error
        if not _is_trusted():
            try:
                configurations.check_converted(state)
            except Refused as error:
                raise _refusal(path, str(error)) from None
        if _to_build.get():
            check_to_build(state, path)
        return state

    return load_checkpoint_to_cpu


def _building(original: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's ``load_model_ensemble_and_task``."""

    @functools.wraps(original)
    def load_model_ensemble_and_task(*args: Any, **kwargs: Any) -> Any:
        token = _to_build.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            _to_build.reset(token)

    return load_model_ensemble_and_task


def check_to_build(state: Any, path: object) -> None:
    """Checks what a model would be built from.

    Args:
        state: from fairseq's ``load_checkpoint_to_cpu``.
        path: its file.

    Raises:
        Refused: its task, architecture or criterion may run code, or it has no weights.
    """
    if not _is_trusted():
        try:
            configurations.check_names(state)
        except Refused as error:
            raise _refusal(str(path), str(error)) from None
