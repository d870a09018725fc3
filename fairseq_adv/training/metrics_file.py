"""Writes ``SAVE_DIR/metrics.jsonl``, which ``data/run_metrics.py`` describes and reads."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import IO, Any

from fairseq.trainer import Trainer

from fairseq_adv.data.checked_json import json_line
from fairseq_adv.data.errors import DataError, FullDisk, full_disk_named
from fairseq_adv.data.io import atomic_write
from fairseq_adv.data.run_metrics import EPOCH, METRICS, MetricLine, read_metrics
from fairseq_adv.fairseq_patches.progress import Line, Watcher
from fairseq_adv.training.changed_options import Options, options_of
from fairseq_adv.training.restart import checkpoint_path

logger = logging.getLogger(__name__)


class MetricsFile(Watcher):
    """Appends whole lines. A run that resumes continues the file from the update of its checkpoint.

    Lines of updates that will be made again are removed before the first of these, as are the means of an
    epoch that goes on. A start that makes no update leaves the file as it is, as does ``--no-save``.
    """

    def __init__(self) -> None:
        self._path: Path | None = None  # None: nothing is written
        self._file: IO[bytes] | None = None  # open from the first update on
        self._options: Options = {}
        self._updates = 0

    def begin(self, trainer: Trainer, extra: Any, epoch_itr: Any) -> None:
        if self._file is not None:  # of an earlier run in this process
            self._file.close()
            self._file = None
        saving = trainer.cfg.checkpoint
        self._path = None if saving.no_save else Path(saving.save_dir).absolute() / METRICS
        self._options = json.loads(json.dumps(options_of(trainer.cfg), default=str))
        is_own = os.path.dirname(os.path.realpath(checkpoint_path(trainer))) == os.path.realpath(
            saving.save_dir
        )
        self._updates = trainer.get_num_updates() if is_own else 0  # lines of another run don't stay

    def tick(self, epoch: int, split: str) -> None:
        self._append(epoch, "")

    def log(self, line: Line) -> None:
        self._append(line.epoch, _text(line.update, line.epoch, line.split, line.seconds, line.numbers))

    def _append(self, epoch: int, text: str) -> None:
        if self._path is None:
            return
        try:
            with full_disk_named(self._path):
                if self._file is None:
                    self._begin_file(self._path, epoch)
                    self._file = self._path.open("ab")
                self._file.write(text.encode())
                self._file.flush()
        except FullDisk:
            raise
        except OSError as error:
            self._path = None
            logger.warning(f"{METRICS} can't be written ({error}), so compare will not know this run")

    def _begin_file(self, path: Path, epoch: int) -> None:
        before: list[MetricLine] = []
        if self._updates and path.is_file():
            try:
                before = read_metrics(path.parent).lines
            except DataError as error:
                logger.warning(f"{error} Now the file begins anew.")
        kept = [
            _text(one.update, one.epoch, one.split, one.seconds, one.values)
            for one in before
            if one.update <= self._updates and not (one.split == EPOCH and one.epoch >= epoch)
        ]
        atomic_write(path, "".join([json_line({"options": self._options}) + "\n", *kept]))


def _text(update: int, epoch: int, split: str, seconds: float, numbers: dict[str, float]) -> str:
    known = {"update": update, "epoch": epoch, "split": split, "seconds": round(seconds, 3)}
    return json_line({**known, **numbers, **known}) + "\n"
