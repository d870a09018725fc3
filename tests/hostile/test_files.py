"""Whatever file is given as a checkpoint: nothing in it is run, and each command ends soon, in one line."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from commands import VERBS, refusal
from hostile_files import CHECKPOINTS
from support import CommandMain

from fairseq_adv_compat import checkpoints

# Each file once, the commands in turn.
ALL_NAMES = [name for name in CHECKPOINTS if name not in ("no weights", "no options")]
PAIRS = [*zip(ALL_NAMES, itertools.cycle(VERBS)), ("no weights", "validate"), ("no options", "attack")]


@pytest.mark.usefixtures("two_gigabytes_more")
@pytest.mark.parametrize(("name", "verb"), PAIRS)
def test_it_is_refused(
    name: str, verb: str, films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = shutil.copytree(films / "save", tmp_path / "save") / "checkpoint_best.pt"
    with bad.open("rb") as file:
        state = checkpoints.load(file, "cpu")
    CHECKPOINTS[name](state, bad, tmp_path / "canary")
    assert str(bad) in refusal(CommandMain("", capsys), tmp_path, *VERBS[verb](films, bad))
