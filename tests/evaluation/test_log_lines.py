"""Lines of numbers in the logs that fairseq-train writes with --log-format json."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fairseq_adv.evaluation.run_logs import (
    INNER,
    TRAIN,
    VALID,
    LogLine,
    json_at_end,
    log_lines,
    logged_configuration,
    logged_options,
    read_log,
)

pytestmark = pytest.mark.fast

# As fairseq 0.12.2 writes them; values shortened.
LINES = [
    "{'_name': None, 'criterion': {'_name': 'standard'}, 'num_updates': 3}",
    '{"epoch": 1, "update": 0.333, "loss": "1.172", "accuracy": "50", "acc_and_f1": "nan", '
    '"num_updates": "4", "lr": "1e-05", "wall": "1"}',
    '{"epoch": 1, "valid_loss": "0.959", "valid_accuracy_ARC-Easy": "75", "valid_num_updates": "12"}',
    '{"epoch": 1, "valid1_loss": "0.5", "valid1_accuracy_ARC-Easy": "25", "valid1_num_updates": "12"}',
    '{"epoch": 1, "train_loss": "1.146", "train_loss_nats": "0.794", "train_mcc": "-28.57", '
    '"train_num_updates": "12", "train_lr": "0.01"}',
]
SIMPLE = [
    "epoch 001:      4 / 12 loss=1.172, accuracy=50, num_updates=4, lr=1e-05, wall=1",
    "epoch 001 | valid on 'valid' subset | loss 0.959 | accuracy 75 | num_updates 12",
]


def write_log(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("prefix", ["", "2026-01-02 03:04:05 | INFO | train_inner | "])
def test_every_line_of_numbers_is_read(tmp_path: Path, prefix: str) -> None:
    log = write_log(tmp_path / "train.log", [prefix + line for line in LINES])
    inner, first, second, train = log_lines(log)
    assert [one.kind for one in (inner, first, second, train)] == [INNER, VALID, VALID, TRAIN]
    assert [one.split for one in (inner, first, second, train)] == ["", "valid", "valid1", ""]
    assert [one.updates for one in (inner, first, train)] == [4, 12, 12]
    assert inner.values["loss"] == 1.172 and inner.values["lr"] == 1e-5 and inner.values["epoch"] == 1
    assert math.isnan(inner.values["acc_and_f1"])
    assert first.values["accuracy_ARC-Easy"] == 75 and second.values["loss"] == 0.5
    assert train.values["mcc"] == -28.57


def test_the_options_are_those_of_the_last_start_that_trained(tmp_path: Path) -> None:
    starts = [
        f"{{'_name': None, 'common': {{'seed': {seed}}}, 'criterion': {{'_name': '{name}'}}}}"
        for seed, name in ((1, "pgd"), (2, "freelb"), (3, "standard"))
    ]
    log = write_log(tmp_path / "train.log", [starts[0], *LINES[1:], starts[1], *LINES[1:], starts[2]])
    assert logged_options(log, "criterion") == {"_name": "freelb"}
    assert logged_configuration(log) == starts[1]


def test_the_loss_in_nats_is_the_logged_one_or_made_from_bits() -> None:
    assert LogLine(TRAIN, {"loss": 1.0, "loss_nats": 0.25}).loss_nats == 0.25
    assert LogLine(VALID, {"loss": 0.5}).loss_nats == pytest.approx(0.5 * 0.6931471805599453, abs=1e-15)
    assert math.isnan(LogLine(VALID, {"accuracy": 50}).loss_nats)


def test_a_run_s_log_is_of_the_first_validated_split(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "train.log", [*LINES, *LINES]))
    assert [epoch["loss"] for epoch in log.valid] == [0.959] and [e["loss"] for e in log.train] == [1.146]
    assert [line["loss"] for line in log.inner] == [1.172]


def test_a_log_that_is_none_or_has_another_format(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.log: no such log.*--log-file"):
        log_lines(tmp_path / "gone.log")
    (tmp_path / "checkpoint.pt").write_bytes(b"\x80\x02\xff\xfe")
    with pytest.raises(ValueError, match=r"checkpoint\.pt: not a text file.*--log-file"):
        log_lines(tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match=r"train\.log: no JSON .* just begun, wait .*--log-format json"):
        log_lines(write_log(tmp_path / "train.log", SIMPLE))
    with pytest.raises(ValueError, match=r"train\.log: no finished epoch"):
        read_log(write_log(tmp_path / "train.log", LINES[:2]))
    with pytest.raises(ValueError, match=r"train\.log: no finished epoch"):
        read_log(write_log(tmp_path / "train.log", LINES[-1:]))
    assert read_log(tmp_path / "train.log", is_validated=False).valid == []


@pytest.mark.parametrize(
    ("line", "found"),
    [('a | {"x": 1}', {"x": 1}), ("a | {'x': 1}", {}), ('a | {"x": 1', {}), ("a", {}), ("a | {1}", {})],
)
def test_the_object_at_the_end_of_a_line(line: str, found: dict[str, int]) -> None:
    assert json_at_end(line) == found


def test_a_start_that_went_back_replaces_what_was_logged_from_there_on(tmp_path: Path) -> None:
    """One from an earlier checkpoint, or a new training with the log of an old one still there."""

    def valid(updates: int, score: int) -> str:
        return f'{{"epoch": 1, "valid_accuracy": "{score}", "valid_num_updates": "{updates}"}}'

    def told(*lines: str) -> list[tuple[int, float]]:
        log = read_log(write_log(tmp_path / "train.log", [*lines]), is_trained=False)
        return [(int(one["num_updates"]), one["accuracy"]) for one in log.valid]

    first = [valid(94, 60), valid(188, 88), valid(188, 88), valid(282, 85)]
    assert told(*first, valid(188, 70)) == [(94, 60), (188, 70)]
    assert told(*first, valid(47, 50), valid(94, 55)) == [(47, 50), (94, 55)]
