"""Small files that would keep a reader of pickles or zip files busy for ever, or fill the memory."""

from __future__ import annotations

import io
import pickle
import struct
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import slow

from fairseq_adv_compat import checkpoints, restricted_pickle
from fairseq_adv_compat.allow_list import numpy_dtype

pytestmark = pytest.mark.usefixtures("two_gigabytes_more")


@pytest.fixture(params=[checkpoints.NATIVE, False])
def either_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "NATIVE", request.param)


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _call(name: str, argument: bytes = b"") -> bytes:
    module, _, kind = name.rpartition(".")
    return f"c{module}\n{kind}\n(".encode() + argument + b"tR"


# Its items never end: it has the unknown word at every index.
_DICTIONARY = (
    b"cfairseq.data.dictionary\nDictionary\n)\x81}(" + _text("symbols") + b"]" + _text("indices") + b"}"
    + _text("unk_word") + _text("x") + b"ub"
)  # fmt: skip
_PAIRS = b"K\x01" + b"q\x01h\x01\x86" * 40  # 2 ** 40 numbers, in 160 bytes
_LISTS = b"K\x01q\x00" + b"".join(b"](h%ch%ceq%c" % (k, k, k + 1) for k in range(40))
_COPIES = b"](" + b"N" * 100_000 + b"eq\x01(" + _call("builtins.list", b"h\x01") * 20_000 + b"t"

PICKLES = {
    "a list of a dictionary": _call("builtins.list", _DICTIONARY),
    "a tuple of a dictionary": b"cbuiltins\ntuple\n(" + _DICTIONARY + b"t\x81",
    "a set of a dictionary": _call("builtins.set", _DICTIONARY),
    "a size of a dictionary": _call("torch.Size", _DICTIONARY),
    "a count of a dictionary": _call("collections.Counter", _DICTIONARY),
    "the text of lists in lists": _call("builtins.str", _LISTS),
    "a container of lists in lists": _call("omegaconf.listconfig.ListConfig", _LISTS),
    "a key of pairs of pairs": b"}" + _PAIRS + b"K\x01s",
    "keys of pairs of pairs": b"}(" + _PAIRS + b"K\x01u",
    "a set of pairs of pairs": _call("builtins.set", b"]" + _PAIRS + b"a"),
    "zeros": _call("builtins.bytearray", b"\x8a\x05" + (1 << 36).to_bytes(5, "little")),
    "copies of a list": _COPIES,
    "copies of a text": _text("x" * 100_000) + b"q\x010".replace(b"0", b"\x85(")
    + _call("_codecs.encode", b"h\x01" + _text("latin1")) * 20_000 + b"t",
    "marks": b"(" * 20_000_000,
    "many items": b"](" + b"N" * 20_000_000 + b"e",
}  # fmt: skip


def _zip(path: Path, content: bytes) -> None:
    file = io.BytesIO()
    torch.save({"x": torch.zeros(2)}, file)
    with zipfile.ZipFile(file) as good, zipfile.ZipFile(path, "w") as bad:
        for name in good.namelist():
            bad.writestr(name, content if name.endswith("data.pkl") else good.read(name))


def _old(path: Path, content: bytes) -> None:
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    path.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in head) + content)


@pytest.mark.parametrize(
    ("name", "write"), [*((name, _zip) for name in PICKLES), *(slow(name, _old) for name in PICKLES)]
)
def test_an_endless_pickle_is_refused(name: str, write: Any, tmp_path: Path) -> None:
    """By the scan, before torch's reader or ours, in seconds of the processor; most would take hours."""
    write(tmp_path / "bad.pt", b"\x80\x02" + PICKLES[name] + b".")
    begun = time.process_time()
    with (tmp_path / "bad.pt").open("rb") as file, pytest.raises(checkpoints.Refused):
        checkpoints.load(file)
    assert time.process_time() - begun < 60


def _entry(name: str, at: int, content: bytes, packed: bytes, size: int) -> bytes:
    """Of a zip file's directory, for a part that is packed if the two contents differ."""
    method = 0 if content == packed else 8
    head = (20, 20, 0, method, 0, 0, zlib.crc32(content), len(packed), size, len(name), 0, 0, 0, 0, 0, at)
    return struct.pack("<4s6H3L5H2L", b"PK\1\2", *head) + name.encode()


def _local(name: str, content: bytes, packed: bytes, size: int) -> bytes:
    method = 0 if content == packed else 8
    head = (20, 0, method, 0, 0, zlib.crc32(content), len(packed), size, len(name), 0)
    return struct.pack("<4s5H3L2H", b"PK\3\4", *head) + name.encode() + packed


def _end(count: int, size: int, offset: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, offset, 0)


