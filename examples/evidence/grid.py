"""The grid of the evidence run: tasks, methods, sizes to choose from, and the order of the cells.

A cell is one training run: a task, a number of its rows, a method, a seed. The learning rate and the sizes of
a method are chosen once per task, by the dev score of runs with seed 0; every method has four candidates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from driver import Record, Run

SEEDS = (1, 2, 3, 4, 5)
RADII = (0.01, 0.02)  # of the attack, as shares of the norm of a text's embeddings
ENCODER = "MiniLM-L6"


@dataclass(frozen=True)
class Task:
    """A data set.

    Attributes:
        updates: the number of updates, of 32 rows each, for each number of training rows; candidates are
            compared with the first.
        metric: the one that candidates are compared by and that the tables show.
    """

    name: str
    updates: dict[int, int]
    metric: str = "accuracy"

    @property
    def tuned_rows(self) -> int:
        return next(iter(self.updates))


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        words: options of ``fairseq-train``.
        candidates: the learning rate of each, and its options that set sizes.
        passes: the factor by which it has more updates than the others.
    """

    name: str
    words: Sequence[str]
    candidates: Sequence[tuple[float, Sequence[str]]]
    passes: int = 1


def adv(share: float) -> list[str]:
    """epsilon as a share of the embeddings; alpha is a third of it, the start half of it."""
    return [
        "--adv-max-norm",
        f"{share:g}",
        "--adv-lr",
        f"{share / 3:.6f}",
        "--adv-init-mag",
        f"{share / 2:g}",
    ]


def vat(share: float, alpha: float) -> list[str]:
    """epsilon as a share of the entries of the embeddings; eta is epsilon, sigma a tenth of it."""
    return [
        "--vat-epsilon", f"{share:g}", "--vat-step-size", f"{share:g}", "--vat-init-std", f"{share / 10:g}",
        "--vat-alpha", f"{alpha:g}",
    ]  # fmt: skip


def flooded(level: str) -> list[str]:
    return ["--flood-level", level]


TASKS = {
    task.name: task
    for task in (
        Task("movie-reviews", {1000: 192, 250: 96, 4000: 500}),
        Task("CoLA", {8551: 804}, "mcc"),
        Task("MRPC", {3667: 345}),
    )
}
_LRS = (5e-5, 1e-4, 2e-4, 4e-4)
_PAIRS = [(lr, share) for lr in (1e-4, 2e-4) for share in (0.01, 0.02)]
_ADV = [(lr, adv(share)) for lr, share in _PAIRS]
_K = ["--adv-relative", "--adv-steps", "3"]
METHODS = {
    method.name: method
    for method in (
        Method("standard", [], [(lr, []) for lr in _LRS]),
        Method("freelb", ["--criterion", "freelb", *_K], _ADV),
        # As many passes over the model as freelb.
        Method("standard-3x", [], [(lr / 2, []) for lr in _LRS], passes=3),
        Method(
            "alum_vat", ["--criterion", "alum_vat", "--vat-relative"],
            [(lr, vat(share, 1.0)) for lr in (1e-4, 2e-4) for share in (0.02, 0.06)],
        ),
        Method(
            "smart", ["--criterion", "smart", "--vat-relative", "--store-ema", "--ema-decay", "0.99"],
            [(lr, vat(share, 1.0)) for lr in (1e-4, 2e-4) for share in (0.02, 0.06)],
        ),
        Method(
            "flooding", [],
            [(lr, flooded(level)) for lr in (1e-4, 2e-4) for level in ("0.05", "0.15")],
        ),
        Method("pgd", ["--criterion", "pgd", *_K], _ADV),
        # The noise has 0.01 and 0.06 of the embeddings' norm.
        Method(
            "noise", ["--criterion", "noise", "--noise-relative"],
            [(lr, ["--noise-size", size]) for lr in (1e-4, 2e-4) for size in ("0.0173", "0.104")],
        ),
        Method(
            "r3f", ["--criterion", "r3f", "--r3f-relative"],
            [
                (lr, ["--r3f-epsilon", size, "--r3f-lambda", "1"])
                for lr in (1e-4, 2e-4) for size in ("0.02", "0.1")
            ],
        ),
        Method("tavat", ["--criterion", "tavat", *_K], _ADV),
        # No projection; the norm of delta reaches about 4 steps.
        Method(
            "freelb_plus_plus", ["--criterion", "freelb", "--adv-relative", "--adv-steps", "5"],
            [
                (lr, ["--adv-max-norm", "0", "--adv-lr", step, "--adv-init-mag", step])
                for lr in (1e-4, 2e-4) for step in ("0.0033", "0.01")
            ],
        ),
        Method("yopo", ["--criterion", "yopo", *_K, "--yopo-steps", "2"], _ADV),
        Method("freeat", ["--criterion", "freeat", *_K], _ADV),
        Method(
            "flooding-auto", ["--accordance-interval", "20", "--accordance-groups", "all"],
            [(lr, flooded("auto")) for lr in _LRS],
        ),
    )
}  # fmt: skip
FIRST = ("standard", "freelb", "standard-3x")
# Methods whose models are also attacked on words.
ATTACKED = (
    "standard", "freelb", "noise", "r3f", "flooding", "pgd", "tavat", "flooding-auto", "freelb_plus_plus",
)  # fmt: skip
ATTACKED_TASK, ATTACKED_SEEDS = "movie-reviews", (1, 2, 3)


