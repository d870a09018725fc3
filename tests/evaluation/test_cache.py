"""What was measured is measured once, and again for another file or another setting."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest

from fairseq_adv.evaluation.summaries import cached, stamp

pytestmark = pytest.mark.fast


class Measure:
    """Counts how often it is asked."""

    def __init__(self, **values: float) -> None:
        self.values, self.calls = values, 0

    def __call__(self) -> dict[str, float]:
        self.calls += 1
        return self.values


def test_the_same_is_measured_once_and_another_setting_again(tmp_path: Path) -> None:
    measure, file = Measure(loss=0.1 + 0.2, cosine=math.nan), tmp_path / "deep" / "kept.json"
    made_from = {"steps": 3, "data": None, "stds": (0.0, 0.1)}  # json makes a list of a tuple
    for _ in range(3):
        found = cached(file, made_from, measure)
        assert found["loss"] == 0.1 + 0.2 and math.isnan(found["cosine"])
    assert measure.calls == 1
    cached(file, {**made_from, "steps": 4}, measure)
    assert measure.calls == 2 and [path.name for path in file.parent.iterdir()] == ["kept.json"]
    for content in ("", "[]", '{"key": 1', '{"means": {}}', '{"key": {"a": 1}, "means": []}'):
        file.write_text(content)  # of another program
        assert cached(file, {"a": 1}, Measure(loss=1.0)) == {"loss": 1.0}


def test_a_stamp_tells_a_changed_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.pt: no such checkpoint"):
        stamp(file)
    file.write_bytes(b"abc")
    first = stamp(file)
    assert first["size"] == 3 and stamp(file) == first
    os.utime(file, ns=(1, first["time"] + 1))
    assert stamp(file) != first


def test_what_can_not_be_kept_is_measured_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a run of somebody else; tests may run as root, who may write everywhere."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fairseq_adv.evaluation.summaries.atomic_write", refuse)
    for number in (errno.EACCES, errno.EROFS):
        assert cached(tmp_path / "kept.json", {"a": 1}, Measure(loss=1.0)) == {"loss": 1.0}
        assert f"kept.json: can't be written ({os.strerror(number)})" in caplog.text
    number = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        cached(tmp_path / "kept.json", {"a": 1}, Measure(loss=1.0))