def test_a_zip_with_two_directories_is_refused() -> None:
    """torch's reader goes to the place that the end of the file names; Python's to the one just before it."""
    file, written, directory = io.BytesIO(), b"", b""
    torch.save({"x": torch.zeros(1 << 20)}, file)
    with zipfile.ZipFile(file) as good:
        for name in good.namelist():
            content = good.read(name)
            squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = squeeze.compress(content) + squeeze.flush() if name.endswith("/0") else content
            directory += _entry(name, len(written), content, packed, len(content))
            written += _local(name, content, packed, len(content))
        count = len(good.namelist())
    names = [f"a/{k}" for k in range(count - 1)]
    names.append("a/" + "x" * (len(directory) - 46 * count - sum(map(len, names)) - 2))
    shift = len(directory)  # Python adds the distance between the two to each place
    shown = b"".join(_entry(name, (1 << 32) - shift, b"", b"", 0) for name in names)
    assert len(shown) == len(directory)
    bad = io.BytesIO(written + directory + shown + _end(count, shift, len(written)))
    assert zipfile.ZipFile(bad).namelist() == names
    bad.seek(0)
    assert len(torch._C.PyTorchFileReader(bad).get_record("data/0")) == 4 << 20
    bad.seek(0)
    with pytest.raises(checkpoints.Refused, match="its directory is not at its end"):
        checkpoints.load(bad)


def test_a_zip_whose_parts_are_the_same_bytes_is_refused() -> None:
    file, written, directory = io.BytesIO(), b"", b""
    torch.save({k: torch.zeros(1000) for k in range(100)}, file)
    with zipfile.ZipFile(file) as good:
        at = 0
        for name in good.namelist():
            content = good.read(name)
            if "/data/" not in name or name.endswith("/data/0"):
                at, written = len(written), written + _local(name, content, content, len(content))
            directory += _entry(name, at, content, content, len(content))
        count = len(good.namelist())
    bad = io.BytesIO(written + directory + _end(count, len(directory), len(written)))
    with pytest.raises(checkpoints.Refused, match="its parts overlap"):
        checkpoints.load(bad)


@pytest.mark.parametrize("name", ["archive/data/1000", "archive/DATA/0", "other/data/0"])
def test_a_part_of_the_same_name_is_refused_or_ignored(name: str) -> None:
    file = io.BytesIO()
    torch.save({"x": torch.zeros(2)}, file)
    with zipfile.ZipFile(file, "a") as more:
        more.writestr(name, bytes(4000))
    file.seek(0)
    if name.endswith("1000"):
        assert checkpoints.load(file)["x"].tolist() == [0, 0]
    else:
        with pytest.raises(checkpoints.Refused, match="two parts with the same name"):
            checkpoints.load(file)


@pytest.mark.usefixtures("either_reader")
def test_old_files_hold_what_they_claim(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.save({"x": torch.ones(30)}, file, _use_new_zipfile_serialization=False)
    good = file.read_bytes()
    assert checkpoints.load(io.BytesIO(good))["x"].sum() == 30
    keys = good.rindex(b"\x80\x02]")
    for changed in (
        good.replace(b"K\x1eNtq", b"\x8a\x06" + (1 << 40).to_bytes(6, "little") + b"Ntq"),
        good[:keys] + b"\x80\x02].",  # torch would leave the memory as it was
    ):
        assert changed != good
        with pytest.raises(checkpoints.Refused, match="tensors that are not in the file"):
            checkpoints.load(io.BytesIO(changed))


def test_a_tensor_of_more_items_than_its_part_is_refused() -> None:
    """fairseq's trainer would make copies of them, and torch allows a size of a trillion for one number."""
    for value in (torch.zeros(1).expand(1 << 40), torch.nn.Parameter(torch.zeros(2).expand(9, 2))):
        file = io.BytesIO()
        torch.save({"x": value}, file)
        file.seek(0)
        with pytest.raises(checkpoints.Refused, match="a tensor of more items than are in the file"):
            checkpoints.load(file)


def test_numpys_own_types_can_t_be_changed() -> None:
    assert numpy_dtype("f8", False, False) == np.dtype("f8")
    assert numpy_dtype("f8", False, False) is not np.dtype("f8")
    for code in ("f8,f8", "(9999,9999)f8", "O", "V100", None, [("a", "f8")]):
        with pytest.raises(pickle.UnpicklingError):
            numpy_dtype(code)


@pytest.mark.usefixtures("either_reader")
def test_what_fairseq_writes_passes() -> None:
    state = {
        "model": {"w": torch.nn.Parameter(torch.ones(2)), "tied": torch.ones(4)[:2]},
        "best": np.float64(1.5), "names": {"a", "b"}, "bytes": b"x" * 1000, "large": 1 << 70,
    }  # fmt: skip
    for zipped in (True, False):
        file = io.BytesIO()
        torch.save(state, file, _use_new_zipfile_serialization=zipped)
        file.seek(0)
        restricted_pickle.scan(file)
        assert checkpoints.load(file)["best"] == 1.5
