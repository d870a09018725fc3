"""Numbers on the command lines: what can't be meant is refused before any work."""

from __future__ import annotations

import pytest
from support import CommandMain


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("", capsys)


FINITE = "must be a finite number, not"
ABOVE = "must be greater than 0, not"
ONE = "must be 1 or more, not"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("attack a.pt --epsilon inf", f"argument --epsilon: {FINITE} inf"),
        ("attack a.pt --epsilon nan", f"argument --epsilon: {FINITE} nan"),
        ("attack a.pt --epsilon 0", f"argument --epsilon: {ABOVE} 0"),
        ("attack a.pt --epsilon x", "argument --epsilon: invalid number value: 'x'"),
        ("attack a.pt --epsilon 1 --step-size -1", f"argument --step-size: {ABOVE} -1"),
        ("attack a.pt --epsilon 1 --start nan", f"argument --start: {FINITE} nan"),
        ("attack a.pt --epsilon 1 --start -1", "argument --start: must be 0 or more, not -1"),
        ("attack a.pt --epsilon 1 --steps 0", f"argument --steps: {ONE} 0"),
        ("attack a.pt --epsilon 1 --batch-size 0", f"argument --batch-size: {ONE} 0"),
        ("attack a.pt --epsilon 1 --batches 1.5", "argument --batches: invalid whole number value: '1.5'"),
        ("compare a --epsilon 0.1 inf", f"argument --epsilon: {FINITE} inf"),
        ("compare a --epsilon 0.1 --steps 0", f"argument --steps: {ONE} 0"),
        ("predict a.pt --stdin --batch-size 0", f"argument --batch-size: {ONE} 0"),
        ("predict a.pt --stdin --max-tokens -1", f"argument --max-tokens: {ONE} -1"),
        ("validate a.pt --batch-size 0", f"argument --batch-size: {ONE} 0"),
        ("sweep data encoder out --lr inf", f"argument --lr: {FINITE} inf"),
        ("sweep data encoder out --ratios 0.1,inf", f"argument --ratios: {FINITE} inf"),
        ("sweep data encoder out --seeds 0", f"argument --seeds: {ONE} 0"),
        ("corpus a.txt out --shards 0", f"argument --shards: {ONE} 0"),
        ("corpus a.txt out --task-index -1 --task-count 2", "argument --task-index: must be from 0 to"),
        ("retrieve documents index a.jsonl out --workers 0", f"argument --workers: {ONE} 0"),
        ("train data --encoder encoder --workers 0", f"argument --workers: {ONE} 0"),
        ("prepare qnli-ranking a out --seed -1", "argument --seed: must be from 0 to"),
        ("prepare qnli-ranking a out --seed 4294967296", "argument --seed: must be from 0 to"),
        ("prepare classification a.csv out --text t --label l --valid-share nan",
         f"argument --valid-share: {FINITE} nan"),
    ],
)  # fmt: skip
def test_it_is_refused(line: str, message: str, run: CommandMain) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*line.split())
    shown = run.capsys.readouterr()
    assert ended.value.code == 2 and message in shown.err and shown.out == ""
