"""Files in place of a checkpoint, or beside it, that would run code, take all memory or never end."""

from __future__ import annotations

import builtins
import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Each gets the content of a good checkpoint, where to write, and the canary that its code would make.
Made = Callable[[dict[str, Any], Path, Path], object]


class Call:
    """Pickled, it is a call of a function."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


def touch(canary: Path) -> Call:
    return Call(os.system, f"touch '{canary}'")


def _saved(change: Callable[[dict[str, Any], Path], object], zipped: bool = True) -> Made:
    def make(state: dict[str, Any], path: Path, canary: Path) -> None:
        change(state, canary)
        torch.save(state, path, _use_new_zipfile_serialization=zipped)

    return make


def _content(content: Callable[[Path], bytes]) -> Made:
    return lambda state, path, canary: path.write_bytes(content(canary))


def _parts(names: Callable[[Path], dict[str, bytes]], packing: int = zipfile.ZIP_STORED) -> Made:
    """A zip with these parts instead of, or besides, those that ``torch.save`` wrote."""

    def make(state: dict[str, Any], path: Path, canary: Path) -> None:
        good = io.BytesIO()
        torch.save(state, good)
        with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, "w", packing) as target:
            content = {part: source.read(part) for part in source.namelist()}
            root = next(iter(content)).split("/")[0]
            changed = {name.replace("ROOT", root): value for name, value in names(canary).items()}
            for name, value in {**content, **changed}.items():
                target.writestr(name, value)

    return make


def _pickle(canary: Path) -> bytes:
    return pickle.dumps(touch(canary), protocol=2)


def _storage(numbers: int) -> bytes:
    """A tensor whose storage claims so many numbers, in instructions of a pickle."""
    count = pickle.dumps(numbers, protocol=2)[2:-1]
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0000X\x03\0\0\0cpu"
        + count + b"tQK\0" + count + b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
    )  # fmt: skip


def _tar(*names: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"x" * 4))
    return made.getvalue()


def _program(state: dict[str, Any], path: Path, canary: Path) -> None:
    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    torch.jit.script(Program()).save(str(path))


def _npz(canary: Path) -> bytes:
    made = io.BytesIO()
    np.savez(made, x=np.array([touch(canary)], dtype=object), allow_pickle=np.array(True))
    return made.getvalue()


def _old_head(canary: Path) -> bytes:
    """torch's format before 1.6: a magic number, a version, what the machine is, the object."""
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, touch(canary))
    return b"".join(pickle.dumps(part, protocol=2) for part in parts)


CHECKPOINTS: dict[str, Made] = {
    # pickles
    "a call in the options": _saved(lambda state, canary: state["cfg"]["task"].update(data=touch(canary))),
    "a call in the weights": _saved(lambda state, canary: state["model"].update(version=touch(canary))),
    "a call in the optimizer": _saved(lambda state, canary: state.update(last_optimizer_state=touch(canary))),
    "a call in old torch's format": _saved(lambda state, canary: state.update(x=touch(canary)), zipped=False),
    "a call in the arguments of a listed class": _saved(
        lambda state, canary: state.update(x=Call(defaultdict, None, {"x": touch(canary)}))
    ),
    "a call in the state of a listed class": _saved(
        lambda state, canary: state["cfg"].update(model=Call(Namespace, state={"data": touch(canary)}))
    ),
    "a function as the factory": _saved(lambda state, canary: state.update(x=Call(defaultdict, os.getcwd))),
    "a numpy number that is an object": _saved(lambda state, canary: state.update(
        x=Call(np.float64(1).__reduce__()[0], np.dtype(object), pickle.dumps(touch(canary)))
    )),
    "eval": _saved(lambda state, canary: state.update(x=Call(eval, f"open({str(canary)!r}, 'w')"))),
    "exec": _saved(lambda state, canary: state.update(x=Call(exec, f"open({str(canary)!r}, 'w')"))),
    "open": _saved(lambda state, canary: state.update(x=Call(builtins.open, str(canary), "w"))),
    "import": _saved(lambda state, canary: state.update(x=Call(__import__, "antigravity"))),
    "getattr": _saved(lambda state, canary: state.update(x=Call(getattr, Call(defaultdict), "__class__"))),
    "a path's own method": _saved(lambda state, canary: state.update(x=Call(Path.touch, canary))),
    "torch.load in torch.load": _saved(lambda state, canary: state.update(x=Call(torch.load, str(canary)))),
    "torch.hub": _saved(lambda state, canary: state.update(x=Call(torch.hub.load, "a/b", "c"))),
    "a pickle alone": _content(_pickle),
    "a pickle behind torch's head": _content(_old_head),
    "a pickle, packed": _content(lambda canary: gzip.compress(_pickle(canary))),
    "nested too deep": _content(lambda canary: b"\x80\x02" + b"(" * 1_000_000 + b"t" * 1_000_000 + b"."),
    "a number of a billion digits": _content(lambda canary: b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1)),
    "a text of four gigabytes": _content(lambda canary: b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"x"),
    # zips and tars
    "a pickle in place of its data": _parts(lambda canary: {"ROOT/data.pkl": _pickle(canary)}),
    "a tensor of a terabyte": _parts(lambda canary: {"ROOT/data.pkl": _storage(1 << 38)}),
    "a tensor of negative size": _parts(lambda canary: {"ROOT/data.pkl": _storage(-1)}),
    "names that lead out": _parts(lambda canary: {
        f"ROOT/../../../../../../../..{canary}": b"x", str(canary): b"x", "ROOT/data.pkl": b"",
    }),
    "code of TorchScript": _parts(lambda canary: {
        "ROOT/constants.pkl": _pickle(canary), "ROOT/code/x.py": b"x",
    }),
    "a bomb": _parts(lambda canary: {"ROOT/data/0": bytes(64 << 20)}, zipfile.ZIP_DEFLATED),
    "a TorchScript program": _program,
    "a zip without a part": _content(lambda canary: b"PK\x05\x06" + bytes(18)),
    "a zip in name alone": _content(lambda canary: b"PK\x03\x04" + bytes(2000)),
    "a tar as torch 0.1 wrote": _content(lambda canary: _tar("sys_info", "pickle", "storages", "tensors")),
    "a tar that leads out": _content(lambda canary: _tar(f"../../../../../../../..{canary}")),
    # others
    "an npz with objects": _content(_npz),
    "nothing": _content(lambda canary: b""),
    "a script": _content(lambda canary: f"#!/bin/sh\ntouch '{canary}'\n".encode()),
    "yaml with a call": _content(
        lambda canary: f"!!python/object/apply:os.system ['touch {canary}']\n".encode()
    ),
    "a template": _content(lambda canary: b"{{ cycler.__init__.__globals__.os.system('id') }}"),
    "a web page": _content(lambda canary: b"<!doctype html><title>404</title>"),
    "a Git LFS pointer": _content(lambda canary: b"version https://git-lfs.github.com/spec/v1\noid sha256"),
    "a list": lambda state, path, canary: torch.save([1, 2], path),
    "no weights": lambda state, path, canary: torch.save({"cfg": state["cfg"], "args": None}, path),
    "weights that are texts": _saved(
        lambda state, canary: state.update(model=dict.fromkeys(state["model"], "x"))
    ),
    "options that are a text": _saved(lambda state, canary: state.update(cfg="x", args="y")),
    "no options": _saved(lambda state, canary: state.update(cfg=None, args=None)),
}  # fmt: skip
