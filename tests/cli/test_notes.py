"""What is logged, as the user of a verb sees it."""

from __future__ import annotations

import logging

import pytest

from fairseq_adv.cli import log_as_notes

pytestmark = pytest.mark.fast


def test_a_log_is_told_in_lines_each_of_them_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = logging.getLogger("fairseq_adv.data.anything"), logging.getLogger("another")
    monkeypatch.setattr(others, "level", logging.INFO)
    before = (list(logging.root.handlers), logging.getLogger("fairseq_adv").level)
    with log_as_notes():
        for _ in range(2):
            ours.info("%s: read with semicolons", "a.csv")
        ours.warning("b.csv: odd")
        others.warning("old option")
        others.info("chatter")
    assert capsys.readouterr() == (
        "", "note: a.csv: read with semicolons\nwarning: b.csv: odd\nwarning: old option\n"
    )  # fmt: skip
    assert (list(logging.root.handlers), logging.getLogger("fairseq_adv").level) == before
