"""What is read from a run's metrics.jsonl, which others may have made."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from run_samples import line, write_run

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.run_metrics import read_metrics

pytestmark = pytest.mark.fast
GOOD = '{"options": {"dataset": {"valid_subset": "dev,valid"}}}\n'


def test_numbers_and_options(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "a", line(5, "train_inner", loss=1.0), line(10, loss=0.5, loss_nats=0.3, ups=2)
    )
    text = (folder / "metrics.jsonl").read_text()
    # As training leaves it where a number is not finite, and where it is just writing a line.
    last_line = '{"update": 20, "epoch": 2, "split": "valid", "seconds": 9, "loss": null, "note": "x"}'
    (folder / "metrics.jsonl").write_text(f'{text}{last_line}\n{{"update": 30, "epo')
    run = read_metrics(folder)
    assert run.option("criterion", "_name") == "freelb" and run.option("model", "arch", "-") == "-"
    inner, valid, last = run.lines
    assert (inner.split, inner.loss_nats) == ("train_inner", math.log(2)) and valid.loss_nats == 0.3
    assert valid.scores == {"loss": 0.5, "loss_nats": 0.3} and (valid.epoch, valid.seconds) == (1, 5)
    assert run.of("valid") == [valid, last] and run.updates == 20 and list(last.values) == ["loss"]
    assert math.isnan(last.loss_nats) and run.valid_splits == ["valid"]


KNOWN = '"update": 1, "epoch": 1, "split": "valid"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n", ":1: options must be an object of objects"),
        (GOOD + '{"update": 1}\n', ":2: the key 'epoch' is missing"),
        (GOOD + f'{{{KNOWN}, "seconds": 1{"0" * 400}}}\n', ":2: seconds must be"),
        (GOOD + f'{{{KNOWN}, "seconds": 1, "loss": NaN}}\n', ":2: not JSON"),
        (GOOD + "[" * 100_000 + "\n", ":2: not JSON"),
        (GOOD + '{"split": "\\ud800"}\n', ":2: not JSON"),
        (GOOD + "\xff\n", ":2: not UTF-8"),
    ],
)
def test_what_training_does_not_write(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as error:
        read_metrics(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/metrics.jsonl{message}")


def test_a_number_beyond_all_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{GOOD}{{{KNOWN}, "seconds": 1, "a": 1{"0" * 400}, "b": 2}}\n')
    run = read_metrics(tmp_path)
    assert run.lines[0].values == {"b": 2} and run.valid_splits == ["dev", "valid"]
