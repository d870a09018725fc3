"""The report of a classifier; the calibration error, and its cure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.temperature import read_temperature, save_temperature, temperature_file
from fairseq_adv.evaluation.class_report import (
    class_report,
    expected_calibration_error,
    fit_temperature,
    softmax,
)

pytestmark = pytest.mark.fast


def test_the_scores_by_hand() -> None:
    """A class that is neither an answer nor right has scores of 0, and no part in the means."""
    shares = np.eye(4)[[0, 0, 1, 2]]
    values = class_report(["a", "b", "c", "d"], [0, 1, 1, 1], [0, 0, 1, 2], shares).values()
    assert values["classes"]["b"] == pytest.approx(
        {"precision": 100, "recall": 100 / 3, "f1": 50, "support": 3}
    )
    assert set(values["classes"]["d"].values()) == {0}
    assert values["macro avg"] == pytest.approx({"precision": 50, "recall": 400 / 9, "f1": 350 / 9})
    assert values["confusion"] == [[1, 0, 0, 0], [1, 1, 1, 0], [0] * 4, [0] * 4] and values["ece"] == 0.5


def test_names_of_any_kind_keep_to_their_lines() -> None:
    lines = class_report(["\x1b[2Jred", "two\nlines", "x" * 99], [0, 1], [1, 1], np.eye(3)[:2]).lines()
    assert len(lines) == 1 + 3 + 2 + 1 + 2 + 3 + 2
    assert lines[1].startswith(r"\x1b[2Jred ") and lines[2].startswith("two lines ")
    assert lines[3].startswith("x" * 23 + "… ") and max(map(len, lines)) < 120


def test_many_classes_are_shown_by_their_confusions() -> None:
    names, right = [f"c{k}" for k in range(20)], [0, 0, 0, 1, 5]
    report = class_report(names, right, [0, 3, 3, 2, 5], np.eye(20)[[0, 3, 3, 2, 5]])
    assert report.lines()[-5:-2] == [
        "the most frequent confusions (all of them: --json):", "  c0, answered c3: 2",
        "  c1, answered c2: 1",
    ]  # fmt: skip


def test_a_temperature_that_is_known_is_found() -> None:
    """Classes drawn from softmax(logits / 2.5): that temperature is the best one."""
    generator = np.random.default_rng(0)
    logits = 4 * generator.normal(size=(20000, 3))
    shares = softmax(logits, 2.5)
    right = (shares.cumsum(axis=1) > generator.random((20000, 1))).argmax(axis=1)
    temperature = fit_temperature(logits, right)
    assert temperature == pytest.approx(2.5, rel=0.03)
    assert expected_calibration_error(softmax(logits, temperature), right) < 0.02
    assert expected_calibration_error(softmax(logits), right) > 0.1
    losses = [-np.log(softmax(logits, t)[range(20000), right]).mean() for t in (0.99, 1, 1.01)]
    near = [-np.log(softmax(logits, t * temperature)[range(20000), right]).mean() for t in (0.99, 1, 1.01)]
    assert min(near) == near[1] < min(losses)


def test_a_temperature_belongs_to_one_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = tmp_path / "checkpoint_best.pt"
    checkpoint.write_bytes(b"weights")
    assert read_temperature(checkpoint) == 1
    path = save_temperature(checkpoint, 1.75, {"split": "valid"})
    assert path == temperature_file(checkpoint) == tmp_path / "checkpoint_best.pt.temperature.json"
    assert read_temperature(checkpoint) == 1.75 and not caplog.records
    checkpoint.write_bytes(b"trained on")
    assert read_temperature(checkpoint) == 1
    assert "belongs to another checkpoint of this name" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a JSON object"), ('{"checkpoint": ""}', "the key 'temperature' is missing"),
        *((f'{{"temperature": {value}, "checkpoint": ""}}', "temperature must be a number from 0.05 to 20")
          for value in ("-1", "1e9", "true")),
        ('{"temperature": NaN, "checkpoint": ""}', "not JSON written by this program"),
        ('{"temperature": 2' + " " * 1_100_000 + "}", "not JSON written by this program"),
        ("\x80", "not UTF-8"),
    ],
)  # fmt: skip
def test_a_file_that_was_made_up_is_refused(content: str, message: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "a.pt"
    checkpoint.write_bytes(b"weights")
    temperature_file(checkpoint).write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        read_temperature(checkpoint)
