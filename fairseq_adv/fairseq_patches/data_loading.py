"""The threads and processes that load a run's data."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, FairseqDataset, TokenBlockDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator

from fairseq_adv.data.io import check_size
from fairseq_adv.fairseq_patches.replace import Plain, replace

_lock = threading.RLock()


def refuse_large_dictionaries() -> None:
    """Refuses a ``dict.txt`` of gigabytes, which fairseq reads whole.

    fairseq/data/dictionary.py, line 229: ``add_from_file``. A file of an encoder's words is read as before.
    """
    replace(Dictionary, "add_from_file", _add_from_file)


def _add_from_file(plain: Plain, self: Dictionary, file: Any) -> None:
    if isinstance(file, str) and os.path.isfile(file):  # otherwise fairseq has it, or says what is missing
        check_size(Path(file))
    plain(self, file)


def seed_one_thread_at_a_time() -> None:
    """Keeps two data-loading threads from drawing each other's random numbers.

    fairseq/data/data_utils.py, line 127: ``numpy_seed`` seeds numpy's one global generator while a data set
    draws. With ``--num-workers 0``, batches are loaded ahead of training in a thread
    (fairseq/data/iterators.py, ``BufferedIterator``). A validation within an epoch starts a second such
    thread, and each changes the masks that the other draws. Masked-LM runs then differ from each other, and a
    resumed run from an uninterrupted one. A lock around the block changes nothing if there is only one
    thread.
    """
    replace(data_utils, "numpy_seed", _seed_alone)


@contextmanager
def _seed_alone(plain: Callable[..., AbstractContextManager[None]], *seeds: Any) -> Iterator[None]:
    with _lock, plain(*seeds):
        yield


def _forget_other_threads() -> None:
    """In a forked loader: the thread that held the lock does not exist there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_other_threads)


def skip_the_remainder_of_a_resumed_epoch() -> None:
    """Makes ``--skip-remainder-batch`` leave out the last mini-batch of an epoch only.

    fairseq/data/iterators.py, line 519: when a run resumes within an epoch, fairseq takes the number of
    mini-batches that are left for the number of all, and leaves out more, or the whole rest of the epoch.
    """
    replace(EpochBatchIterator, "_get_iterator_for_epoch", _without_its_last)


def _without_its_last(plain: Plain, self: Any, *words: Any, **options: Any) -> Any:
    is_asked, self.skip_remainder_batch = self.skip_remainder_batch, False
    try:
        iterator = plain(self, *words, **options)
    finally:
        self.skip_remainder_batch = is_asked
    if is_asked and iterator is not None:
        iterator.take(len(iterator) - 1)
        if iterator.n and not iterator.has_next():
            return None  # as when a position is past the end
    return iterator


def load_the_shard_of_the_epoch() -> None:
    """Lets a run that resumes past the end of a shard go on with the next one.

    fairseq/checkpoint_utils.py, line 260: fairseq loads the shard of the checkpoint's epoch, and only then
    finds that the epoch is over. The next one would be trained on the same shard.
    """
    replace(checkpoint_utils, "load_checkpoint", _load_shard)


def _load_shard(plain: Plain, cfg: Any, trainer: Any, **options: Any) -> Any:
    extra, iterator = plain(cfg, trainer, **options)
    is_resumed = extra is not None and not cfg.reset_dataloader
    if is_resumed and iterator.epoch == extra["train_iterator"]["epoch"] + 1:
        iterator = trainer.get_train_iterator(iterator.epoch, load_dataset=True, **options)
    return extra, iterator


def count_long_rows_whole() -> None:
    """Lets fairseq leave out rows of 65,536 tokens and more as it does others that are too long.

    fairseq/data/token_block_dataset.py, line 155: the lengths of rows are uint16, also with a break mode by
    which a row is at least a whole line. A line of 65,596 tokens counts as one of 60, passes as short enough,
    and ends the run in the position embedding, at the same update after each restart.
    """
    replace(TokenBlockDataset, "_build_slice_indices", _count_whole)


def _count_whole(plain: Plain, *words: Any, **options: Any) -> Any:
    sizes, *rest, slices = plain(*words, **options)
    whole = np.diff(slices.astype(np.int64)).squeeze(1)
    if whole.max() >= np.iinfo(sizes.dtype).max:  # or would be, with the first token that fairseq adds
        sizes = whole
    return (sizes, *rest, slices)


def leave_signals_to_the_training() -> None:
    """Makes data-loading processes leave signals to the training process, and end with their epoch.

    fairseq/data/iterators.py, line 499. A scheduler's signal, or Ctrl-C in a terminal, reaches these
    processes too. By default it kills them, and the update that
    :func:`fairseq_adv.fairseq_patches.signals.stop_on_a_signal` wants to complete fails. With this patch,
    only a SIGTERM from the training process ends them.

    fairseq asks for processes that outlive their epoch, but starts new ones for the next: those of each
    validation are left to Python's garbage collector, which closes their queues before torch has asked them
    to exit. Training then waits 5 seconds for them. With this patch, they exit when they have loaded their
    data.

    The data are loaded as before, with any criterion.
    """
    replace(torch.utils.data.DataLoader, "__init__", _load_for_one_epoch)


def _load_for_one_epoch(plain: Plain, self: Any, dataset: Any, *words: Any, **options: Any) -> None:
    if isinstance(dataset, FairseqDataset):
        options["persistent_workers"] = False
        # fairseq always asks for pinned memory. Without a GPU, torch doesn't pin, and warns.
        options["pin_memory"] = options.get("pin_memory", False) and torch.cuda.is_available()
        if hasattr(signal, "sigwaitinfo"):  # not on macOS
            options.setdefault("worker_init_fn", _leave_signals)
    plain(self, dataset, *words, **options)


def _leave_signals(_: int) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    training = os.getppid()

    def wait() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != training:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
