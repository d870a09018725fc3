"""Files of scores, predict --scores, whose arrays are not what predict writes."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import CommandMain

from fairseq_adv.evaluation.predict import ensemble

ABOUT = {
    "format": 1, "kind": "classes", "task": "RTE", "split": "test", "made_from": {}, "temperature": 1.0,
}  # fmt: skip
FLOATS = np.log(np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32))
GOOD: dict[str, Any] = {
    "about": np.array(json.dumps(ABOUT)), "ids": np.array(["0", "1"]), "labels": np.array([["no", "yes"]]),
    "log_probs": FLOATS, "raw": FLOATS, "gold": np.array(["", ""]),
}  # fmt: skip


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    """Of a .npy file that claims this shape, and holds nothing."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": kind, "fortran_order": False, "shape": shape})
    return made.getvalue()


def about(**changed: Any) -> dict[str, Any]:
    return {"about": np.array(json.dumps({**ABOUT, **changed}))}


# Name -> the arrays that differ (bytes: the raw content of the .npy), and a part of the message.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "texts as scores": ({"log_probs": FLOATS.astype(str)}, "its arrays don't match each other"),
    "no rows": ({"log_probs": FLOATS[:0], "raw": FLOATS[:0], "ids": np.array([], str),
                 "gold": np.array([], str)}, "its arrays don't match each other"),
    "numbers as names": ({"ids": np.array([0, 1])}, "its arrays don't match each other"),
    "360 TiB": ({"log_probs": header((99 << 40, 1))}, "not a file of scores"),
    "a negative shape": ({"log_probs": header((-1, 2))}, "not a file of scores"),
    "objects": ({"gold": np.array([{}, []], dtype=object)}, "not a file of scores"),
    "a bomb": ({"raw": header((1 << 20, 1 << 10)) + bytes(3 << 20)}, "larger than 1 MiB when unpacked"),
    "all nan": ({"log_probs": FLOATS * np.nan}, "the scores of row 0 are not finite"),
    "infinite": ({"log_probs": np.where(FLOATS < -2, np.inf, FLOATS)}, "the scores of row 0 are not finite"),
    "a row without a column": ({"log_probs": np.array([[0, 0], [-np.inf] * 2], "f4")}, "of row 1 are not"),
    "a label of two lines": ({"labels": np.array([["no", "yes\t1\n9"]])}, "can't be written as a label"),
    "an id twice": ({"ids": np.array(["0", "0"])}, "two examples have the id 0"),
    "deep json": ({"about": np.array("[" * 100_000)}, "not a file of scores"),
    "another kind": (about(kind="x"), "its arrays don't match each other"),
}  # fmt: skip


def written(path: Path, arrays: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, value in arrays.items():
            content = io.BytesIO()
            if not isinstance(value, bytes):
                np.lib.format.write_array(content, np.asarray(value), allow_pickle=True)
            file.writestr(f"{name}.npy", value if isinstance(value, bytes) else content.getvalue())
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("predict", capsys)


@pytest.mark.parametrize("name", BAD)
def test_bad_ones_end_with_one_line(
    name: str, tmp_path: Path, run: CommandMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "a bomb":  # a small one
        monkeypatch.setattr(ensemble, "_LARGEST", 1 << 20)
    changed, message = BAD[name]
    file = written(tmp_path / "bad.npz", {**GOOD, **changed})
    done = run("--scores", file, "--task", "RTE", "--out", tmp_path / "out")
    assert done.returncode == 2 and f"error: {file}: " in done.stderr and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()
