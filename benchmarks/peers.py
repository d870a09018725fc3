#!/usr/bin/env python3
"""What training on 1000 sentences of real text costs: here, with fairseq alone, and over Hugging Face.

  freelb        --criterion freelb, 3 passes an update, against FreeLB over transformers' model
                (inputs_embeds, shuffled mini-batches padded to the longest, AdamW), eager and sdpa
  standard      plain training, against fairseq's own sentence_prediction task and criterion
  alum_vat      K = 1, and smart with its moving average, against standard and against fairseq's own

Ours have --task text_classification and --optimizer torch_adamw; the others what their users have. Whole
updates with the optimizer's step, fp32, dropout 0.1, random weights. All sides run in one process and take
turns in a rotating order. A turn is a sample of an epoch's mini-batches, every n-th in the order of their
lengths, so that it has the epoch's lengths. On a GPU wall time, on a CPU the process's CPU time.

Example: OMP_NUM_THREADS=1 benchmarks/peers.py rt-polarity.all --encoder out/minilm
         OMP_NUM_THREADS=1 benchmarks/peers.py glue/MRPC --encoder roberta.base --model base --updates 4
         benchmarks/peers.py random:128 --model large --precision fp16 --sentences 16     (a GPU)
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MODELS, build_trainer, encoder_words, rotated, write_rows, write_words

from fairseq_adv_cli.script import HelpFormatter, exit_status

LAYOUT = ["--num-classes", "2", "--init-token", "0", "--separator-token", "2"]
DROPOUT = ["--dropout", "0.1", "--attention-dropout", "0.1"]
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
    "smart": [*OURS, "--criterion", "smart", "--store-ema", "--ema-decay", "0.99"],
    "fairseq": [*THEIRS, "--criterion", "sentence_prediction"],
}
HUGGING_FACE = {"hf-eager": "eager", "hf-sdpa": "sdpa"}
# Side, what it is held against, and the bound of the ratio.
BOUNDS = [
    ("freelb", "hf-eager", 0.50), ("freelb", "hf-sdpa", 0.50), ("standard", "fairseq", 0.55),
    ("alum_vat", "standard", 2.4), ("alum_vat", "fairseq", None),
    ("smart", "standard", 2.7), ("smart", "fairseq", None),
]  # fmt: skip


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", help="a file of lines 'LABEL TEXT', GLUE's folder CoLA or MRPC, or random:TOKENS")
    add("--encoder", type=Path, help="folder with dict.txt and the tokeniser's files; not for random:TOKENS")
    add("--model", choices=MODELS, default="minilm", help="size of the encoder")
    add("--precision", choices=("fp32", "fp16", "bf16"), default="fp32", help="fp16 needs a GPU")
    add("--sides", nargs="+", choices=[*FAIRSEQ, *HUGGING_FACE], default=[*FAIRSEQ, *HUGGING_FACE])
    add("--sentences", type=int, default=32, help="sentences, or pairs, of a mini-batch")
    add("--rows", type=int, default=6400, help="the first of the data")
    add("--updates", type=int, default=8, help="of a side in a turn")
    add("--rounds", type=int, default=7, help="turns of each side, after one that doesn't count")
    return options


def read_texts(path: Path, most: int) -> list[tuple[str, ...]]:
    """Sentences or pairs.

    Raises:
        ValueError: the file is of none of the layouts.
        OSError: it can't be read.
    """
    if path.is_file():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [(line.split(" ", 1)[1],) for line in lines if " " in line][:most]
    columns = {"CoLA": (3,), "MRPC": (3, 4)}.get(path.name)
    if columns is None:
        raise ValueError(f"{path}: give a file of lines 'LABEL TEXT', or GLUE's folder CoLA or MRPC")
    with (path / "train.tsv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = rows[1:] if path.name == "MRPC" else rows
    return [tuple(row[column] for column in columns) for row in rows][:most]


def write_data(folder: Path, encoder: Path, texts: list[tuple[str, ...]]) -> None:
    """The texts as fairseq's recipe for GLUE binarises them."""
    import numpy as np
    import torch

    from fairseq_adv.data.tokenizers.text_to_ids import tokenizer_for_encoder

    tokenizer = tokenizer_for_encoder(encoder)
    for column in range(len(texts[0])):
        ids, lengths = tokenizer.encode([text[column] for text in texts])
        rows = [torch.from_numpy(part) for part in np.split(ids, np.cumsum(lengths)[:-1])]
        write_rows(folder / f"input{column}", tokenizer.dictionary, lambda rows=rows: rows)
    write_labels(folder, len(texts))


