"""A log's gradient accordance: read, its crossings of zero found, reported and written as csv."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from fairseq_adv.evaluation.figures.accordance_curve import Curve, FloodStart, Measurement, as_csv, report
from fairseq_adv.evaluation.figures.accordance_log import read_accordance

pytestmark = pytest.mark.fast

# update, mean cosine of all and head, mean training loss in nats since the measurement before
POINTS = [
    (10, -0.5, -0.9, 0.7),
    (20, -0.1, 0.1, 0.5),
    (30, math.nan, 0.2, 0.4),
    (40, 0.05, -0.3, 0.6),
    (50, 0.2, -0.1, 0.2),
]


def line(update: int, all_: float, head: float, loss: float, number: int = 1, **more: float) -> str:
    """A line of fairseq's json log two updates after the measurement, as the criterion logs it."""
    values = {
        "accordance_all": all_, "accordance_head": head, "accordance_loss_nats": loss,
        "accordance_update": update, "accordance_measurements": number, "num_updates": update + 2, **more,
    }  # fmt: skip
    return json.dumps({"epoch": 1, **{name: f"{value:g}" for name, value in values.items()}})


def write_log(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{one}\n" for one in lines))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Lines out of order and repeated, a restart that measured update 20 again, and two validations."""
    again = line(20, -0.4, 0.9, 9.0, 2)
    valid = [
        '{"epoch": 1, "valid_loss": "0.9", "valid_loss_nats": "0.6238", "valid_num_updates": "25"}',
        '{"epoch": 1, "other_loss": "0.1", "other_loss_nats": "0.0693", "other_num_updates": "25"}',
        '{"epoch": 2, "valid_loss": "1.0", "valid_num_updates": "50"}',
    ]
    measured = [line(*point, number) for number, point in enumerate(POINTS, 1)]
    return write_log(tmp_path / "run-a" / "train.log", again, *measured, *measured[:1], *valid)


def test_reads_what_was_measured_and_validated(log: Path) -> None:
    curve = read_accordance(log.parent)
    assert curve.name == "run-a" and curve.groups == ("all", "head") and curve.start is None
    assert curve.missing == 0 and "no line in the log" not in report(curve)
    assert [one.update for one in curve.measurements] == [10, 20, 30, 40, 50]
    assert curve.cosines("head") == [(10, -0.9), (20, 0.1), (30, 0.2), (40, -0.3), (50, -0.1)]
    assert math.isnan(curve.measurements[2].cosine["all"])
    assert [one.train_loss for one in curve.measurements] == [0.7, 0.5, 0.4, 0.6, 0.2]
    assert curve.dev_loss == [(25, 0.6238), (50, pytest.approx(math.log(2), abs=1e-15))]
    assert read_accordance(log).dev_loss == curve.dev_loss
    with pytest.raises(ValueError, match=r"--group encoder: not measured. Pass one of all, head"):
        curve.suggestions("encoder")


def test_crossings_in_either_direction_with_the_losses_around(log: Path) -> None:
    curve = read_accordance(log)
    (one,) = curve.suggestions("all")
    # The measurement that could not be made lies between: the sub-epoch before is the one that ends at 20.
    assert (one.crossing.start, one.crossing.update, one.crossing.direction) == (20, 40, "up")
    assert (one.before, one.after, one.range) == (0.5, 0.6, (0.5, 0.6))
    assert [s.crossing.direction for s in curve.suggestions("head")] == ["up", "down"]
    assert [s.range for s in curve.suggestions("head", "down")] == [(0.4, 0.6)]
    assert curve.suggestions("all", "down") == []


def test_the_report_names_every_crossing_and_says_where_there_is_none(log: Path) -> None:
    curve = read_accordance(log)
    text = report(curve)
    assert "all: updates 20 to 40: up, from negative to positive (-0.1000 to +0.0500)" in text
    assert "head: updates 30 to 40: down, from positive to negative (+0.2000 to -0.3000)" in text
    assert (
        "suggested range for b: 0.5000 to 0.6000 nats, at the first crossing in group all, update 40" in text
    )
    text = report(curve, "all", "down")
    assert "all: no crossing down; the mean cosine is between -0.5000 and +0.2000\n" in text
    assert (
        "no crossing in group all: the accordance suggests no flood level" in text and "range for" not in text
    )


def test_of_a_noisy_curve_the_first_crossings_are_told(tmp_path: Path) -> None:
    lines = [line(i, 0.1 * (-1) ** i, -0.5, 0.5, i) for i in range(1, 9)]
    text = report(read_accordance(write_log(tmp_path / "train.log", *lines)))
    assert text.count("  all: updates ") == 5 and "updates 5 to 6: up" in text
    assert "all: and 2 more crossings; see the csv file" in text


def test_a_range_needs_the_loss_on_both_sides(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.log", line(5, -0.1, math.nan, math.nan), line(10, 0.1, math.nan, 0.4, 2))
    curve = read_accordance(log)
    assert curve.name == "a" and curve.suggestions()[0].range is None
    text = report(curve)
    assert "no range for b: the training loss is unknown on one side" in text
    assert "head: no crossing; no two probe batches could be compared" in text


def test_where_auto_began_to_flood(log: Path) -> None:
    with open(log, "a") as file:
        file.write(line(40, 0.05, -0.3, 0.6, 4, flood_start=40, flood_level=0) + "\n")
        file.write(line(50, 0.2, -0.1, 0.2, 5, flood_start=40, flood_level=0.6) + "\n")
    curve = read_accordance(log)
    assert curve.start == FloodStart(40, 0.6)
    assert "this run flooded from update 40 on, b = 0.6000 nats" in report(curve)


def test_measurements_that_the_log_lacks_are_told(tmp_path: Path) -> None:
    """Of those between two lines of a long --log-interval the log has the last."""
    lines = [line(30, -0.1, 0.2, 0.5, 3), line(60, 0.1, 0.2, 0.4, 6)]
    curve = read_accordance(write_log(tmp_path / "train.log", *lines))
    assert curve.missing == 4
    assert "4 more measurements have no line in the log" in report(curve)


def test_the_csv_has_a_row_for_each_update(log: Path) -> None:
    rows = list(csv.DictReader(as_csv(read_accordance(log)).splitlines()))
    assert [row["update"] for row in rows] == ["10", "20", "25", "30", "40", "50"]
    assert rows[0] == {
        "update": "10", "cosine_all": "-0.5", "cosine_head": "-0.9", "eq13_all": "-0.25",
        "eq13_head": "-0.45", "train_loss_nats": "0.7", "dev_loss_nats": "",
        "crossing_all": "", "crossing_head": "",
    }  # fmt: skip
    assert rows[2]["dev_loss_nats"] == "0.6238" and rows[2]["cosine_all"] == ""
    assert rows[3]["cosine_all"] == rows[3]["eq13_all"] == "" and rows[5]["dev_loss_nats"] == "0.693147"
    assert [row["crossing_all"] for row in rows] == ["", "", "", "", "up", ""]
    assert [row["crossing_head"] for row in rows] == ["", "up", "", "", "down", ""]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"loss": "1", "num_updates": "5"}'], r"no gradient accordance in this log. fairseq-train --acc"),
        (["epoch 001 | accordance_all 1 | num_updates 5"], r"no JSON lines .*--log-format json"),
        ([line(1, 0.1, 0.1, 0.5), line(2, 0.1, 0.1, 0.5).replace("head", "tail")], r"different groups"),
    ],
)  # fmt: skip
def test_a_log_that_cannot_be_used_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_accordance(write_log(tmp_path / "train.log", *lines))
    assert str(tmp_path / "train.log") in str(caught.value)


def test_a_curve_of_nothing_but_a_single_point_has_no_crossing() -> None:
    one = Measurement(5, 0.5, {"all": 0.1})
    text = report(Curve("run", [one], [], "mean"))
    assert "no crossing in group all" in text and "(did it cross before the first measurement?)" in text
