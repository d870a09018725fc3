"""The sides of peers.py: our methods in fairseq's trainer, FreeLB with transformers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measuring import MODELS, build_trainer, device_settings, encoder_words

LAYOUT = ["--num-classes", "2", "--init-token", "0", "--separator-token", "2"]
DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]
GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are spread evenly
STEPS, ALPHA, EPSILON, START = 3, 0.03, 0.1, 0.05
FREELB = [
    "--adv-steps", str(STEPS), "--adv-lr", str(ALPHA), "--adv-max-norm", str(EPSILON),
    "--adv-init-mag", str(START),
]  # fmt: skip
OURS = ["--task", "text_classification", "--optimizer", "torch_adamw"]
THEIRS = ["--task", "sentence_prediction", "--optimizer", "adam"]
FAIRSEQ = {
    "freelb": [*OURS, "--criterion", "freelb", *FREELB],
    "standard": [*OURS, "--criterion", "standard"],
    "alum_vat": [*OURS, "--criterion", "alum_vat"],
    "smart": [*OURS, "--criterion", "smart", "--store-ema", "--ema-fp32", "--ema-decay", "0.99"],
    "fairseq": [*THEIRS, "--criterion", "sentence_prediction"],
}
HUGGING_FACE = {"hf-eager": "eager", "hf-sdpa": "sdpa"}
# End the name of a side in mixed precision, with compiled layers, and with CUDA graphs.
AMP, COMPILE, GRAPHS = "-amp", "-compile", "-graphs"
MIXED = [f"{name}{AMP}" for name in ("freelb", "standard", "alum_vat", "smart", *HUGGING_FACE)]
COMPILED = [f"{name}{COMPILE}" for name in ("freelb", f"freelb{AMP}", f"standard{AMP}")]
GRAPHED = [f"{name}{GRAPHS}" for name in ("freelb", "standard", "alum_vat")]


@dataclass
class Side:
    """The mini-batches of one epoch, by length, and the function that makes an update with one of them.

    Attributes:
        clock: returns seconds once all work is done; by default the CPU seconds of this process.
        resident: bytes on the GPU between updates: weights, gradients, the optimizer's state.
        peak: most bytes on the GPU, without those of other sides, and of what CUDA graphs share.
        sightings: how often a shape is seen before turns are timed: the second time it is captured.
    """

    batches: list[list[int]]
    update: Callable[[list[int]], None]
    lengths: Any
    on_gpu: bool = False
    clock: Callable[[], float] = time.process_time
    resident: int = 0
    peak: int = 0
    sightings: int = 1

    def first_update(self, before: int) -> None:
        """Makes an update, to find the resident memory; ``before``: bytes on the GPU without this side."""
        self.update(self.batches[-1])
        self.resident = allocated(self.on_gpu) - before

    def warm_up(self) -> None:
        """On a GPU, makes an update for each shape: kernels for a shape are chosen and loaded when it first
        comes, which takes longer than the update.
        """
        if self.on_gpu:
            sizes = [(len(batch), self.lengths[batch]) for batch in self.batches]
            shapes = [(rows, int(one.max()), int(one.min()) == int(one.max())) for rows, one in sizes]
            for batch in dict(zip(shapes, self.batches)).values():
                for _ in range(self.sightings):
                    self.update(batch)

    def sentences_and_seconds(self, updates: int, turn: int) -> tuple[int, float]:
        """Makes a turn's updates, with one mini-batch from each part of the epoch, a different one each turn.
        Every second part is counted from its end, so that a turn's lengths match the epoch's.
        """
        part = max(1, len(self.batches) // updates)
        place = int(part * ((0.5 + turn * GOLDEN) % 1))
        chosen = [
            self.batches[part * i + (part - 1 - place if i % 2 else place)]
            for i in range(min(updates, len(self.batches)))
        ]
        others = allocated(self.on_gpu) - self.resident
        started = self.clock()
        for batch in chosen:
            self.update(batch)
        seconds = self.clock() - started
        self.peak = max(self.peak, allocated(self.on_gpu, peak=True) - others)
        return sum(map(len, chosen)), seconds

    def real_share(self) -> float:
        """The share of real tokens in an epoch's padded mini-batches."""
        sizes = [self.lengths[batch] for batch in self.batches]
        return float(sum(one.sum() for one in sizes) / sum(one.max() * len(one) for one in sizes))


def gpu_clock() -> float:
    """Wall seconds, once the GPU's work is done."""
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def allocated(on_gpu: bool, peak: bool = False) -> int:
    """Bytes that torch's allocator has allocated on the GPU, or the peak since the last call."""
    import torch

    if not on_gpu:
        return 0
    most = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return most if peak else torch.cuda.memory_allocated()


