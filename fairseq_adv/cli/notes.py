"""What a verb's modules log, shown to its user. ``train`` has a log and a screen of its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def log_as_notes() -> Iterator[None]:
    """Shows what is logged in the block as lines such as ``note: …`` on standard error, each of them once:
    our own log, and the warnings of others.

    Without a handler, importing fairseq adds one, whose lines begin with a time and a module's name
    (fairseq/tasks/text_to_speech.py, line 23).
    """
    ours, handler = logging.getLogger("fairseq_adv"), _Notes()
    level = ours.level
    ours.setLevel(logging.INFO)
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        ours.setLevel(level)


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        is_note = record.levelno < logging.WARNING
        if is_note and not record.name.startswith("fairseq_adv"):
            return
        kind = "note" if is_note else record.levelname.lower()
        line = f"{kind}: {self.format(record)}"
        if line not in self._seen:  # predict reads a file twice
            self._seen.add(line)
            print(line, file=sys.stderr)
