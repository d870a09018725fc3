"""What a method of one's own relies on: dropout masks, options, logs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import pytest
from fairseq.logging import metrics
from support import build, train_args, write_task

from fairseq_adv.criterions.diverged import above_the_start, losses_of
from fairseq_adv.criterions.logs import reduce_logs
from fairseq_adv.criterions.method_options import MethodConfig, check_options, option
from fairseq_adv.data.errors import DataError


def test_a_method_without_an_option_for_it_repeats_dropout_masks(tmp_path: Path) -> None:
    run = build(train_args(write_task(tmp_path), None, "standard"))
    assert run.criterion.dropout_option == "" and run.criterion.shares_dropout


def test_an_option_without_a_value_is_in_range() -> None:
    @dataclass
    class Config(MethodConfig):
        most: Optional[float] = option(None, "most", wanted="pass a finite size of 0 or more", least=0)

    check_options(Config(), Config, ["most"])
    with pytest.raises(DataError, match=r"--most -1\.0: pass a finite size"):
        check_options(Config(most=-1.0), Config, ["most"])


def test_an_update_without_predictions_logs_a_loss_without_a_weight() -> None:
    """Else fairseq logs -1 for it."""
    with metrics.aggregate(new_root=True) as found:
        reduce_logs([{"loss": 0.0, "sample_size": 0}], ())
        assert found["loss"].avg == 0
        reduce_logs([{"loss": 2.0, "sample_size": 2}], ())
    assert found["loss"].avg == pytest.approx(1 / math.log(2))
    assert losses_of(found) == {"loss": pytest.approx(1)}
    found["loss"].reset()  # as after an epoch, before its first update
    assert losses_of(found) == {}


def test_a_first_loss_that_is_no_number_counts_as_none() -> None:
    """It is read from a checkpoint."""
    with metrics.aggregate(new_root=True) as found:
        metrics.log_scalar("loss", 4.0, 1)
    cfg = SimpleNamespace(task=None, optimization=SimpleNamespace(lr=[1.0], clip_norm=1.0))
    assert above_the_start(found, None, {"loss": "0.1"}, cfg) == ""
    assert "not below 0.1. Try a lower --lr than 1." in above_the_start(found, None, {"loss": 0.1}, cfg)
    flooded = above_the_start(found, 0.6931, {"loss": 0.1}, cfg, 1.0)  # b in bits, which is in nats
    assert flooded.endswith("not below 0.6931. --flood-level 1 keeps it there: pass a smaller one.")