def write_labels(folder: Path, count: int) -> None:
    """Two classes that take turns."""
    import torch
    from fairseq.data import Dictionary

    labels = Dictionary()
    for label in ("0", "1"):
        labels.add_symbol(label)
    write_rows(folder / "label", labels, lambda: [torch.tensor([4 + i % 2, 2]) for i in range(count)])


@dataclass
class Side:
    """Mini-batches of one epoch, by length, and what makes an update with one of them.

    Attributes:
        resident: bytes on the GPU between updates: weights, gradients, the optimizer's state.
        peak: bytes on the GPU at most, without those of other sides.
    """

    batches: list[list[int]]
    update: Callable[[list[int]], None]
    lengths: Any
    on_gpu: bool = False
    resident: int = 0
    peak: int = 0

    def first_update(self, before: int) -> None:
        """Makes one, so that all that stays is there; ``before``: bytes on the GPU without the side."""
        self.update(self.batches[-1])
        self.resident = allocated(self.on_gpu) - before

    def sentences_and_seconds(self, updates: int, turn: int) -> tuple[int, float]:
        """Of a turn; every turn begins at another mini-batch."""
        stride = max(1, len(self.batches) // updates)
        chosen = self.batches[turn % stride :: stride][:updates]
        others = allocated(self.on_gpu) - self.resident
        begin = self._clock()
        for batch in chosen:
            self.update(batch)
        seconds = self._clock() - begin
        self.peak = max(self.peak, allocated(self.on_gpu, peak=True) - others)
        return sum(map(len, chosen)), seconds

    def real_share(self) -> float:
        """Real tokens among those of an epoch's padded mini-batches."""
        sizes = [self.lengths[batch] for batch in self.batches]
        return float(sum(one.sum() for one in sizes) / sum(one.max() * len(one) for one in sizes))

    def _clock(self) -> float:
        if not self.on_gpu:
            return time.process_time()
        import torch

        torch.cuda.synchronize()
        return time.perf_counter()


def allocated(on_gpu: bool, peak: bool = False) -> int:
    """Bytes that torch's allocator has given out on the GPU, or the most since the last call."""
    import torch

    if not on_gpu:
        return 0
    most = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return most if peak else torch.cuda.memory_allocated()


def fairseq_side(name: str, options: argparse.Namespace, folder: Path) -> Side:
    """A side in fairseq's trainer."""
    from fairseq.logging import metrics

    words = [*FAIRSEQ[name], *LAYOUT, *DROPOUT, *encoder_words(options)]
    half = options.precision
    unused, rows = folder / "unused", options.sentences
    trainer = build_trainer(str(folder), words, unused, rows, half == "fp16", half == "bf16")
    data = trainer.task.dataset("train")
    trainer.begin_epoch(1)

    def update(batch: list[int]) -> None:
        metrics.reset()  # accuracy is another kind of meter with fairseq's criterion
        trainer.train_step([data.collater([data[i] for i in batch])])

    lengths = nested_lengths(data)
    batches = [list(batch) for batch in trainer.get_train_iterator(1, load_dataset=False).frozen_batches]
    return Side(by_length(batches, lengths), update, lengths, bool(trainer.cuda))


def hugging_face_side(name: str, options: argparse.Namespace, data: Any) -> Side:
    """FreeLB over transformers, as its authors' script has it, on shuffled mini-batches of the same rows."""
    import numpy as np
    import torch

    sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]  # may be one of another torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    layers, dim, ffn, heads, vocabulary = MODELS[options.model]
    model = RobertaForSequenceClassification(
        RobertaConfig(
            vocab_size=vocabulary, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=ffn, max_position_embeddings=514, type_vocab_size=1, num_labels=2,
            attn_implementation=HUGGING_FACE[name],
        )
    ).to("cuda" if torch.cuda.is_available() else "cpu")  # fmt: skip
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(options.precision)
    cast = torch.autocast(model.device.type, half, enabled=half is not None)
    scaler = torch.amp.GradScaler(model.device.type, enabled=half == torch.float16)
    embed = model.get_input_embeddings()

    def update(batch: list[int]) -> None:
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
            inputs = embed(tokens) + delta
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
    order = np.random.default_rng(1).permutation(len(lengths))
    batches = [list(order[i : i + options.sentences]) for i in range(0, len(order), options.sentences)]
    return Side(by_length(batches, lengths), update, lengths, torch.cuda.is_available())


