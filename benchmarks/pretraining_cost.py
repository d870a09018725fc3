#!/usr/bin/env python3
"""How much continual pre-training with ALUM takes: writes the tables of docs/how-much.md.

Each number is measured, on the machine that the page names, or computed here from those measured.

  benchmarks/pretraining_cost.py docs/how-much.md
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from measuring import FORWARDS, MASKED, MODELS, PEAK, operations, share_of_peak
from tables import markdown, write_between

from fairseq_adv.cli.script import HelpFormatter, exit_status

UPDATES, ROWS, TOKENS = 100_000, 256, 512  # the paper's run, rows of an update
OF_ALL = UPDATES * ROWS * TOKENS
WANTED = 0.40  # the share of the peak to hope for
# On an H200, base, bf16, standard: rows of 512 tokens -> ms an update, MiB at most.
MEASURED = {8: (53.4, 4284), 32: (58.3, 9962)}
ROWS_A_WORKER = 2307 / 2  # the least of two loading processes' (benchmarks/README.md)
WEIGHT, BUCKET, LOGIT, CHECKPOINT = 20, 2, 12, 16  # bytes a weight; a logit; a weight on disk, measured
TEXT, ON_DISK = 82, 5.3 / 10.8  # GB; shards as a share of the text (docs/how-much.md)
RUNS = {f"{size}, `{method}`": (size, method) for size in ("base", "large") for method in FORWARDS}
LAYOUTS = {  # rows on a GPU, micro-batches
    "8 GPUs of 80 GB, the recipe: `--gpus 8`": (32, 1),
    "16 of 32 GB: `--gpus 16 dataset.batch_size=8 optimization.update_freq=[2]`": (8, 2),
}


def weights(size: str, positions: int = TOKENS) -> int:
    """Trained weights: embeddings, layers, and the head, whose matrix is that of the embeddings."""
    layers, dim, ffn, _, words = MODELS[size]
    layer = 4 * (dim + 1) * dim + 2 * dim * ffn + ffn + dim + 4 * dim
    return (words + positions + 4) * dim + layers * layer + (dim + 3) * dim + words


def utilisation(rows: int) -> float:
    """Measured with ``rows`` on a GPU; an update of fewer than 8 is taken to last as long as one of 8."""
    seconds = MEASURED[max(rows, min(MEASURED))][0] / 1e3
    return share_of_peak("base", "standard", rows, TOKENS, seconds)


def hours(size: str, method: str, gpus: int, share: float) -> float:
    return OF_ALL * operations(size, method, TOKENS) / (gpus * PEAK * share) / 3600


def memory(size: str, method: str, rows: int, bytes_a_weight: int = WEIGHT) -> float:
    """GiB on a GPU. ``alum_vat`` holds the activations of two passes, scaled from those measured of base."""
    (few, (_, least)), (many, (_, most)) = sorted(MEASURED.items())
    (layers, dim, *_, words), (base_layers, base_dim, *_, base_words) = MODELS[size], MODELS["base"]
    logit = LOGIT * MASKED * TOKENS
    of_layers = (most - least) / (many - few) * 2**20 - logit * base_words
    row = of_layers * layers * dim / (base_layers * base_dim) + logit * words
    return (bytes_a_weight * weights(size) + (1 + (method == "alum_vat")) * rows * row) / 2**30


def loading(size: str, method: str, share: float) -> str:
    """The rows a second that a GPU trains on, and how many processes load them."""
    rows = PEAK * share / (operations(size, method, TOKENS) * TOKENS)
    return f"{rows:,.0f}; {math.ceil(rows / ROWS_A_WORKER)}"


def tables() -> dict[str, list[str]]:
    """The table of each place in the page."""
    numbers, paces = (8, 16, 32, 64), (WANTED, None)
    heads: dict[str, list[str]] = {
        "update": ["rows, measured", "ms an update", "utilisation", "peak memory, MiB"],
        "time": ["hours, estimated", "10¹⁸ operations", *(f"{n} GPUs, 40 %" for n in (8, 64)),
                 *(f"{n} GPUs, as measured" for n in (8, 64))],
        "memory": ["GiB, estimated", *(f"{rows} rows" for rows in numbers)],
        "recipes": ["GiB, estimated", "rows × micro-batches", *RUNS],
        "workers": ["rows a second of a GPU; workers; estimated", "40 %", "as measured, 32 rows"],
        "disk": ["", "base", "large"],
    }  # fmt: skip
    cells: dict[str, list[list[str]]] = {name: [] for name in heads}
    for rows, (ms, mib) in MEASURED.items():
        cells["update"].append([f"{rows}", f"{ms}", f"{100 * utilisation(rows):.1f} %", f"{mib}"])
    for name, run in RUNS.items():
        times = [hours(*run, n, pace or utilisation(ROWS // n)) for pace in paces for n in (8, 64)]
        total = OF_ALL * operations(*run, TOKENS) / 1e18
        cells["time"].append([name, f"{total:.1f}", *(f"{time:.2g}" for time in times)])
        cells["memory"].append([name, *(f"{memory(*run, rows):.1f}" for rows in numbers)])
        cells["workers"].append([name, *(loading(*run, pace or utilisation(32)) for pace in paces)])
    cells["memory"][0][1::2] = [f"{mib / 2**10:.1f}, measured" for _, mib in MEASURED.values()]
    for name, (rows, parts) in LAYOUTS.items():
        peaks = [memory(*run, rows, WEIGHT + BUCKET) for run in RUNS.values()]
        cells["recipes"].append([name, f"{rows} × {parts}", *(f"{peak:.1f}" for peak in peaks)])
    base, large = (f"{CHECKPOINT * weights(size) / 1e9:.1f} GB" for size in ("base", "large"))
    shards = f"{TEXT * ON_DISK:.0f} GB, estimated"
    cells["disk"] += [["text, the paper's", *[f"{TEXT} GB"] * 2], ["shards", *[shards] * 2],
                      ["a checkpoint", f"{base}, measured", f"{large}, estimated"]]  # fmt: skip
    return {name: markdown(heads[name], cells[name]) for name in heads}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument(
        "page", type=Path, help="a page with two lines for each table, such as <!-- time: begin --> and end"
    )
    return options


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: write(options.page))


def write(page: Path) -> None:
    for name, lines in tables().items():
        write_between(page, "\n".join(lines), (f"<!-- {name}: begin -->", f"<!-- {name}: end -->"))


if __name__ == "__main__":
    sys.exit(main())
