"""Writes the documents retrieved for each choice of a jsonl to the choice's ``para``.

Rows are written to ``OUT.partial`` in the questions' order. A second run checks existing rows against the
questions and resumes after them, so correcting a line far down costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Callable, Optional

from tqdm import tqdm

from fairseq_adv.data.checked_json import COUNT, json_lines, json_object_or_none
from fairseq_adv.data.choices.question_layouts import read_regents
from fairseq_adv.data.choices.questions import Question, question_of, row_of
from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import atomic_write, locked, sha256_of
from fairseq_adv.data.workspace import differences
from fairseq_adv.retrieval.documents import Options, retrieve
from fairseq_adv.retrieval.tantivy_index import TantivyIndex

FORMAT_VERSION = 1
SUFFIX = ".manifest.json"
"""Ending of the file next to an output that records what the output was made from."""
# A line of OUT.partial, after the first, which records what they were made from: the row, the number of
# choices without a document, and the number of choices with a fallback.
_Record = list[Any]
_COUNTS = {"questions", "choices", "without", "fallbacks"}


@dataclass(frozen=True)
class Filled:
    """The result of :func:`fill` for a file."""

    questions: int  # lines written
    choices: int  # the number of choices of all questions
    without: int  # choices for which nothing was found
    fallbacks: int  # choices for which the required words had to be dropped, or that have none
    reused: bool  # the file existed already
    continued_at: int  # questions that an interrupted run had written


def fill(
    engine: TantivyIndex, source: Path, out: Path, options: Options, workers: int = 1, overwrite: bool = False
) -> Filled:
    """Copies ``source`` to ``out`` with a ``para`` for each choice; all other keys are kept. Shows a progress
    bar.

    An existing ``para`` is replaced. It is empty if nothing is found.

    Args:
        source: questions for :func:`fairseq_adv.data.choices.questions.read_questions`, or AI2's CSV
            (Regents), which is converted to such a jsonl; all are checked first.
        out: written atomically, with ``OUT.manifest.json`` (engine, version, options) next to it.
        workers: threads that search at the same time. The output does not depend on it.
    """
    if workers < 1:
        raise DataError(f"--workers {workers}: pass a number of threads, 1 or more.")
    if os.path.abspath(source) == os.path.abspath(out):
        raise DataError(f"{out}: is the input. Pass another output file.")
    rows = _rows(source)
    made_from = {"format": FORMAT_VERSION, **engine.describe(), "options": asdict(options)}
    manifest = {**made_from, "questions (sha256)": sha256_of(source)}
    old = _finished(out, manifest, overwrite)
    if old:
        return Filled(**old, reused=True, continued_at=0)
    partial = out.with_name(out.name + ".partial")

    def work(task: tuple[dict[str, Any], str, list[str]]) -> _Record:
        return _filled(engine, *task, options)

    with _journal(out, partial) as journal:
        journal.seek(0)
        records = _taken_up(journal, partial, made_from, [row for row, _ in rows])
        done = len(records)
        todo = [
            (row, question.stem, [choice.text for choice in question.choices])
            for row, question in rows[done:]
        ]
        with tqdm(total=len(rows), initial=done, desc=f"retrieve {source.name}", unit="question") as bar:
            for record in _in_order(work, todo, workers):
                journal.write(json.dumps(record).encode() + b"\n")
                journal.flush()
                records.append(record)
                bar.update()
        counts = {
            "questions": len(records),
            "choices": sum(len(row["question"]["choices"]) for row, _, _ in records),
            "without": sum(without for _, without, _ in records),
            "fallbacks": sum(fallbacks for _, _, fallbacks in records),
        }
        _publish(out, [row for row, _, _ in records], manifest, counts)
        partial.unlink()
    return Filled(**counts, reused=False, continued_at=done)


@contextmanager
def _journal(out: Path, path: Path) -> Iterator[BinaryIO]:
    with full_disk_named(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(path), open(path, "ab+") as journal:
            yield journal


def _rows(source: Path) -> list[tuple[dict[str, Any], Question]]:
    if not source.name.lower().removesuffix(".gz").endswith(".csv"):
        return [(row, question_of(row, where)) for where, row in json_lines(source)]
    return [(row_of(question), question) for question in read_regents(source)]


def _filled(
    engine: TantivyIndex, row: dict[str, Any], stem: str, choices: list[str], options: Options
) -> _Record:
    """[the row with its ``para``s, choices without, choices with a fallback]"""
    found = [retrieve(engine, stem, choice, options) for choice in choices]
    entries = [{**entry, "para": one.text} for entry, one in zip(row["question"]["choices"], found)]
    written = {**row, "question": {**row["question"], "choices": entries}}
    return [written, sum(not one.documents for one in found), sum(one.fallback for one in found)]


def _in_order(work: Callable[[Any], _Record], tasks: list[Any], workers: int) -> Iterator[_Record]:
    """The results in the tasks' order; only a few run at a time, so that interrupting is quick."""
    pool = ThreadPoolExecutor(workers)
    try:
        waiting: deque[Future[_Record]] = deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) >= 4 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _taken_up(journal: BinaryIO, path: Path, made_from: Any, rows: list[dict[str, Any]]) -> list[_Record]:
    """The valid records that an interrupted run left; ``journal`` is truncated after them."""
    header = json.dumps(made_from).encode() + b"\n"
    lines = journal.read().splitlines(keepends=True)
    if lines and not lines[0].startswith(b'{"format"'):
        raise DataError(f"{path}: is in the way and was not made by this program. Move it elsewhere.")
    records: list[_Record] = []
    end = len(header)
    if lines and lines[0] == header:
        for line, row in zip(lines[1:], rows):
            record = _record_in(line, row) if line.endswith(b"\n") else None
            if record is None:
                break
            records.append(record)
            end += len(line)
    else:
        journal.truncate(0)
        journal.seek(0)
        journal.write(header)
    journal.truncate(end)
    journal.seek(end)
    return records


