#!/usr/bin/env python3
"""What a FreeLB-K update costs, against K plain forward-backwards of the same model and batch.

Both sides run in one process and take turns; each turn gives a ratio, and the medians are reported. The
plain passes accumulate their gradients, as under ``--update-freq K``, since FreeLB's do too.
The optimizer's step, equal on both sides, is left out. Peak memory is measured in processes of their
own: on a GPU by torch's allocator, on a CPU as the process's peak resident size.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODELS = {
    # layers, dim, feed-forward, heads, vocabulary
    "minilm": (6, 384, 1536, 12, 30522),
    "base": (12, 768, 3072, 12, 50265),
    "large": (24, 1024, 4096, 16, 50265),
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument("--model", choices=MODELS, default="minilm", help="size of the encoder")
    options.add_argument("--sentences", type=int, default=16, help="sentences in a batch")
    options.add_argument("--tokens", type=int, default=128, help="tokens of a sentence")
    options.add_argument("--steps", type=int, default=3, help="K")
    options.add_argument(
        "--rounds", type=int, default=15, help="turns of each side, after two that don't count"
    )
    options.add_argument("--fp16", action="store_true", help="half precision (needs a GPU)")
    options.add_argument("--memory-of", choices=["plain", "freelb"], help=argparse.SUPPRESS)
    return options


def write_data(folder: Path, vocabulary: int, tokens: int, sentences: int) -> None:
    """A task folder of one batch of random words; every sentence is ``tokens`` long with <s> and </s>."""
    import torch
    from fairseq.data import Dictionary, indexed_dataset

    words, labels = Dictionary(), Dictionary()
    for i in range(vocabulary - 5):
        words.add_symbol(str(i))
    for label in ("0", "1"):
        labels.add_symbol(label)
    torch.manual_seed(0)
    for name, dictionary in (("input0", words), ("label", labels)):
        (folder / name).mkdir(parents=True)
        dictionary.save(str(folder / name / "dict.txt"))
        for split in ("train", "valid"):
            builder = indexed_dataset.make_builder(
                str(folder / name / split) + ".bin", "mmap", len(dictionary)
            )
            for i in range(sentences):
                body = (
                    torch.randint(4, vocabulary - 1, (tokens - 2,))
                    if name == "input0"
                    else torch.tensor([4 + i % 2])
                )
                builder.add_item(torch.cat([body, torch.tensor([2])]))
            builder.finalize(str(folder / name / split) + ".idx")


def build(options: argparse.Namespace, folder: Path, criterion: list[str]) -> tuple[Any, Any]:
    """(trainer, batch) as fairseq-train makes them."""
    from fairseq import options as fairseq_options
    from fairseq import tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    import fairseq_adv

    layers, dim, ffn, heads, _ = MODELS[options.model]
    args = [
        str(folder), "--user-dir", str(Path(fairseq_adv.__file__).parent), "--task", "sentence_prediction",
        "--num-classes", "2", "--init-token", "0", "--arch", "roberta_base", "--encoder-layers", str(layers),
        "--encoder-embed-dim", str(dim), "--encoder-ffn-embed-dim", str(ffn),
        "--encoder-attention-heads", str(heads),
        "--max-positions", "512", "--optimizer", "adam", "--lr", "0", "--batch-size", str(options.sentences),
        "--no-save", "--save-dir", str(folder / "unused"), *criterion, *(["--fp16"] if options.fp16 else []),
    ]  # fmt: skip
    cfg = convert_namespace_to_omegaconf(
        fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), input_args=args)
    )
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    task.load_dataset("train")
    data = task.dataset("train")
    batch, _ = trainer._prepare_sample(data.collater([data[i] for i in range(options.sentences)]))
    return trainer, batch


def step(trainer: Any, batch: Any) -> None:
    trainer.task.train_step(batch, trainer.model, trainer.criterion, trainer.optimizer, update_num=0)


def seconds(trainer: Any, batch: Any, times: int) -> float:
    """On a GPU wall time; on a CPU the process's CPU time, which other programs disturb less."""
    import torch

    clock = time.perf_counter if trainer.cuda else time.process_time
    begin = clock()
    trainer.zero_grad()
    for _ in range(times):
        step(trainer, batch)
    if trainer.cuda:
        torch.cuda.synchronize()
    return clock() - begin


PLAIN = ["--criterion", "sentence_prediction"]


def freelb(options: argparse.Namespace) -> list[str]:
    return [
        "--criterion", "freelb", "--adv-steps", str(options.steps), "--adv-lr", "0.03",
        "--adv-max-norm", "0.1", "--adv-init-mag", "0.05",
    ]  # fmt: skip


def peak_memory(options: argparse.Namespace, folder: Path) -> float:
    """MiB, of three updates in this process."""
    import torch

    trainer, batch = build(options, folder, PLAIN if options.memory_of == "plain" else freelb(options))
    seconds(trainer, batch, 3)
    if trainer.cuda:
        return torch.cuda.max_memory_allocated() / 2**20
    return peak_resident()


def peak_resident() -> float:
    """The process's peak resident size in MiB, since it was started.

    Not ``ru_maxrss``, which Linux hands down to a child: it would be that of the process that started this
    one.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def memory_in_new_process(options: argparse.Namespace, side: str) -> float:
    command = [sys.executable, __file__, "--memory-of", side]
    for name in ("model", "sentences", "tokens", "steps"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--fp16"] if options.fp16 else []
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output.splitlines()[-1])["mib"])


def spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def main() -> int:
    options = parser().parse_args()
    import torch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_data(folder, MODELS[options.model][4], options.tokens, options.sentences)
        if options.memory_of:
            print(json.dumps({"mib": peak_memory(options, folder)}))
            return 0
        sides = build(options, folder, freelb(options)), build(options, folder, PLAIN)
        device = (
            torch.cuda.get_device_name() if sides[0][0].cuda else f"CPU, {torch.get_num_threads()} threads"
        )
        for side in sides:
            seconds(*side, 2)
        ratios, ours, plain = [], [], []
        for _ in range(options.rounds):
            ours.append(seconds(*sides[0], 1))
            plain.append(seconds(*sides[1], options.steps))
            ratios.append(ours[-1] / plain[-1])
    memory = {side: memory_in_new_process(options, side) for side in ("freelb", "plain")}
    precision = "fp16" if options.fp16 else "fp32"
    size = f"{options.model}, {options.sentences} x {options.tokens} tokens, {precision}"
    print(f"{size}, K={options.steps}, torch {torch.__version__}, {device}, {options.rounds} rounds")
    print(f"FreeLB-{options.steps} update   {spread(ours)} s")
    print(f"{options.steps} plain passes    {spread(plain)} s")
    print(f"ratio, pair by pair  {spread(ratios)}")
    ratio = memory["freelb"] / memory["plain"]
    print(f"peak memory          {memory['freelb']:.0f} MiB against {memory['plain']:.0f} MiB: {ratio:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
