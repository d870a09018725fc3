#!/usr/bin/env python3
"""Updates with --cuda-graphs against those without: are they equal, and how long do they take?

  time    freelb, standard, alum_vat and pgd on RoBERTa-base's size, bf16, 32 x 128 tokens without padding,
          and freelb on 32 x 32; 5 turns of 20 updates of each side, with a learning rate of 0
  equal   weights and gradients after updates with several shapes in turn, on classes and on masked LM,
          6 layers of 384; beside them a second run without graphs: some kernels don't repeat to the bit

On an emulated GPU, in tests, graphs are recorded operations; times mean nothing there.

Example: benchmarks/gpu_graphs.py time equal
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MODELS, build_trainer, encoder_words, rotated, write_labels, write_words

from fairseq_adv.cli.script import HelpFormatter, exit_status
from fairseq_adv.data.errors import DataError

SIZES = "--adv-steps 3 --adv-lr 0.03 --adv-max-norm 0.1 --adv-init-mag 0.05"
METHODS = {
    "freelb": f"--criterion freelb {SIZES}",
    "pgd": f"--criterion pgd {SIZES}",
    "alum_vat": "--criterion alum_vat --vat-relative --vat-epsilon 0.06 --vat-step-size 0.06 "
    "--vat-init-std 0.006",
    "standard": "--criterion standard",
}
CLASSES = "--task text_classification --num-classes 2 --init-token 0 --separator-token 2"
MASKED_LM = "--task masked_lm --mask-prob 0.15 --sample-break-mode eos --tokens-per-sample 512"
# Row 0 is the longest, so these have three shapes; each is captured when it comes again.
_FIRST = {31: (1, 60, 90, 3, 9), 15: (40, 5, 30, 50), 7: (70, 80, 11)}
SHAPES = [[0, *range(first, first + more)] for turn in range(5) for more, every in _FIRST.items()
          for first in every[turn : turn + 1]]  # fmt: skip


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("parts", nargs="+", choices=("time", "equal"))
    options.add_argument("--tiny", action="store_true", help="as small as possible, to see that all runs")
    return options


def trainer_of(folder: Path, model: str, words: str, more: Sequence[str] = ()) -> Any:
    import torch
    from fairseq.logging import metrics

    metrics.reset()
    torch.manual_seed(1)
    every = [*words.split(), *encoder_words(argparse.Namespace(model=model)), "--log-interval", "1000", *more]
    trainer = build_trainer(str(folder), every, folder / "unused", 32, False, bf16=True)
    trainer.begin_epoch(1)
    return trainer


def update(trainer: Any, rows: Sequence[int]) -> None:
    from fairseq.logging import metrics

    data = trainer.task.dataset("train")
    metrics.reset()
    trainer.train_step([data.collater([data[i] for i in rows])])


def captured(trainer: Any) -> int:
    graphs = trainer.criterion._graphs
    return sum(len(one.steps) for one in graphs._generations) if graphs is not None else 0


def data_of(folder: Path, vocabulary: int, tokens: int, rows: int, labels: bool, padded: bool) -> Path:
    write_words(folder / "input0" if labels else folder, vocabulary, tokens, rows, padded)
    if labels:
        write_labels(folder, rows)
    return folder


def heading(*columns: str) -> None:
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def times(scratch: Path, tiny: bool) -> None:
    """Milliseconds an update, with and without graphs in turns."""
    import torch

    rounds, updates = (1, 1) if tiny else (5, 20)
    model = "thin" if tiny else "base"
    heading("method", "mini-batch", "plain, ms", "graphs, ms", "ratio, turn by turn", "captured")
    for method, tokens in (*((name, 128) for name in METHODS), ("freelb", 32)):
        rows = 32
        if tiny:
            rows, tokens = 2, tokens // 8
        folder = data_of(scratch / f"{method}-{tokens}", MODELS[model][4], tokens, 2 * rows, True, False)
        batches = [range(rows), range(rows, 2 * rows)]
        words = f"{CLASSES} {METHODS[method]} --dropout 0.1 --attention-dropout 0.1"
        sides = {name: trainer_of(folder, model, words, more)
                 for name, more in (("plain", ()), ("graphs", ("--cuda-graphs",)))}  # fmt: skip
        found: dict[str, list[float]] = {name: [] for name in sides}
        for trainer in sides.values():
            for batch in (*batches, *batches):  # captured the second time
                update(trainer, batch)
        for turn in range(rounds):
            for name in rotated(sides, turn):
                torch.cuda.synchronize()
                started = time.perf_counter()
                for nth in range(updates):
                    update(sides[name], batches[nth % 2])
                torch.cuda.synchronize()
                found[name].append(1000 * (time.perf_counter() - started) / updates)
        cells = [f"{statistics.median(one):.1f} ({min(one):.1f}–{max(one):.1f})" for one in found.values()]
        ratio = statistics.median(ours / plain for ours, plain in zip(found["graphs"], found["plain"]))
        row = [f"`{method}`", f"{rows} × {tokens}", *cells, f"{ratio:.2f}", str(captured(sides["graphs"]))]
        print(f"| {' | '.join(row)} |", flush=True)


def equal(scratch: Path, tiny: bool) -> None:
    """Distances between the ends of a run without graphs, of the same once more, and of one with graphs."""
    import torch

    model, tokens = ("thin", 16) if tiny else ("minilm", 128)
    data = {
        "classes": data_of(scratch / "classes", MODELS[model][4], tokens, 128, True, True),
        "masked LM": data_of(scratch / "corpus", MODELS[model][4], tokens, 128, False, False),
    }
    heading("task", "method", "weights: again", "graphs", "gradients: again", "graphs", "captured")
    for task, folder in data.items():
        for method in METHODS:
            if task == "masked LM" and method == "pgd":
                continue
            words = f"{CLASSES if task == 'classes' else MASKED_LM} {METHODS[method]} --lr 1e-4 --dropout 0.1"
            ends = []
            for more in ((), (), ("--cuda-graphs",)):
                trainer = trainer_of(folder, model, words, more)
                if task == "masked LM":  # positions are filled up in all three, or sums are in another order
                    trainer.criterion.objective.use_fixed_sizes()
                weights = [weight for weight in trainer.model.parameters() if weight.requires_grad]
                start = torch.cat([one.detach().float().flatten() for one in weights])
                for rows in SHAPES[:4] if tiny else SHAPES:
                    update(trainer, rows)
                end = torch.cat([one.detach().float().flatten() for one in weights])
                slopes = torch.cat([one.grad.float().flatten() for one in weights if one.grad is not None])
                ends.append((end - start, slopes))
            cells = [distance(ends[0][part], ends[other][part]) for part in (0, 1) for other in (1, 2)]
            print(f"| {task} | `{method}` | {' | '.join(cells)} | {captured(trainer)} |", flush=True)


def distance(one: Any, other: Any) -> str:
    """As a share of the first's norm; "0, to the bit" if they are equal."""
    import torch

    return "0, to the bit" if torch.equal(one, other) else f"{float((one - other).norm() / one.norm()):.1e}"


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)

    def work() -> int:
        import torch

        if not torch.cuda.is_available():
            raise DataError("torch sees no CUDA GPU; this program needs one")
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, bf16, dropout 0.1")
        for part in options.parts:
            with tempfile.TemporaryDirectory() as name:
                {"time": times, "equal": equal}[part](Path(name), options.tiny)
        return 0

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