def _record_in(line: bytes, row: dict[str, Any]) -> Optional[_Record]:
    """A journal's record of a question; ``None`` if it is damaged or for another question."""
    try:
        record: _Record = json.loads(line)
        written, *counts = record
        is_of_row = _without_para(written) == _without_para(row)
        paras = [choice["para"] for choice in written["question"]["choices"]]
        "".join(paras).encode("utf-8")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    are_counts = len(counts) == 2 and all(COUNT[1](count) and count <= len(paras) for count in counts)
    return record if is_of_row and are_counts else None


def _without_para(row: dict[str, Any]) -> dict[str, Any]:
    choices = [
        {key: value for key, value in choice.items() if key != "para"}
        for choice in row["question"]["choices"]
    ]
    return {**row, "question": {**row["question"], "choices": choices}}


def _finished(out: Path, made_from: dict[str, Any], overwrite: bool) -> Optional[dict[str, int]]:
    """The counts of an ``out`` that exists and was made from the same input."""
    if not out.exists():
        return None
    manifest = json_object_or_none(out.with_name(out.name + SUFFIX)) or {}
    before, counts, digest = manifest.get("made_from"), manifest.get("counts"), manifest.get("sha256")
    if (
        not (isinstance(before, dict) and isinstance(counts, dict))
        or counts.keys() != _COUNTS
        or not all(map(COUNT[1], counts.values()))
    ):
        raise DataError(
            f"{out}: exists and was not made by this program (no {out.name}{SUFFIX}). Pass another output."
        )
    if overwrite:
        return None
    differing = differences(made_from, before)
    if differing:
        raise DataError(
            f"{out}: was made from another index, other questions or options ({', '.join(differing)}). Pass "
            "--overwrite, or another output file."
        )
    if sha256_of(out) != digest:
        raise DataError(f"{out}: was changed since it was made. Pass --overwrite, or another output file.")
    return dict(counts)


def _publish(
    out: Path, rows: list[dict[str, Any]], made_from: dict[str, Any], counts: dict[str, int]
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    manifest = {"made_from": made_from, "counts": counts, "sha256": hashlib.sha256(text).hexdigest()}
    # The manifest first: an output without one would look as if another program had made it.
    atomic_write(out.with_name(out.name + SUFFIX), json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    atomic_write(out, text)
