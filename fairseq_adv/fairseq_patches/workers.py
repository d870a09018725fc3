"""The workers of a distributed run: how they start, agree and end together."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.processes import LEAVE_OUT
from fairseq_adv.fairseq_patches.replace import Original

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Seconds. torchrun kills all workers when the first has ended; rank 0 must have printed the reason by then.
HEAD_START = 5.0


def gathered(trainer: Any, value: Any) -> list[Any]:
    """The values of all workers, by rank."""
    if trainer.data_parallel_world_size == 1:
        return [value]
    everyone = [None] * trainer.data_parallel_world_size
    torch.distributed.all_gather_object(everyone, value, group=trainer.data_parallel_process_group)
    return everyone


def end_together(refused: str, trainer: Any) -> None:
    """Ends all workers if one of them has a reason; all must call this.

    Raises:
        SystemExit: on the other workers.
    """
    end_all(next(filter(None, gathered(trainer, refused)), ""), trainer)


def end_all(refused: str, trainer: Any, status: int = 2) -> None:
    """Ends them like :func:`end_together`, for a reason that all workers have; "" ends none."""
    if refused and trainer.data_parallel_rank == 0:
        raise DataError(refused) from None
    if refused:
        time.sleep(HEAD_START)
        raise SystemExit(status)


def spawn_elsewhere(original: Original, path: Any, words: Sequence[Any], descriptors: Any) -> Any:
    """multiprocessing/util.py: Python starts each worker, and a process that watches over what they share,
    with ``-c``, and so with the current folder first on the path until it has the parent's."""
    code = words.index("-c") + 1 if "-c" in words else None
    words = [LEAVE_OUT + word if place == code else word for place, word in enumerate(words)]
    return original(path, words, descriptors)


def end_with_torchrun() -> None:
    """Ends a worker together with the torchrun that started it.

    torchrun ends its workers when one of them fails, and when it is asked to stop. But if it is killed with
    SIGKILL (by the kernel when memory runs out, or by a scheduler), its workers continue: they have their own
    connections, and train and write checkpoints alongside a restarted run in the same folder. On Linux the
    kernel can end them. This applies to every criterion, but only under torchrun.

    Raises:
        SystemExit: torchrun has already died. The worker would otherwise wait for it for half an hour or
            longer, or find another run's torchrun at the same port.
    """
    if sys.platform != "linux" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not _is_listening():
        raise SystemExit("error: torchrun, which started this worker, has ended")


def _is_listening() -> bool:
    """Whether the store through which workers find each other exists; torchrun opens it before they start."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    except OSError:  # a slow network: torch will notice
        pass
    return True


@contextmanager
def no_sync(original: Original, self: Any) -> Iterator[None]:
    """Makes ``legacy_ddp`` reduce gradients again after an error.

    fairseq/distributed/legacy_distributed_data_parallel.py, line 66: it has no ``try``, so an error inside it
    leaves it on for good. After an out-of-memory error that the trainer recovers from, in an early mini-batch
    of ``--update-freq``, that worker would never reduce its gradients again, and the others would wait for
    it. Without an error nothing changes.
    """
    before = self.accumulate_grads
    self.accumulate_grads = True
    try:
        yield
    finally:
        self.accumulate_grads = before
