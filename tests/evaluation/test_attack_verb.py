"""What fairseq-adv attack measures of a training's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CommandMain


def test_the_table_tells_the_unit_of_the_radius(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [runs / "freelb" / "checkpoint_best.pt", "--steps", "1", "--batches", "1", "--epsilon"]
    told = [
        CommandMain("attack", capsys)(*words, *radius).stdout.splitlines()[0].partition("within ")[2]
        for radius in (["0.02", "--relative"], ["0.1", "--absolute"])
    ]
    assert told == [
        "epsilon 0.02 (2 % of the norm of an example's embeddings)",
        "epsilon 0.1 (a length in the space of the embeddings)",
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gone.pt", "--epsilon", "1", "--absolute"], "error: gone.pt: no such checkpoint"),
        (["CHECKPOINT", "--epsilon", "1"], "--relative if it is a share of the norm of each example's"),
        (["CHECKPOINT", "--epsilon", "1", "--relative", "--split", "test"], "no split 'test'"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    runs: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    checkpoint = str(runs / "freelb" / "checkpoint_best.pt")
    done = CommandMain("attack", capsys)(*(word.replace("CHECKPOINT", checkpoint) for word in args))
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
