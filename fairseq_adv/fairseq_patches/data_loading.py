"""The threads and processes that load a run's data."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator

from fairseq_adv.data.io import check_size
from fairseq_adv.fairseq_patches.replace import Original

_lock = threading.RLock()
_ahead: WeakSet[threading.Thread] = WeakSet()  # the threads of load_ahead
_left: WeakSet[threading.Thread] = WeakSet()  # those whose mini-batches nobody takes any more
_has_ended = threading.Event()  # the process
_LONGEST = 10.0  # seconds to wait for one of them


def add_from_file(original: Original, self: Any, file: Any) -> None:
    """Refuses a ``dict.txt`` of gigabytes, which fairseq/data/dictionary.py, line 229, reads whole.

    A file of an encoder's words is read as before.
    """
    if isinstance(file, str) and os.path.isfile(file):  # otherwise fairseq has it, or says what is missing
        check_size(Path(file))
    original(self, file)


@contextmanager
def numpy_seed(original: Callable[..., AbstractContextManager[None]], *seeds: Any) -> Iterator[None]:
    """Keeps two data-loading threads from drawing each other's random numbers.

    fairseq/data/data_utils.py, line 127, seeds numpy's one global generator while a data set draws. With
    ``--num-workers 0``, batches are loaded ahead of training in a thread (fairseq/data/iterators.py,
    ``BufferedIterator``). A validation within an epoch starts a second such thread, and each changes the
    masks that the other draws. Masked-LM runs then differ from each other, and a resumed run from an
    uninterrupted one. A lock changes nothing if there is only one thread.
    """
    with _lock, original(*seeds):
        yield


def _forget_other_threads() -> None:
    """Frees the lock in a forked loader, where the thread that held it does not exist."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_other_threads)


def load_ahead(original: Original, self: Any) -> None:
    """Ends the thread that loads mini-batches ahead of training before Python ends the process.

    fairseq/data/iterators.py, line 666: it is left to run. Up to Python 3.13, a thread that is in a function
    of torch when Python shuts down then aborts the process ("terminate called without an active exception"):
    a run ends with status 134, not its own, whether it failed, was stopped, or had done all its updates.
    """
    source, batches = self._source, _until_the_end(self, self._source)
    self._source = batches
    _ahead.add(self)
    original(self)
    self._source = source
    batches.close()  # and with it the iterator, whose processes end then


def _until_the_end(thread: threading.Thread, source: Any) -> Generator[Any, None, None]:
    for item in source:
        if _has_ended.is_set() or thread in _left:
            return
        yield item


@contextmanager
def loading_ends() -> Iterator[None]:
    """The threads that begin in the block end with it.

    fairseq_cli/train.py, line 492: after ``--max-valid-steps`` nobody takes the validation's other
    mini-batches, and the thread waited for ever, with the processes that load them: as many of each as there
    had been validations.
    """
    before = set(_ahead)
    try:
        yield
    finally:
        for thread in set(_ahead) - before:
            _left.add(thread)
            _let_go(thread)


def _let_go(thread: Any) -> None:
    """A thread that waits until somebody takes a mini-batch goes on without."""
    batches = thread._queue
    with batches.not_full:
        batches.maxsize = sys.maxsize
        batches.not_full.notify_all()


@atexit.register
def _end_threads() -> None:
    _has_ended.set()
    for thread in list(_ahead):
        _let_go(thread)
        thread.join(_LONGEST)


class WholeEpochs(EpochBatchIterator):  # type: ignore[misc]
    """``--skip-remainder-batch`` leaves out the last mini-batch of an epoch only, and ``--curriculum`` ends.

    fairseq/data/iterators.py, line 519: when a run resumes within an epoch, fairseq takes the number of
    mini-batches that are left for the number of all, and leaves out more, or the whole rest of the epoch.

    Line 480: an iterator that is used again keeps the first epoch's ``shuffle``, but saves the present one:
    a run with ``--curriculum`` was never shuffled, until it was resumed, in another order.
    """

    skip_remainder_batch: bool

    def _get_iterator_for_epoch(
        self, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0
    ) -> Any:
        is_asked, self.skip_remainder_batch = self.skip_remainder_batch, False
        if self.reuse_dataloader and self.dataloader is not None:
            self.batch_sampler.shuffle = shuffle
            self.batch_sampler.fix_batches_to_gpus = fix_batches_to_gpus
        try:
            iterator = super()._get_iterator_for_epoch(epoch, shuffle, fix_batches_to_gpus, offset)
        finally:
            self.skip_remainder_batch = is_asked
        if is_asked and iterator is not None:
            iterator.take(len(iterator) - 1)
            if iterator.n and not iterator.has_next():
                return None  # as when a position is past the end
        return iterator


def announce_file(original: Original, path: str) -> None:
    """Lets the kernel read a file of rows ahead while training begins.

    fairseq/data/indexed_dataset.py, line 385, reads each file whole first, in each worker and at each new
    shard: 10 GB, which 10 million rows of 512 tokens are, take 10 CPU seconds even if they are in memory.
    """
    if not hasattr(os, "posix_fadvise"):  # not on macOS
        return
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def build_slice_indices(original: Original, *words: Any, **options: Any) -> Any:
    """Lets fairseq leave out rows of 65,536 tokens and more as it does others that are too long.

    fairseq/data/token_block_dataset.py, line 155: the lengths of rows are uint16, also with a break mode by
    which a row is at least a whole line. A line of 65,596 tokens counts as one of 60, passes as short enough,
    and ends the run in the position embedding, at the same update after each restart.
    """
    sizes, *rest, slices = original(*words, **options)
    whole = np.diff(slices.astype(np.int64)).squeeze(1)
    if whole.max() >= np.iinfo(sizes.dtype).max:  # or would be, with the first token that fairseq adds
        sizes = whole
    return (sizes, *rest, slices)


def load_for_one_epoch(original: Original, self: Any, dataset: Any, *words: Any, **options: Any) -> None:
    """Makes data-loading processes leave signals to the training process, and end with their epoch.

    fairseq/data/iterators.py, line 499. A scheduler's signal, or Ctrl-C in a terminal, reaches these
    processes too. By default it kills them, and the update that
    :mod:`fairseq_adv.fairseq_patches.signals` wants to complete fails. With this patch, only a SIGTERM from
    the training process ends them.

    fairseq asks for processes that outlive their epoch, but starts new ones for the next: those of each
    validation are left to Python's garbage collector, which closes their queues before torch has asked them
    to exit. Training then waits 5 seconds for them. With this patch, they exit when they have loaded their
    data.

    From Python 3.14 on, they would be children of a server: they would not know the training's signals, and
    import everything anew, without this package's patches. In a job of hydra's joblib launcher they could not
    start. With this patch they are forked, as before.
    """
    if isinstance(dataset, FairseqDataset):
        options["persistent_workers"] = False
        # fairseq always asks for pinned memory. Without a GPU, torch doesn't pin, and warns.
        options["pin_memory"] = options.get("pin_memory", False) and torch.cuda.is_available()
        if hasattr(signal, "sigwaitinfo"):  # not on macOS
            options.setdefault("worker_init_fn", _leave_signals)
        if options.get("num_workers") and sys.platform == "linux":
            options["multiprocessing_context"] = "fork"
    original(self, dataset, *words, **options)


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
