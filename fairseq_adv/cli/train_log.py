"""Everything that fairseq logs goes to the run's log file, and nothing of it to the screen."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairseq_adv.data.errors import full_disk_named

_TRAIN = "fairseq_cli.train"
_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own


@contextmanager
def logged_to(path: str) -> Iterator[None]:
    """In the block, the log goes to this file, with Python's warnings, and no longer to standard output."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    root, handler = (
        logging.getLogger(),
        logging.FileHandler(path, encoding="utf-8", errors="backslashreplace"),
    )
    before = [one for one in root.handlers if type(one) is logging.StreamHandler]
    for one in before:
        root.removeHandler(one)
    handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(_is_not_there)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        for one in before:
            root.addHandler(one)
        with full_disk_named(Path(path)):  # what its last line left in the buffer is written here
            handler.close()


def _is_not_there(record: logging.LogRecord) -> bool:
    """fairseq_cli/train.py, line 64: with ``--log-file`` that logger has a handler of its own."""
    return record.name != _TRAIN or not any(
        isinstance(one, logging.FileHandler) for one in logging.getLogger(_TRAIN).handlers
    )
