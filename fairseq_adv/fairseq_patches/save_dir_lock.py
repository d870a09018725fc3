"""Refuses a second run that writes checkpoints to the same folder, and checks that all nodes see that folder.

fairseq 0.12.2 checks neither: two jobs with the same ``--save-dir`` overwrite each other's checkpoints, and
if each node has its own disk, a run resumes from whatever its first node has kept.

Rank 0 locks ``SAVE_DIR/.running`` until its process ends, and writes its identity there; the other workers
look for it. This applies to every criterion, but not with ``--no-save``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
import uuid
from pathlib import Path
from typing import IO, Any

from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import CANNOT_LOCK
from fairseq_adv.fairseq_patches.workers import end_all, gathered

logger = logging.getLogger(__name__)

NAME = ".running"
# In seconds. A killed process may take a while to go away; the node from which a job was requeued may be cut
# off from its scheduler and not know; a network file system may show a new file late.
PATIENCE = 10.0
PATIENCE_WITH_ITSELF = 480.0  # the other workers wait for rank 0, and NCCL lets them wait for 600
PATIENCE_WITH_FILES = 30.0

_held: list[IO[str]] = []  # files that stay open while they are locked
_unlocked: list[str] = []  # those on file systems that have no locks
_who: dict[str, Any] = {}  # the contents of the file


def lock_save_dir(cfg: Any, trainer: Any) -> None:
    """Called before a checkpoint is read; ``cfg``: the options of the group ``checkpoint``."""
    if not cfg.no_save:
        folder = Path(cfg.save_dir)
        _check_shared(folder, trainer, *_locked_by_rank_0(folder, trainer))


def _locked_by_rank_0(folder: Path, trainer: Any) -> tuple[str, str]:
    """The name that rank 0 has given to the run, and its host; the same on all workers."""
    name, refused = uuid.uuid4().hex, ""
    if trainer.data_parallel_rank == 0:
        try:
            _lock(folder, name)
        except DataError as error:
            refused = str(error)
    name, host, refused = gathered(trainer, (name, socket.gethostname(), refused))[0]
    end_all(refused, trainer)
    return name, host


def _lock(folder: Path, name: str) -> None:
    """Takes the lock, waiting for a run that has just ended to release it."""
    while _held:  # from an earlier run in this process
        _held.pop().close()
    folder.mkdir(parents=True, exist_ok=True)
    path, job, begun = folder / NAME, os.environ.get("SLURM_JOB_ID"), time.monotonic()
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - stays open until the process ends
    while not _is_locked(file):
        other = json_object_or_none(path) or {}
        is_same = job is not None and other.get("job") == job
        if time.monotonic() - begun > (PATIENCE_WITH_ITSELF if is_same else PATIENCE):
            file.close()
            what = f"process {other.get('process')} on {other.get('host')}"
            what += f" (SLURM job {other['job']})" if other.get("job") else ""
            raise DataError(
                f"{folder}: another run is writing its checkpoints there, {what}. Wait until it has ended, "
                "or pass another --save-dir (checkpoint.save_dir)."
            )
        time.sleep(0.2)
    _held.append(file)
    _who.update(run=name, host=socket.gethostname(), process=os.getpid(), job=job)
    _write(_who)


def has_locks() -> bool:
    """Whether a second run would be refused the save folder of this process, as far as it knows."""
    return not _unlocked


def note_the_stop(cause: str, updates: int) -> None:
    """Records in the file that the run was stopped and can resume, for the script that requeues it."""
    if _held:
        _write({**_who, "stopped": cause, "updates": updates})


def _write(who: dict[str, Any]) -> None:
    file = _held[0]
    with full_disk_named(Path(file.name)):
        file.truncate(0)
        file.write(json.dumps(who) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _is_locked(file: IO[str]) -> bool:
    """Takes a lock that forks don't inherit, and that the kernel releases however the process ends."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno not in CANNOT_LOCK:
            raise
        _unlocked.append(file.name)
        logger.warning("%s: this file system has no locks, so a second run would not be refused", file.name)
    return True


def _check_shared(folder: Path, trainer: Any, name: str, host: str) -> None:
    """Ends all workers if one of them does not see what rank 0 has written."""
    # Rank 0 must not look: a process that closes a file releases its own locks on it.
    begun, is_there = time.monotonic(), trainer.data_parallel_rank == 0
    while not is_there and time.monotonic() - begun < PATIENCE_WITH_FILES:
        is_there = (json_object_or_none(folder / NAME) or {}).get("run") == name
        if not is_there:
            time.sleep(0.5)
    seen = gathered(trainer, (socket.gethostname(), is_there))
    blind = sorted({where for where, sees in seen if not sees})
    refused = (
        f"{folder}: files that rank 0 on {host} writes there are not visible on {', '.join(blind)}. Pass a "
        "--save-dir (checkpoint.save_dir) on a file system that all nodes share."
    )
    end_all(refused if blind else "", trainer)
