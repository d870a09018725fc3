"""Shared by the benchmarks of updates: random words, a trainer and its batch, time and memory."""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")
MODELS = {
    # layers, dim, feed-forward, heads, vocabulary
    "thin": (12, 32, 128, 4, 1000),  # whose products take no time: what is left is the host's work
    "minilm": (6, 384, 1536, 12, 30522),
    "base": (12, 768, 3072, 12, 50265),
    "large": (24, 1024, 4096, 16, 50265),
}

PEAK = 989e12  # operations a second of an H100 or H200 in bf16, dense
MASKED = 0.15  # the share of the tokens that masked LM predicts
# The cost of an update of masked LM in forward passes: of its products with weights, and of its attention.
FORWARDS = {"standard": (3, 3), "alum_vat": (8, 9)}


def operations(size: str, method: str, tokens: int, masked: float = MASKED) -> float:
    """For a token in an update of masked LM: products and attention; the head's for the share ``masked``.

    Args:
        size: of :data:`MODELS`.
        method: of :data:`FORWARDS`, with K = 1.
        tokens: in a row.
    """
    layers, dim, ffn, _, words = MODELS[size]
    products = layers * (8 * dim**2 + 4 * dim * ffn) + masked * 2 * dim * (words + dim)
    of_products, of_attention = FORWARDS[method]
    return of_products * products + of_attention * layers * 4 * tokens * dim


def share_of_peak(size: str, method: str, rows: int, tokens: int, seconds: float) -> float:
    """The estimated utilisation in an update that takes so long; the peak is :data:`PEAK`."""
    return rows * tokens * operations(size, method, tokens) / seconds / PEAK


def write_words(folder: Path, vocabulary: int, tokens: int, rows: int, padded: bool = False) -> None:
    """Writes dict.txt, train and valid of random words; a row has ``tokens`` tokens with the task's <s>.

    If ``padded``, only the first row has so many and the others have from a quarter of them to all: about
    62 % of a mini-batch are real tokens.
    """
    import torch
    from fairseq.data import Dictionary

    words = Dictionary()
    for i in range(vocabulary - 5):
        words.add_symbol(str(i))
    torch.manual_seed(0)

    def random_row(number: int) -> torch.Tensor:
        least = tokens // 4 if padded and number else tokens
        length = int(torch.randint(least, tokens + 1, ()))
        return torch.cat([torch.randint(4, vocabulary - 1, (length - 2,)), torch.tensor([2])])

    write_rows(folder, words, lambda: [random_row(number) for number in range(rows)])


def write_rows(folder: Path, dictionary: Any, rows: Callable[[], Iterable[Any]]) -> None:
    """Writes dict.txt, and train and valid with the tensors that ``rows()`` returns for each."""
    from fairseq.data import indexed_dataset

    folder.mkdir(parents=True)
    dictionary.save(str(folder / "dict.txt"))
    for split in ("train", "valid"):
        builder = indexed_dataset.make_builder(f"{folder / split}.bin", "mmap", len(dictionary))
        for row in rows():
            builder.add_item(row)
        builder.finalize(f"{folder / split}.idx")


def write_labels(folder: Path, count: int) -> None:
    """Writes labels of two alternating classes."""
    import torch
    from fairseq.data import Dictionary

    labels = Dictionary()
    for label in ("0", "1"):
        labels.add_symbol(label)
    write_rows(folder / "label", labels, lambda: [torch.tensor([4 + i % 2, 2]) for i in range(count)])


def encoder_words(options: argparse.Namespace) -> list[str]:
    """The options of fairseq-train for a RoBERTa of size ``--model`` with random weights."""
    layers, dim, ffn, heads, _ = MODELS[options.model]
    return [
        "--arch", "roberta_base", "--encoder-layers", str(layers), "--encoder-embed-dim", str(dim),
        "--encoder-ffn-embed-dim", str(ffn), "--encoder-attention-heads", str(heads),
        "--max-positions", "512",
    ]  # fmt: skip


