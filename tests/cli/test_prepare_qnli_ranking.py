"""fairseq-adv prepare qnli-ranking as a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import CommandMain


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("prepare qnli-ranking", capsys)


def write(folder: Path, label: str = "not_entailment") -> Path:
    folder.mkdir()
    rows = f"0\tA?\tb\tentailment\n1\tA?\tc\t{label}\n2\tD?\te\tentailment\n"
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(f"index\tquestion\tsentence\tlabel\n{rows}")
    return folder


def test_says_what_it_made_and_what_has_no_partner(tmp_path: Path, run: CommandMain) -> None:
    done = run(write(tmp_path / "QNLI"), tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "train: 1 questions from 3 rows\n  rows without a partner: 1, left out" in done.stdout
    assert "test-dev: 2 questions from 3 rows\n  rows without a partner: 1, questions with one" in done.stdout
    assert "note: no test.tsv" in done.stdout
    again = run(tmp_path / "QNLI", tmp_path / "out")
    assert again.returncode == 0 and "nothing to do" in again.stdout
