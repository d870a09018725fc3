#!/usr/bin/env python3
"""The cost of indexing and searching a corpus, at several sizes, extrapolated to the ARC corpus.

The corpus of each size is that many lines, taken evenly from TEXT. Each step runs in a process of its own, so
that its peak memory can be measured; "before" is that process's memory after its imports. A query is one
question-choice pair of ARC, with everything that fairseq-adv retrieve documents does for it: the search,
reading the sentences, choosing ten. CPU seconds are those of all threads; other programs disturb them less
than wall time.
The last row is extrapolated: times are proportional to those of the largest size, memory and disk lie on the
straight line through the two largest.

Example: retrieval.py sentences.txt --questions arc/*.jsonl --sizes 100000 1000000 3000000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fairseq_adv.cli.script import count

ARC_SENTENCES, ARC_QUERIES = 14_300_000, 31_133


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("text", type=Path, metavar="TEXT", help="a text file with one sentence per line")
    options.add_argument("--questions", type=Path, nargs="+", required=True, help="jsonl files of ARC")
    options.add_argument("--sizes", type=count, nargs="+", default=[100_000, 1_000_000, 3_000_000])
    options.add_argument("--pairs", type=count, default=1000, help="question-choice pairs to look up")
    options.add_argument("--threads", type=count, nargs="+", default=[1, 2])
    options.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    return options


def memory() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def take(text: Path, size: int, out: Path) -> None:
    with open(text, "rb") as file:
        total = sum(1 for _ in file)
    if total < size:
        raise SystemExit(
            f"error: {text}: {total} lines, fewer than {size}. Use more text, or change --sizes."
        )
    with open(text, "rb") as file, open(out, "wb") as target:
        target.writelines(line for i, line in enumerate(file) if i * size // total != (i + 1) * size // total)


def index_step(corpus: str, out: str) -> dict[str, Any]:
    from fairseq_adv.retrieval.sentences import survey
    from fairseq_adv.retrieval.tantivy_index import build

    import_memory = memory()
    started, cpu = time.perf_counter(), time.process_time()
    checked = survey([corpus])
    check = time.perf_counter() - started
    built = build(checked, Path(out))
    return {
        "sentences": built.sentences,
        "segments": built.segments,
        "check": check,
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "before": import_memory,
        "peak": memory(),
        "disk": sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file()) / 2**20,
    }


def query_step(index: str, threads: int, pairs: int, questions: list[Path]) -> dict[str, Any]:
    from concurrent.futures import ThreadPoolExecutor

    from fairseq_adv.data.choices.questions import read_questions
    from fairseq_adv.retrieval.documents import Options, retrieve
    from fairseq_adv.retrieval.tantivy_index import open_index

    every = [(q.stem, c.text) for path in sorted(questions) for q in read_questions(path) for c in q.choices]
    chosen = random.Random(0).sample(every, min(pairs, len(every)))
    engine, options = open_index(Path(index)), Options()
    for stem, choice in chosen[:50]:  # brings the index's pages into memory
        retrieve(engine, stem, choice, options)
    import_memory = memory()
    started, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda pair: len(retrieve(engine, *pair, options).documents), chosen))
    seconds = time.perf_counter() - started
    return {
        "queries": len(chosen),
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "documents": sum(found) / len(found),
        "before": import_memory,
        "peak": memory(),
    }


def step(arguments: argparse.Namespace, *what: object) -> Any:
    """Runs one step in a process of its own."""
    command = [sys.executable, __file__, str(arguments.text), "--pairs", str(arguments.pairs)]
    command += ["--questions", *map(str, arguments.questions), "--step", *map(str, what)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def extrapolated(sizes: list[int], rows: list[list[float]]) -> list[float]:
    """The row for the size of the ARC corpus."""
    (x0, x1), (old, new) = sizes[-2:], rows[-2:]
    values = [value * ARC_SENTENCES / x1 for value in new]
    for k in (2, 4):  # peak memory, disk
        values[k] = new[k] + (new[k] - old[k]) / (x1 - x0) * (ARC_SENTENCES - x1)
    values[3], values[5] = new[3], new[5]
    return values


def main() -> None:
    arguments = parser().parse_args()
    if arguments.step:
        kind, *rest = arguments.step
        if kind == "index":
            result = index_step(*rest)
        else:
            result = query_step(rest[0], int(rest[1]), arguments.pairs, arguments.questions)
        print(json.dumps(result))
        return
    threads = [f"{n} thread{'s' * (n > 1)}" for n in arguments.threads]
    print(
        "| sentences | sentences/s (CPU s) | index: s (CPU s) | peak memory (before) | on disk | segments | "
        + " | ".join(f"queries/s, {n} (CPU ms a query)" for n in threads)
        + " | documents a query |"
    )
    print("|" + "---|" * (7 + len(threads)), flush=True)
    rows = [measured(arguments, size) for size in arguments.sizes]
    if len(rows) > 1:
        at_arc = extrapolated(arguments.sizes, rows)
        line(ARC_SENTENCES, at_arc, "")
        minutes = ", ".join(f"{ARC_QUERIES * wall / 60:.0f} ({n})" for wall, n in zip(at_arc[6::2], threads))
        print(f"\nARC's {ARC_QUERIES:,} pairs at that size, in minutes: {minutes}.")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end; {arguments.pairs} pairs.")


def measured(arguments: argparse.Namespace, size: int) -> list[float]:
    """Measures one size and prints its row."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, index = Path(folder) / "corpus.txt", Path(folder) / "index"
        take(arguments.text, size, corpus)
        built = step(arguments, "index", corpus, index)
        found = [step(arguments, "query", index, threads) for threads in arguments.threads]
    values = [built[key] for key in ("seconds", "cpu", "peak", "before", "disk", "segments")]
    for one in found:
        values += [one["seconds"] / one["queries"], one["cpu"] / one["queries"]]
    line(size, values, f"{found[0]['documents']:.1f}")
    return values


def line(size: int, values: list[float], documents: str) -> None:
    seconds, cpu, peak, before, disk, segments, *queries = values
    rates = " | ".join(
        f"{1 / wall:.0f} ({1000 * each:.1f})" for wall, each in zip(queries[::2], queries[1::2])
    )
    print(
        f"| {size:,} | {size / seconds:,.0f} ({size / cpu:,.0f}) | {seconds:.1f} ({cpu:.1f}) | "
        f"{peak:.0f} MiB ({before:.0f}) | {disk:.0f} MiB | {segments:.0f} | {rates} | {documents} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
