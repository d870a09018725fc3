"""Makes the shards of a corpus in worker processes, one shard each at a time, with a progress bar over all
bytes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Dict, List, Sequence, Tuple

from tqdm import tqdm

from fairseq_adv.data.corpus.corpus import Corpus
from fairseq_adv.data.corpus.reader import Reading
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import remove_scratch

_LOG_SECONDS = 30.0  # between two states of the bar if there is no terminal


@dataclass
class Made:
    """The result of :func:`make`."""

    made: List[int] = field(default_factory=list)  # shards that were made
    skipped: List[int] = field(default_factory=list)  # shards that existed already
    # messages for shards stopped by an error in the input or on the disk
    mistakes: List[str] = field(default_factory=list)
    # messages for shards whose worker process ended without a message
    died: List[str] = field(default_factory=list)


def make(
    corpus: Corpus,
    shards: Sequence[int],
    workers: int,
    overwrite: bool = False,
) -> Made:
    """Makes the missing shards, ``workers`` at a time, each in its own process.

    A worker reads, tokenises and writes; only a count of bytes passes between it and this process. A shard
    that fails is reported at once. After an error in an input no further shard is started, and running ones
    are finished. A worker that dies costs only its own shard.

    Raises:
        KeyboardInterrupt: after Ctrl-C, or a SIGTERM that is handled, when all workers have ended.
    """
    corpus.check_out()
    result = Made()
    for shard in shards:
        (result.skipped if corpus.done(shard, overwrite) else result.made).append(shard)
    waiting, result.made = result.made, []
    # The tokenizer's own threads would multiply the workers; it reads this variable when it is first used.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    counter = multiprocessing.RawArray("q", max(shards, default=0) + 1)
    running: Dict[Any, Tuple[int, BaseProcess, Connection]] = {}
    tqdm.monitor_interval = 0  # no monitor thread may exist when workers are forked
    bar = tqdm(
        total=sum(corpus.size(shard) for shard in waiting), unit="B", unit_scale=True, smoothing=0.1,
        mininterval=0.1 if sys.stderr.isatty() else _LOG_SECONDS, disable=not waiting,
    )  # fmt: skip
    interrupted, before = _note_signals()
    try:
        while (waiting or running) and not interrupted:
            while waiting and len(running) < workers and not result.mistakes:
                shard = waiting.pop(0)
                process, answer = _start(corpus, shard, overwrite, counter)
                running[process.sentinel] = shard, process, answer
            if not running:
                break
            for sentinel in wait(list(running), timeout=0.2):
                shard, process, answer = running.pop(sentinel)
                _take(result, corpus, shard, process, answer)
            bar.update(sum(counter) - bar.n)
    finally:
        for _, process, _ in running.values():
            process.terminate()
        for shard, process, _ in running.values():
            process.join()
            remove_scratch(corpus.folder(shard))
        bar.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in interrupted:
        before[number](number, None)  # raises
    return result


def _note_signals() -> Tuple[List[int], Dict[int, Any]]:
    """A list that Ctrl-C and SIGTERM append to, and the handlers to restore, for signals that have one.

    A KeyboardInterrupt raised while a process is being forked would be lost.
    """
    noted: List[int] = []
    if threading.current_thread() is not threading.main_thread():
        return noted, {}
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded: Dict[int, Any] = {number: handler for number, handler in before.items() if callable(handler)}
    for number in heeded:
        signal.signal(number, lambda number, _: noted.append(number))
    return noted, heeded


def _start(corpus: Corpus, shard: int, overwrite: bool, counter: Any) -> Tuple[BaseProcess, Connection]:
    # A forked process already has fairseq and the tokenizer, which take seconds and memory to load.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(corpus, shard, overwrite, counter, sender), daemon=True)
    sys.stdout.flush()
    sys.stderr.flush()
    process.start()
    sender.close()
    return process, receiver


def _take(result: Made, corpus: Corpus, shard: int, process: BaseProcess, answer: Connection) -> None:
    """Records how a worker ended."""
    process.join()
    if process.exitcode == 0:
        result.made.append(shard)
        return
    remove_scratch(corpus.folder(shard))  # of a worker that was killed
    try:
        message, into = answer.recv(), result.mistakes
    except EOFError:
        code = process.exitcode or 0
        ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        message = (
            f"{corpus.folder(shard)}: its worker {ending}, so this shard was not made. Run the same command "
            "again to make what is missing."
        )
        into = result.died
    into.append(message)
    with tqdm.external_write_mode(file=sys.stderr):
        print(f"error: {message}", file=sys.stderr, flush=True)


def _work(corpus: Corpus, shard: int, overwrite: bool, counter: Any, sender: Connection) -> None:
    """Makes one shard, in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()

    def progress(count: int) -> None:
        counter[shard] += count
        if os.getppid() != parent:
            os._exit(1)  # nobody is left to report to; another run may want this shard

    reading = Reading(corpus.replace_invalid, corpus.max_line, progress)
    try:
        corpus.write(shard, reading, overwrite)
    except DataError as error:
        _end(sender, str(error))
    except OSError as error:
        name = error.filename or corpus.folder(shard)
        _end(
            sender,
            f"{name}: {error.strerror or error}, so {corpus.folder(shard)} was not made. Fix that and run "
            "the same command again; finished shards are kept.",
        )
    except MemoryError:
        _end(sender, f"{corpus.folder(shard)}: not enough memory. Use fewer --workers.")


def _end(sender: Connection, message: str) -> None:
    sender.send(message)
    sender.close()
    sys.exit(2)
