#!/usr/bin/env python3
"""What an update of alum_vat and smart costs in masked-LM pre-training, against a plain one (--criterion
standard).

All sides run in one process and take turns on the same batch of random words; each turn gives a ratio to the
plain side. The optimizer's step, equal on all sides, is left out. Peak memory is measured in processes of
their own: on a GPU by torch's allocator, on a CPU as the process's peak resident size.

Example: benchmarks/vat_cost.py --model minilm --rows 8
         benchmarks/vat_cost.py --model large --rows 8 --tokens 512 --fp16     (a GPU)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from update_cost import MODELS, peak_resident, seconds, spread

SIDES = {
    "standard": [],
    "alum_vat": ["--vat-alpha", "10"],
    "smart": ["--vat-alpha", "10", "--store-ema", "--ema-decay", "0.999", "--ema-fp32"],
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", choices=MODELS, default="minilm", help="size of the encoder; minilm")
    options.add_argument("--rows", type=int, default=8, help="rows in a batch; 8")
    options.add_argument("--tokens", type=int, default=128, help="tokens of a row, 15%% are masked; 128")
    options.add_argument("--steps", type=int, default=1, help="K; 1")
    options.add_argument(
        "--rounds", type=int, default=7, help="turns of each side, after one that doesn't count; 7"
    )
    options.add_argument("--fp16", action="store_true", help="half precision (needs a GPU)")
    options.add_argument("--memory-of", choices=SIDES, help=argparse.SUPPRESS)
    return options


def write_corpus(folder: Path, vocabulary: int, tokens: int, rows: int) -> None:
    """A masked_lm folder of one batch of random words; a row is ``tokens`` long with <s> and </s>."""
    import torch
    from fairseq.data import Dictionary, indexed_dataset

    words = Dictionary()
    for i in range(vocabulary - 5):
        words.add_symbol(str(i))
    folder.mkdir()
    words.save(str(folder / "dict.txt"))
    torch.manual_seed(0)
    for split in ("train", "valid"):
        builder = indexed_dataset.make_builder(f"{folder / split}.bin", "mmap", len(words))
        for _ in range(rows):
            builder.add_item(torch.cat([torch.randint(4, vocabulary - 1, (tokens - 2,)), torch.tensor([2])]))
        builder.finalize(f"{folder / split}.idx")


class Side:
    """A criterion with its trainer and the batch."""

    def __init__(self, options: argparse.Namespace, folder: Path, name: str) -> None:
        from fairseq import options as fairseq_options
        from fairseq import tasks
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.trainer import Trainer

        import fairseq_adv

        layers, dim, ffn, heads, _ = MODELS[options.model]
        args = [
            str(folder), "--user-dir", str(Path(fairseq_adv.__file__).parent), "--task", "masked_lm",
            "--sample-break-mode", "eos", "--tokens-per-sample", str(options.tokens),
            "--arch", "roberta_base", "--encoder-layers", str(layers), "--encoder-embed-dim", str(dim),
            "--encoder-ffn-embed-dim", str(ffn), "--encoder-attention-heads", str(heads),
            "--max-positions", "512", "--optimizer", "adam", "--lr", "0", "--batch-size", str(options.rows),
            "--no-save", "--save-dir", str(folder / "unused"), *(["--fp16"] if options.fp16 else []),
            "--criterion", name, *SIDES[name],
            *(["--vat-steps", str(options.steps)] if SIDES[name] else []),
        ]  # fmt: skip
        cfg = convert_namespace_to_omegaconf(
            fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), input_args=args)
        )
        self.task = tasks.setup_task(cfg.task)
        model, self.criterion = self.task.build_model(cfg.model), self.task.build_criterion(cfg.criterion)
        trainer = Trainer(cfg, self.task, model, self.criterion)
        self.task.load_dataset("train")
        data = self.task.dataset("train")
        self.batch, _ = trainer._prepare_sample(data.collater([data[i] for i in range(options.rows)]))
        self.cuda, self.zero_grad = trainer.cuda, trainer.zero_grad
        self.model, self.optimizer = trainer.model, trainer.optimizer
        if cfg.ema.store_ema:
            average, step = trainer.ema.get_model(), self.task.train_step
            self.task.train_step = lambda *args, **named: step(*args, ema_model=average, **named)

    def time(self) -> float:
        return seconds(self, self.batch, 1)


def peak_memory(options: argparse.Namespace, folder: Path) -> float:
    """MiB, of two updates in this process."""
    import torch

    side = Side(options, folder, options.memory_of)
    side.time(), side.time()
    if side.cuda:
        return torch.cuda.max_memory_allocated() / 2**20
    return peak_resident()


def memory_in_new_process(options: argparse.Namespace, name: str) -> float:
    command = [sys.executable, __file__, "--memory-of", name, *(["--fp16"] if options.fp16 else [])]
    for word in ("model", "rows", "tokens", "steps"):
        command += [f"--{word}", str(getattr(options, word))]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output.splitlines()[-1])["mib"])


def main() -> int:
    options = parser().parse_args()
    import torch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_corpus(folder, MODELS[options.model][4], options.tokens, options.rows)
        if options.memory_of:
            print(json.dumps({"mib": peak_memory(options, folder)}))
            return 0
        sides = {name: Side(options, folder, name) for name in SIDES}
        device = (
            torch.cuda.get_device_name()
            if sides["standard"].cuda
            else f"CPU, {torch.get_num_threads()} threads"
        )
        times: dict[str, list[float]] = {name: [] for name in SIDES}
        for _ in range(options.rounds + 1):
            for name, side in sides.items():
                times[name].append(side.time())
    precision = "fp16" if options.fp16 else "fp32"
    print(
        f"{options.model}, {options.rows} x {options.tokens} tokens, {precision}, K={options.steps}, torch "
        f"{torch.__version__}, {device}, {options.rounds} rounds\n"
    )
    print("| criterion | seconds an update | times standard | peak memory, MiB |\n|---|---|---|---|")
    plain = times["standard"][1:]
    for name, found in times.items():
        ratio = statistics.median(ours / other for ours, other in zip(found[1:], plain))
        print(
            f"| `{name}` | {spread(found[1:])} | {ratio:.2f} | {memory_in_new_process(options, name):.0f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
