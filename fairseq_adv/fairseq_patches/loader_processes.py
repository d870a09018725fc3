"""Makes data-loading processes leave signals to the training process, and end with their epoch.

fairseq/data/iterators.py, line 499. A scheduler's signal, or Ctrl-C in a terminal, reaches these processes
too. By default it kills them, and the update that fairseq_patches/stop_on_a_signal.py wants to complete
fails. With this patch, only a SIGTERM from the training process ends them.

fairseq asks for processes that outlive their epoch, but starts new ones for the next: those of each
validation are left to Python's garbage collector, which closes their queues before torch has asked them to
exit. Training then waits 5 seconds for them. With this patch, they exit when they have loaded their data.

The data are loaded as before, with any criterion.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import torch
from fairseq.data import FairseqDataset

from fairseq_adv.fairseq_patches.replace import replace


def leave_signals_to_the_training() -> None:
    """Applies the patch."""
    replace(torch.utils.data.DataLoader, "__init__", _loading)


def _loading(plain: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, dataset: Any, *words: Any, **options: Any) -> None:
        if isinstance(dataset, FairseqDataset):
            options["persistent_workers"] = False
            if hasattr(signal, "sigwaitinfo"):  # not on macOS
                options.setdefault("worker_init_fn", _leave_signals)
        plain(self, dataset, *words, **options)

    return init


def _leave_signals(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    training = os.getppid()

    def wait() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != training:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
