"""The mode matrix as a Markdown table, from the results in a folder."""

from __future__ import annotations

from itertools import permutations

import torch
from mode_cells import METHODS, MODES, PRECISIONS, UPDATES, Cell, all_cells, modes_of
from mode_runs import Result, Runs, distance

Results = dict[Cell, Result]
# How a user selects a precision.
TOLD = {
    "fp32": "fp32",
    "amp": "`--amp` on GPUs (fp16 autocast)",
    "amp-bf16": "`--amp` on CPUs (bf16 autocast)",
}


def table(runs: Runs) -> str:
    """The matrix, its footnotes, and the devices it was measured on."""
    results = {cell: found for cell in all_cells() if (found := runs.result(cell)) is not None}
    notes: list[str] = []
    lines = [
        "| precision | mode | " + " | ".join(f"`{method}`" for method in METHODS) + " |",
        "|---|---|" + "---|" * len(METHODS),
    ]
    for precision in PRECISIONS:
        name = TOLD.get(precision, f"`--{precision}`")
        if not any(cell.precision == precision for cell in results):
            lines.append(
                f"| {name} | all {len(modes_of(precision))} | not yet run |" + " |" * (len(METHODS) - 1)
            )
            continue
        for mode in modes_of(precision):
            marks = [_mark(Cell(method, precision, mode), results, notes) for method in METHODS]
            lines.append(f"| {name} | {MODES[mode]} | " + " | ".join(marks) + " |")
    return "\n".join([*lines, "", *_legend(results), *notes, *_distances(results), *_apart(runs)])


def _mark(cell: Cell, results: Results, notes: list[str]) -> str:
    """A cell's text in the table; failures and refusals get a footnote in ``notes``, one for each reason."""
    result = results.get(cell)
    if result is None:
        return "not yet run"
    mixed = len({found["cuda"] for found in results.values() if not found["emulated"]}) > 1
    where = ", emulated" if result["emulated"] else " cpu" if mixed and not result["cuda"] else ""
    if result["state"] in ("failed", "refused"):
        numbers = [line.partition("] ")[2] for line in notes]
        why = f"{result['why']}".replace("|", "\\|")
        if why not in numbers:
            notes.append(f"- [{len(notes) + 1}] {why}")
            numbers.append(why)
        return f"{result['state']}{where} [{numbers.index(why) + 1}]"
    if result["state"] == "ok" and result["emulated"]:
        return "emulated"
    return {"ok": "✓", "reference": "reference"}[result["state"]] + where


def _legend(results: Results) -> list[str]:
    in_order = sorted(results.values(), key=lambda found: bool(found["emulated"]))
    devices = {f"{found['device']} (torch {found['torch']})": None for found in in_order}
    about = (
        f"✓: {UPDATES} updates changed the weights as in the reference, within the precision's tolerance. "
        "reference: the run that others are compared with, the same criterion in fp32 in one process "
        "(LayerDrop: with LayerDrop); it ran, and changed the weights."
    )
    emulated = (
        "emulated: as ✓, with fairseq's and this project's code for GPUs on a pretended one, "
        "`tests/emulated_gpu`: a CPU that refuses what a GPU refuses, but has none of its kernels."
    )
    rows = ["", emulated] if any(found["emulated"] for found in results.values()) else []
    return [about, *rows, "", f"- run on: {', '.join(devices) or 'nothing yet'}"]


def _distances(results: Results) -> list[str]:
    """The largest distance of each precision."""
    lines = []
    for precision, known in PRECISIONS.items():
        found = {
            cell: r["distance"]
            for cell, r in results.items()
            if cell.precision == precision and "distance" in r
        }
        if found:
            cell = max(found, key=lambda key: found[key])
            lines.append(
                f"- {precision}: largest distance {found[cell]:.1e} of the norm of the change "
                f"(`{cell.method}`, {MODES[cell.mode]}), tolerance {known.tolerance:g}"
            )
    return lines


def _apart(runs: Runs) -> list[str]:
    """The distance between the two closest methods: tolerances must stay below it."""
    changes = {}
    for method in METHODS:
        path = runs.reference_path(Cell(method, "fp32", "single"))
        if path.is_file():
            changes[method] = torch.load(path, weights_only=True)
    if len(changes) < 2:
        return []

    def apart(pair: tuple[str, str]) -> float:
        return distance(changes[pair[0]], changes[pair[1]])

    least = min(permutations(changes, 2), key=apart)
    names = f"`{least[0]}` and `{least[1]}`"
    return [f"- for comparison: the two most similar methods, {names}, are {apart(least):.2g} apart"]