def build_trainer(
    data: str, words: Sequence[str], unused: Path, rows: int, fp16: bool, bf16: bool = False
) -> Any:
    """The trainer that fairseq-train builds, with its train split loaded; the learning rate is 0.

    Args:
        data: the task's data argument.
        words: the options of task, model and criterion, and the optimizer if it is not torch_adamw.
        unused: a save-dir, into which nothing is written.
        rows: the batch size.
        fp16: train in fp16.
        bf16: train in bf16, which needs a yaml in fairseq: fairseq-train's --bf16 turns on --tpu.
    """
    import fairseq.trainer
    from fairseq import options as fairseq_options
    from fairseq import tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    import fairseq_adv.plugin  # which puts our trainer in fairseq.trainer

    args = [
        data, "--user-dir", str(Path(fairseq_adv.__file__).parent),
        "--optimizer", "torch_adamw", "--lr", "0", "--batch-size", str(rows),
        "--no-save", "--save-dir", str(unused), *(["--fp16"] if fp16 else []), *words,
    ]  # fmt: skip
    cfg = convert_namespace_to_omegaconf(
        fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), input_args=args)
    )
    cfg.common.bf16 = bf16
    task = tasks.setup_task(cfg.task)
    trainer = fairseq.trainer.Trainer(
        cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    )
    step, settings = keeping_the_peak(trainer.train_step), device_settings(trainer)

    def train_step(samples: Any) -> Any:
        settings()
        return step(samples)

    trainer.train_step = train_step
    task.load_dataset("train")
    return trainer


def device_settings(trainer: Any = None) -> Callable[[], None]:
    """Sets a GPU as our trainer does when a run starts, or for another, or none, as torch leaves it: which
    kernels attention may use, and TF32. They are the process's, so each side sets them before its update.
    """
    import torch

    from fairseq_adv.training import trainer as ours

    def apply(cudnn: bool, precision: str) -> None:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        torch.set_float32_matmul_precision(precision)

    apply(True, "highest")
    if isinstance(trainer, ours.AdversarialTrainer) and hasattr(ours, "set_up_gpu"):  # not in older checkouts
        ours.set_up_gpu(trainer)
    return partial(apply, torch.backends.cuda.cudnn_sdp_enabled(), torch.get_float32_matmul_precision())


def keeping_the_peak(train_step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``train_step`` without fairseq's reset of the GPU's peak memory at its end (trainer.py, line 1060).

    After that reset the peak would be what lies there between updates.
    """
    import torch

    def nothing(*_: Any) -> None:
        pass

    def step(samples: Any) -> Any:
        with mock.patch.object(torch.cuda, "reset_peak_memory_stats", nothing):
            return train_step(samples)

    return step


def rotated(names: Iterable[T], turn: int) -> list[T]:
    """The sides in the order of a turn: each comes first in turn, so that none always follows another."""
    every = list(names)
    return every[turn % len(every) :] + every[: turn % len(every)]


def clock(trainer: Any) -> float:
    """Wall time after synchronisation on a GPU; on a CPU the process's CPU time, which varies less."""
    import torch

    if not trainer.cuda:
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory(trainer: Any) -> float:
    """Peak memory in MiB: of torch's allocator on a GPU, the process's peak resident size on a CPU.

    On a GPU since the last reset; ``trainer`` must be one of :func:`build_trainer`. On a CPU not
    ``ru_maxrss``, which a child inherits on Linux: it could be that of the process that started this one.
    """
    import torch

    if trainer.cuda:
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def machine(trainer: Any) -> str:
    """The torch version and the device, for a table's heading."""
    import torch

    device = torch.cuda.get_device_name() if trainer.cuda else f"CPU, {torch.get_num_threads()} threads"
    return f"torch {torch.__version__}, {device}"


def spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.4f} ({min(values):.4f} to {max(values):.4f})"
