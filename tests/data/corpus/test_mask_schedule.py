"""The masking rate of every epoch, and what is refused."""

from __future__ import annotations

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.tasks.scheduled_masked_lm import MaskSchedule

pytestmark = pytest.mark.fast

PAPER = "0.05,0.10,0.15,0.20,0.25"


@pytest.mark.parametrize(
    ("text", "max_epoch", "expected"),
    [(PAPER, 5, [0.05, 0.1, 0.15, 0.2, 0.25]),
     (PAPER, 10, [0.05, 0.05, 0.1, 0.1, 0.15, 0.15, 0.2, 0.2, 0.25, 0.25]),
     (PAPER, 7, [0.05, 0.05, 0.1, 0.15, 0.15, 0.2, 0.25]),
     ("0.3", 3, [0.3, 0.3, 0.3]),
     ("0.5, 0.1", 2, [0.5, 0.1]),
     ("0.05@1,0.1@3,0.2@4", 0, [0.05, 0.05, 0.1, 0.2, 0.2, 0.2]),
     ("0.05@1,0.1@3", 3, [0.05, 0.05, 0.1])],
)  # fmt: skip
def test_the_rate_of_every_epoch(text: str, max_epoch: int, expected: list[float]) -> None:
    schedule = MaskSchedule.parse(text, max_epoch)
    assert [schedule.rate(epoch) for epoch in range(1, len(expected) + 1)] == expected
    assert schedule.rate(0) == expected[0]  # before the training
    assert schedule.rate(1000) == schedule.rates[-1]


@pytest.mark.parametrize("max_epoch", [5, 6, 11, 13, 99, 100])
def test_equal_steps_differ_by_an_epoch_at_most(max_epoch: int) -> None:
    schedule = MaskSchedule.parse(PAPER, max_epoch)
    rates = [schedule.rate(epoch) for epoch in range(1, max_epoch + 1)]
    lengths = [rates.count(rate) for rate in schedule.rates]
    assert rates == sorted(rates) and sum(lengths) == max_epoch and max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("text", "max_epoch", "message"),
    [*((text, 4, "pass rates above 0 and below 1") for text in (
        "0,0.1", "0.1,1", "0.1,many", "nan", "0.1,,0.2", "", "0.1@1,0.2", "0.1@1,0.2@x")),
     *((text, 4, "the epochs must begin with 1, ascend and end by --max-epoch 4") for text in (
        "0.1@2,0.2@3", "0.1@1,0.2@3,0.3@3", "0.1@1,0.2@0", "0.1@1,0.2@9")),
     (PAPER, 0, "5 equal steps need a --max-epoch of 5"), (PAPER, 4, "5 equal steps need")],
)  # fmt: skip
def test_what_is_refused(text: str, max_epoch: int, message: str) -> None:
    with pytest.raises(DataError) as error:
        MaskSchedule.parse(text, max_epoch)
    assert f"--mask-prob-schedule {text}" in str(error.value) and message in str(error.value)
