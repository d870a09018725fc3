#!/usr/bin/env python3
"""Trains every reasoning task for a hundred updates or so with a small encoder on a CPU, with and without
FreeLB: a check that a task works on real files before you train a large model.

  examples/small_runs.py ../shared/data out/small
  examples/small_runs.py ../shared/data out/small --table --into page.md

Finished runs are kept. A run that was interrupted or had other settings starts again.
arc-multitask is a small-scale version of the paper's recipe: it starts from the run race, which comes first.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

import small_setup as small
from driver import Record, Run, make
from tables import Column, table

METHODS = ("freelb", "standard")
ADVERSARY = ["--adv-steps", "2", "--adv-lr", "0.03", "--adv-max-norm", "0.1", "--adv-init-mag", "0.05"]
ARC = [f"arc/{part}-{split}.jsonl" for part in ("ARC-Easy", "ARC-Challenge") for split in ("Train", "Dev")]


@dataclass(frozen=True)
class Task:
    """A task of the small runs.

    Attributes:
        needs: what DATA must contain for it.
        prepare: prepares its data; returns fairseq-train's data argument, relative to OUT.
        words: its options for fairseq-train.
        chance: accuracy in % of random answers; for WSC, of the dev set's more frequent label.
    """

    needs: list[str]
    prepare: Callable[[Namespace], str]
    words: list[str]
    chance: float


def as_it_is(name: str) -> Callable[[Namespace], str]:
    return lambda options: os.path.relpath((options.data / name).resolve(), options.out)


def prepared(options: Namespace, folder: str, verb: str, *words: object) -> str:
    if not (options.out / folder).is_dir():
        small.run_verb(verb, words[0], options.out / folder, *words[1:])
    return folder


def arc(options: Namespace, has_documents: bool = True) -> str:
    """A folder for each part, with documents retrieved from the science sentences, or without documents."""
    top = "arc" if has_documents else "arc-as-it-is"
    if has_documents:
        sentences = options.data / "science_text" / "sentences.txt"
        index = options.out / prepared(options, "index", "retrieve index", sentences)
    for path in (options.data / name for name in ARC):
        target = options.out / top / path.name.rpartition("-")[0] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if has_documents:
            small.run_verb("retrieve documents", index, path, target)  # does nothing a second time
        elif not target.exists():
            target.symlink_to(path.resolve())
    return f"{top}/ARC-Easy:{top}/ARC-Challenge"


RETRIEVAL = ["--task", "arc_retrieval", "--batch-size", "8", "--tokens-per-sample", "64"]
TASKS = {
    "commonsense_qa": Task(
        ["commonsense_qa"], as_it_is("commonsense_qa"), ["--task", "commonsense_qa", "--batch-size", "8"], 20
    ),
    "qnli_ranking": Task(
        ["glue/QNLI"],
        lambda options: prepared(
            options, "qnli_pairs", "prepare qnli-ranking", options.data / "glue" / "QNLI"
        ),
        ["--task", "qnli_ranking", "--batch-size", "8"], 50,
    ),
    "wsc": Task(
        ["wsc"],
        lambda options: prepared(
            options, "wsc", "prepare wsc", options.data / "wsc", "--candidates", options.wsc_candidates
        ),
        ["--task", "wsc", "--batch-size", "8"], 63.46,
    ),
    "race": Task(
        ["race"], as_it_is("race"),
        ["--task", "arc_retrieval", "--batch-size", "4", "--tokens-per-sample", "128"], 25,
    ),
    "arc": Task([*ARC, "science_text/sentences.txt"], arc, RETRIEVAL, 25.02),
    "arc-without": Task(
        ARC, lambda options: arc(options, has_documents=False),
        ["--task", "arc_retrieval", "--batch-size", "8", "--no-documents"], 25.02,
    ),
    "arc-multitask": Task(
        [*ARC, "science_text/sentences.txt", "race"],
        lambda options: f"{arc(options)}:{as_it_is('race')(options)}",
        [*RETRIEVAL, "--sampling-weights", "1:1:0.5"], 25.01,
    ),
}  # fmt: skip


def parser() -> ArgumentParser:
    options = small.parser(__doc__, "commonsense_qa, arc, race, wsc, glue/QNLI and science_text")
    small.add_names(options, "--tasks", list(TASKS))
    small.add_names(options, "--methods", METHODS)
    small.add_number(options, "--updates", "of each run", 150)
    options.add_argument(
        "--wsc-candidates", choices=("spans", "noun-phrases"), default="spans",
        help="noun-phrases needs spaCy and one of its models",
    )  # fmt: skip
    return options


def run(options: Namespace, task: str, method: str, data: str, start: str) -> Run:
    half = str(max(options.updates // 2, 1))
    words = [
        *small.encoder_words(options), *small.COMMON, *small.schedule(1e-4, options.updates),
        "--tokenizer-dir", options.encoder, "--criterion", method,
        *(ADVERSARY if method == "freelb" else []),
        "--validate-interval", "1000", "--validate-interval-updates", half,
        "--save-interval-updates", half, "--keep-interval-updates", "1",
        "--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", *TASKS[task].words,
    ]  # fmt: skip
    labels = {"task": task, "method": method}
    return Run(f"{task}-{method}", data, start, words, labels=labels, curve=["loss"])


def work(options: Namespace) -> None:
    data = {task: TASKS[task].prepare(options) for task in options.tasks}
    start = f"{options.encoder}/model.pt"
    runs = [
        run(options, task, method, data[task], start)
        for task in options.tasks if task != "arc-multitask" for method in options.methods
    ]  # fmt: skip
    if "arc-multitask" in options.tasks:
        race = run(options, "race", "freelb", as_it_is("race")(options), start)
        make([*runs, *(() if race in runs else [race])], options.out, options.jobs)
        after_race = f"{race.name}/checkpoint_last.pt"
        runs = [
            run(options, "arc-multitask", method, data["arc-multitask"], after_race)
            for method in options.methods
        ]
    make(runs, options.out, options.jobs)


def best(record: Record) -> float:
    return float(max(epoch["accuracy"] for epoch in record["valid"]))


def best_of_part(part: str) -> Callable[[Record], float | None]:
    """Accuracy on one data set of the checkpoint that is best on all of them."""
    return lambda record: max(record["valid"], key=lambda epoch: epoch["accuracy"]).get(f"accuracy_{part}")


def tables(records: list[Record]) -> list[str]:
    columns = [
        small.UPDATES,
        Column("chance", lambda record: TASKS[record["labels"]["task"]].chance),
        Column("best dev accuracy", best),
        *(Column(part, best_of_part(part)) for part in ("ARC-Easy", "ARC-Challenge", "race")),
        Column("training loss, nats, at first", lambda record: small.NATS * record["numbers"]["loss"][0], 3),
        Column("at last", lambda record: small.NATS * record["numbers"]["loss"][-1], 3),
        small.SPEED, small.CPU, small.PEAK,
    ]  # fmt: skip
    return table(records, {"task": sorted(TASKS), "method": METHODS}, columns)


def main() -> int:
    options = parser().parse_args()
    needs = [name for task in options.tasks for name in TASKS[task].needs]
    return small.command(options, needs, work, tables)


if __name__ == "__main__":
    sys.exit(main())
