"""Writes the documents retrieved for each choice of a jsonl to the choice's ``para``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from tqdm import tqdm

from fairseq_adv.data.checked_json import COUNT, json_lines, json_object_or_none
from fairseq_adv.data.choices.question_layouts import read_regents
from fairseq_adv.data.choices.questions import Question, question_of, row_of
from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import atomic_write, check_output_folder, sha256_of
from fairseq_adv.data.workspace import differences
from fairseq_adv.retrieval.documents import Options, retrieve
from fairseq_adv.retrieval.tantivy_index import TantivyIndex

FORMAT_VERSION = 1
SUFFIX = ".manifest.json"
"""Ending of the file next to an output that records what the output was made from."""
_Filled = tuple[dict[str, Any], int, int]
"""A row with its ``para``s, the number of choices without a document, and that of choices with a fallback."""
_COUNTS = {"questions", "choices", "without", "fallbacks"}


@dataclass(frozen=True)
class Filled:
    """The result of :func:`fill` for a file."""

    questions: int  # lines written
    choices: int  # the number of choices of all questions
    without: int  # choices for which nothing was found
    fallbacks: int  # choices for which the required words had to be dropped, or that have none
    reused: bool  # the file existed already


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
    rows = _rows(source)
    made_from = {
        "format": FORMAT_VERSION,
        **engine.describe(),
        "options": asdict(options),
        "questions (sha256)": sha256_of(source),
    }
    old = _finished(out, made_from, overwrite)
    if old:
        return Filled(**old, reused=True)

    def work(task: tuple[dict[str, Any], Question]) -> _Filled:
        return _filled(engine, *task, options)

    check_output_folder(out.parent)
    with full_disk_named(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        filled = list(
            tqdm(_in_order(work, rows, workers), f"retrieve {source.name}", len(rows), unit="question")
        )
        counts = {
            "questions": len(filled),
            "choices": sum(len(row["question"]["choices"]) for row, _, _ in filled),
            "without": sum(without for _, without, _ in filled),
            "fallbacks": sum(fallbacks for _, _, fallbacks in filled),
        }
        _publish(out, [row for row, _, _ in filled], made_from, counts)
    return Filled(**counts, reused=False)


def _rows(source: Path) -> list[tuple[dict[str, Any], Question]]:
    if not source.name.lower().removesuffix(".gz").endswith(".csv"):
        return [(row, question_of(row, where)) for where, row in json_lines(source)]
    return [(row_of(question), question) for question in read_regents(source)]


def _filled(engine: TantivyIndex, row: dict[str, Any], question: Question, options: Options) -> _Filled:
    retrieved = [retrieve(engine, question.stem, choice.text, options) for choice in question.choices]
    entries = [{**entry, "para": one.text} for entry, one in zip(row["question"]["choices"], retrieved)]
    written = {**row, "question": {**row["question"], "choices": entries}}
    return written, sum(not one.documents for one in retrieved), sum(one.fallback for one in retrieved)


def _in_order(work: Callable[[Any], _Filled], tasks: list[Any], workers: int) -> Iterator[_Filled]:
    """The results in the tasks' order."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(work, tasks)
    finally:
        pool.shutdown(cancel_futures=True)  # soon after an interrupt


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