def fairseq_side(name: str, options: argparse.Namespace, folder: Path) -> Side:
    """A side in fairseq's trainer."""
    from fairseq.logging import metrics

    words = [*FAIRSEQ[plain_name(name)], *LAYOUT, *DROPOUT, *encoder_words(options)]
    words += ["--amp"] if AMP in name else []
    words += ["--compile"] if name.endswith(COMPILE) else []
    words += ["--cuda-graphs"] if name.endswith(GRAPHS) else []
    half = options.precision
    unused, rows = folder / "unused", options.sentences
    trainer = build_trainer(str(folder), words, unused, rows, half == "fp16", half == "bf16")
    data = trainer.task.dataset("train")
    trainer.begin_epoch(1)

    def update(batch: list[int]) -> None:
        metrics.reset()  # fairseq's criterion uses another kind of meter for accuracy
        trainer.train_step([data.collater([data[i] for i in batch])])

    lengths = nested_lengths(data)
    batches = [list(batch) for batch in trainer.get_train_iterator(1, load_dataset=False).frozen_batches]
    side = _side(batches, update, lengths, bool(trainer.cuda))
    return replace(side, sightings=2 if name.endswith(GRAPHS) else 1)


def plain_name(name: str) -> str:
    """The side's name without :data:`AMP`, :data:`COMPILE` and :data:`GRAPHS`."""
    return name.replace(COMPILE, "").replace(AMP, "").replace(GRAPHS, "")


def _side(batches: list[list[int]], update: Any, lengths: Any, on_gpu: bool) -> Side:
    clock = gpu_clock if on_gpu else time.process_time
    return Side(by_length(batches, lengths), update, lengths, on_gpu, clock)


def hugging_face_side(name: str, options: argparse.Namespace, task: Any) -> Side:
    """FreeLB with transformers, as in its authors' script, on shuffled mini-batches of the same rows, which a
    task of fairseq has loaded, with as many words.
    """
    import torch

    sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]  # may be built for another torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    layers, dim, ffn, heads, _ = MODELS[options.model]
    data, vocabulary, settings = task.dataset("train"), len(task.source_dictionary), device_settings()
    model = RobertaForSequenceClassification(
        RobertaConfig(
            vocab_size=vocabulary, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=ffn, max_position_embeddings=514, type_vocab_size=1, num_labels=2,
            attn_implementation=HUGGING_FACE[plain_name(name)],
        )
    ).to("cuda" if torch.cuda.is_available() else "cpu")  # fmt: skip
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    mixed = "fp16" if torch.cuda.is_available() else "bf16"  # as --amp
    precision = mixed if name.endswith(AMP) else options.precision
    if options.precision == "bf16":  # as our sides, which have bf16 weights; fp16 weights don't train
        model.bfloat16()
        precision = "fp32"
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    cast = torch.autocast(model.device.type, half, enabled=half is not None)
    scaler = torch.amp.GradScaler(model.device.type, enabled=half == torch.float16)
    embed = model.get_input_embeddings()

    def update(batch: list[int]) -> None:
        settings()
        sample = data.collater([data[i] for i in batch])
        tokens = sample["net_input"]["src_tokens"].to(model.device)
        labels = sample["target"].view(-1).to(model.device)
        mask = tokens.ne(1)
        real = mask.unsqueeze(-1).float()
        counts = real.sum(dim=(1, 2)) * dim
        delta = torch.zeros(*tokens.shape, dim, device=model.device).uniform_(-1, 1) * real
        delta = delta * (START / counts.sqrt()).view(-1, 1, 1)
        model.zero_grad()
        for step in range(STEPS):
            delta.requires_grad_()
            inputs = (embed(tokens) + delta).to(model.dtype)
            with cast:
                loss = model(inputs_embeds=inputs, attention_mask=mask.long(), labels=labels).loss
            scaler.scale(loss / STEPS).backward()
            if step == STEPS - 1:
                break
            gradient = delta.grad
            norm = gradient.view(len(batch), -1).norm(dim=1).view(-1, 1, 1).clamp(min=1e-8)
            delta = (delta + ALPHA * gradient / norm).detach()
            size = delta.view(len(batch), -1).norm(dim=1).view(-1, 1, 1)
            delta = torch.where(size > EPSILON, delta * EPSILON / size, delta)
        scaler.step(optimizer)
        scaler.update()

    lengths = nested_lengths(data)
    return _side(shuffled(lengths, options), update, lengths, torch.cuda.is_available())


def shuffled(lengths: Any, options: argparse.Namespace) -> list[list[int]]:
    """An epoch's mini-batches without regard to length."""
    import numpy as np

    order, size = np.random.default_rng(1).permutation(len(lengths)), options.sentences
    return [list(order[i : i + size]) for i in range(0, len(order), size)]


def nested_lengths(data: Any) -> Any:
    """The number of tokens in each row of our data set or fairseq's, inside those that sort it."""
    import numpy as np

    while not isinstance(data.sizes, list):
        data = data.dataset
    return np.asarray(data.sizes[0])


def by_length(batches: list[list[int]], lengths: Any) -> list[list[int]]:
    return sorted(batches, key=lambda batch: int(max(lengths[batch])))
