"""Checkpoints load without running code, on every torch that the project declares.

fairseq 0.12.2 calls ``torch.load(f)``. torch >= 2.6 then refuses its checkpoints, because they hold a
Namespace and omegaconf containers; older torch runs whatever the file says. Here both load what
:mod:`fairseq_adv_compat.allow_list` names and refuse all else, by an error that says what and where.
"""

from __future__ import annotations

import os
import pickle
import re
from types import ModuleType
from typing import IO, Any

import torch

from .allow_list import fairseq_globals, plain_globals
from .module_view import ModuleView

OPT_OUT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"  # torch >= 2.6 knows the same variable
NATIVE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)


def apply(module: ModuleType) -> None:
    """Makes ``torch.load`` the load below, for the one module of fairseq that is given."""
    module.torch = ModuleView(torch, load=load)  # type: ignore[attr-defined]


def load(f: IO[bytes], map_location: Any = None) -> Any:
    """``torch.load`` for the checkpoint ``f``, an open file or the buffer of a broadcast.

    Returns:
        what ``torch.load(f, map_location)`` returns.

    Raises:
        pickle.UnpicklingError: if it names anything that a fairseq checkpoint does not hold, with the
            name, the file and the opt-out in the message. Nothing of it has been run then.
    """
    if os.environ.get(OPT_OUT, "").lower() in ("1", "y", "yes", "true"):
        return torch.load(f, map_location=map_location, weights_only=False)
    try:
        return _load_native(f, map_location) if NATIVE else _load_restricted(f, map_location)
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(_refusal(f, str(error))) from None


def mark_plain_globals() -> None:
    """Marks the plain names of fairseq's checkpoints as safe for ``weights_only`` in this process."""
    if NATIVE:
        torch.serialization.add_safe_globals([(value, name) for name, value in plain_globals().items()])


def _load_native(f: IO[bytes], map_location: Any) -> Any:
    mark_plain_globals()  # again: a user's `clear_safe_globals` would have taken them away
    with torch.serialization.safe_globals([(kind, name) for name, kind in fairseq_globals().items()]):
        return torch.load(f, map_location=map_location, weights_only=True)


def _load_restricted(f: IO[bytes], map_location: Any) -> Any:
    from . import restricted_pickle

    # The two readers behind torch.load (the same in every torch < 2.6), because 1.13's torch.load does not
    # use its `pickle_module`.
    readers: Any = torch.serialization
    if not readers._is_zipfile(f):
        return readers._legacy_load(f, map_location, restricted_pickle, encoding="utf-8")
    with readers._open_zipfile_reader(f) as archive:
        if readers._is_torchscript_zip(archive):  # torch.load would have torch.jit run its code
            raise pickle.UnpicklingError("a TorchScript program")
        return readers._load(archive, map_location, restricted_pickle, encoding="utf-8")


def _refusal(f: IO[bytes], reason: str) -> str:
    name = re.search(r"GLOBAL ([\w.]+)", reason)
    if name:
        found = f"it names `{name.group(1)}`"
    else:
        # torch wraps the reason in advice that does not fit here.
        found = f"it cannot be read ({reason.rpartition('WeightsUnpickler error: ')[2].splitlines()[0]})"
    source = getattr(f, "name", "the state that another worker sent")
    return (
        f"{source} was not loaded: {found}, which fairseq's checkpoints do not hold and which might run "
        f"code. Nothing of it was run. To load it all the same, set {OPT_OUT}=1: only for files you trust."
    )