def nested_lengths(data: Any) -> Any:
    """Tokens of each row of a data set of ours or fairseq's, under what orders it."""
    import numpy as np

    while not isinstance(data.sizes, list):
        data = data.dataset
    return np.asarray(data.sizes[0])


def by_length(batches: list[list[int]], lengths: Any) -> list[list[int]]:
    return sorted(batches, key=lambda batch: int(max(lengths[batch])))


def tables(times: dict[str, list[float]], sides: dict[str, Side]) -> list[str]:
    """Seconds of each side, and the ratios that have a bound."""
    on_gpu = next(iter(sides.values())).on_gpu
    head = "| side | seconds per 1000 sentences | real tokens |"
    lines = [head + " peak memory, MiB |" if on_gpu else head, "|---|---|---|" + "---|" * on_gpu]
    for name, found in times.items():
        row = f"| `{name}` | {_spread(found)} | {100 * sides[name].real_share():.0f} % |"
        lines.append(row + f" {sides[name].peak / 2**20:.0f} |" if on_gpu else row)
    lines += ["", "| ratio, turn by turn | median (least to most) | bound |", "|---|---|---|"]
    for name, other, bound in BOUNDS:
        if name in times and other in times:
            ratios = [ours / theirs for ours, theirs in zip(times[name], times[other])]
            lines.append(f"| `{name}` / `{other}` | {_spread(ratios)} | {bound or ''} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def measure(options: argparse.Namespace) -> None:
    import torch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        rows = prepare(options, folder)
        words = [*FAIRSEQ["fairseq"], *LAYOUT, *encoder_words(options)]
        data = build_trainer(str(folder), words, folder / "unused", 1, False).task.dataset("train")
        sides: dict[str, Side] = {}
        for side in sorted(options.sides, key=list(FAIRSEQ).__contains__, reverse=True):
            before = allocated(torch.cuda.is_available())
            if side in HUGGING_FACE:
                sides[side] = hugging_face_side(side, options, data)
            else:
                sides[side] = fairseq_side(side, options, folder)
            sides[side].first_update(before)
        times: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(options.rounds + 1):
            for side in rotated(sides, turn):
                sentences, seconds = sides[side].sentences_and_seconds(options.updates, turn)
                times[side].append(1000 * seconds / sentences)
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    )
    print(
        f"{Path(options.data).name}, {rows} rows, {options.model}, batches of {options.sentences}, "
        f"{options.precision}, torch {torch.__version__}, {device}, {options.rounds} turns of "
        f"{options.updates} updates\n"
    )
    print(*tables({side: found[1:] for side, found in times.items()}, sides), sep="\n")


def prepare(options: argparse.Namespace, folder: Path) -> int:
    """Writes the data; returns the number of rows.

    Raises:
        ValueError: the data or the encoder is not what it should be.
    """
    kind, _, tokens = str(options.data).partition(":")
    if kind == "random":
        if not tokens.isdigit() or int(tokens) < 4:
            raise ValueError(f"{options.data}: give random:TOKENS with 4 or more")
        rows = options.sentences * options.updates
        write_words(folder / "input0", MODELS[options.model][4], int(tokens), rows)
        write_labels(folder, rows)
        return int(rows)
    if options.encoder is None:
        raise ValueError("--encoder: give the folder with dict.txt and the tokeniser's files")
    texts = read_texts(Path(options.data), options.rows)
    write_data(folder, options.encoder, texts)
    return len(texts)


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)
    return exit_status(lambda: measure(options), (ValueError, OSError))


if __name__ == "__main__":
    sys.exit(main())