def has_word_attacks(run: Run) -> bool:
    """Whether a cell's model is also attacked on words."""
    task, rows, method = (run.labels[name] for name in ("task", "rows", "method"))
    place = task == ATTACKED_TASK and int(rows) == TASKS[task].tuned_rows
    return place and method in ATTACKED and run.seed in ATTACKED_SEEDS


def stages() -> Iterator[tuple[Task, int, tuple[str, ...], tuple[int, ...]]]:
    """Task, rows, methods and seeds of each stage, the most valuable first; a stage proceeds seed by seed."""
    attacked = TASKS[ATTACKED_TASK]
    for method in ATTACKED:
        yield attacked, attacked.tuned_rows, (method,), ATTACKED_SEEDS
    places = [(task, rows) for task in TASKS.values() for rows in task.updates]
    for task, rows in places:
        yield task, rows, FIRST, SEEDS
    for method in METHODS:
        if method not in FIRST:
            for task, rows in places:
                yield task, rows, (method,), SEEDS


def candidate(task: Task, rows: int, method: Method, number: int, seed: int) -> Run:
    """The run of a cell with one of the method's candidates; seed 0 is for choosing the candidate."""
    lr, sizes = method.candidates[number]
    updates = task.updates[rows] * method.passes
    stage = "choice" if seed == 0 else "cell"
    name = f"{task.name}-{rows}-{method.name}-" + (f"choice{number}" if seed == 0 else str(seed))
    words = [
        "--task", "text_classification", *small.LAYOUT,
        "--criterion", "standard", *method.words, *sizes,
        *small.schedule(lr, updates), "--batch-size", "32",
        "--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-06",
        "--weight-decay", "0.01", "--clip-norm", "1.0", "--dropout", "0.1", "--attention-dropout", "0.1",
        "--required-batch-size-multiple", "1",
    ]  # fmt: skip
    labels = {"task": task.name, "rows": str(rows), "method": method.name, "stage": stage, "encoder": ENCODER}
    return Run(name, f"data/{task.name}-{rows}", "encoder/model.pt", words, seed, labels)


def choices(task: Task, method: Method) -> list[Run]:
    """The runs by which a method's candidate is chosen."""
    return [candidate(task, task.tuned_rows, method, n, 0) for n in range(len(method.candidates))]


def chosen(task: Task, method: Method, records: Sequence[Record]) -> int | None:
    """The number of the candidate with the highest dev score; ties go to the lowest dev loss. ``None`` if
    some are not trained yet.
    """
    scores = []
    for number, run in enumerate(choices(task, method)):
        record = find(run, records)
        if record is None:
            return None
        last = record["valid"][-1]
        scores.append((-float(last[task.metric] or 0), float(last["loss"]), number))
    return min(scores)[2]


def cells(
    task: Task, rows: int, methods: Sequence[str], seeds: Sequence[int], records: Sequence[Record]
) -> list[Run]:
    """The cells of a stage: first the candidates, then, for methods with a chosen one, seed by seed."""
    every = [METHODS[name] for name in methods]
    runs = [run for method in every for run in choices(task, method)]
    numbers = {method.name: chosen(task, method, records) for method in every}
    for seed in seeds:
        for method in every:
            number = numbers[method.name]
            if number is not None:
                runs.append(candidate(task, rows, method, number, seed))
    return runs


def whole_grid(records: Sequence[Record]) -> list[Run]:
    """All cells that are known so far, each once, in order."""
    runs = {run.name: run for stage in stages() for run in cells(*stage, records)}
    return list(runs.values())


def find(run: Run, records: Sequence[Record]) -> Record | None:
    """The record of a cell: the first with its name and options, preferably one with attacks on words."""
    found = [one for one in records if one["name"] == run.name and one["options"] == list(run.options)]
    return next((one for one in found if one["word_attacks"]), found[0] if found else None)


def is_done(run: Run, records: Sequence[Record]) -> bool:
    """Whether a cell has a record of everything that is measured in it."""
    record = find(run, records)
    return record is not None and (bool(record["word_attacks"]) or not has_word_attacks(run))
