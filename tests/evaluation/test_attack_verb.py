"""What fairseq-adv attack measures of a training's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CommandMain, run_command, verb


def attack(*args: str) -> tuple[int, str, str]:
    done = run_command(*verb("attack"), *args)
    return done.returncode, done.stdout, done.stderr


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
def test_mistakes_are_told_without_a_traceback(repo: Path, runs: Path, args: list[str], message: str) -> None:
    places = {"FOLDER": runs / "freelb", "CHECKPOINT": runs / "freelb" / "checkpoint_best.pt"}
    words = [str(places.get(a, a)) for a in args]
    code, _, err = attack(*words)
    assert code == 2
    assert message in err and "Traceback" not in err
