"""Keeps two data-loading threads from drawing each other's random numbers.

fairseq/data/data_utils.py, line 127: ``numpy_seed`` seeds numpy's one global generator while a data set
draws. With ``--num-workers 0``, batches are loaded ahead of training in a thread (fairseq/data/iterators.py,
``BufferedIterator``). A validation within an epoch starts a second such thread, and each changes the masks
that the other draws. Masked-LM runs then differ from each other, and a resumed run from an uninterrupted one.
A lock around the block changes nothing if there is only one thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fairseq.data import data_utils

from fairseq_adv.fairseq_patches.replace import replace

_lock = threading.RLock()


def seed_one_thread_at_a_time() -> None:
    """Applies the patch."""
    replace(data_utils, "numpy_seed", _locked)


def _locked(plain: Callable[..., AbstractContextManager[None]]) -> Callable[..., Any]:
    @contextmanager
    def numpy_seed(*seeds: Any) -> Iterator[None]:
        with _lock, plain(*seeds):
            yield

    return numpy_seed


def _forget_other_threads() -> None:
    """In a forked loader: the thread that held the lock does not exist there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_other_threads)
