#!/usr/bin/env python3
"""The cost of training on 1000 sentences of real text with this project, with fairseq and with transformers.

  freelb        --criterion freelb, 3 passes an update, against FreeLB on a transformers model
                (inputs_embeds, shuffled mini-batches padded to the longest, AdamW), eager and sdpa
  standard      no perturbation, against fairseq's own sentence_prediction task and criterion
  alum_vat      K = 1, and smart with its moving average, against standard and against fairseq's own

A side whose name ends in -amp computes in mixed precision, with weights in fp32: ours with --amp,
transformers in torch's autocast; bf16 on a CPU, fp16 with a loss scale on a GPU. -compile adds --compile,
-graphs --cuda-graphs (a GPU). --precision bf16: both have weights in bf16, ours fairseq's fp32 copy of them
besides; fp16: weights in fp16 and that copy, transformers in autocast.

Our sides use --task text_classification (batches of similar length, last layer for <s> only) and --optimizer
torch_adamw; the others use what their users do. Whole updates with the optimizer step, dropout 0.1, random
weights. All sides run in one process and take turns in a rotating order. A turn has a mini-batch from
each part of an epoch, ordered by length. Times are wall time on a GPU and the process's CPU time on a CPU.

Example: OMP_NUM_THREADS=1 benchmarks/peers.py rt-polarity.all --encoder out/minilm
         OMP_NUM_THREADS=1 benchmarks/peers.py glue/CoLA --encoder out/minilm \
             --sides freelb-amp standard-amp fairseq hf-eager hf-eager-amp
         OMP_NUM_THREADS=1 benchmarks/peers.py glue/MRPC --encoder roberta.base --model base --updates 4
         benchmarks/peers.py random:128 --model large --precision fp16 --sentences 16     (a GPU)
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MODELS, build_trainer, encoder_words, rotated, write_labels, write_rows, write_words
from peers_sides import (
    AMP,
    COMPILED,
    FAIRSEQ,
    GRAPHED,
    HUGGING_FACE,
    LAYOUT,
    MIXED,
    Side,
    allocated,
    fairseq_side,
    hugging_face_side,
    plain_name,
)

from fairseq_adv.cli.script import HelpFormatter, count, exit_status
from fairseq_adv.data.errors import DataError

# A side, and the side that it is compared with.
RATIOS = [
    ("freelb", "hf-eager"), ("freelb", "hf-sdpa"),
    ("standard", "fairseq"),
    ("freelb-amp", "hf-eager"), ("freelb-amp", "hf-sdpa"),
    ("freelb-amp", "hf-eager-amp"), ("freelb-amp", "hf-sdpa-amp"),
    ("freelb-amp", "freelb"), ("freelb-compile", "freelb"),
    ("freelb-graphs", "freelb"), ("standard-graphs", "standard"),
    ("alum_vat-graphs", "alum_vat"),
    ("freelb-amp-compile", "freelb-amp"), ("standard-amp-compile", "standard-amp"),
    ("standard-amp", "standard"), ("standard-amp", "fairseq"),
    ("alum_vat", "standard"), ("alum_vat", "fairseq"),
    ("smart", "standard"), ("smart", "fairseq"),
]  # fmt: skip


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", help="a file of lines 'LABEL TEXT', GLUE's folder CoLA or MRPC, or random:TOKENS")
    add("--encoder", type=Path, help="folder with dict.txt and the tokenizer's files; not for random:TOKENS")
    add("--model", choices=MODELS, default="minilm", help="size of the encoder")
    add("--precision", choices=("fp32", "fp16", "bf16"), default="fp32", help="fp16 needs a GPU")
    names = [*FAIRSEQ, *HUGGING_FACE, *MIXED, *COMPILED, *GRAPHED]
    add("--sides", nargs="+", choices=names, default=[*FAIRSEQ, *HUGGING_FACE])
    add("--sentences", type=count, default=32, help="sentences, or pairs, in a mini-batch")
    add("--rows", type=count, default=6400, help="use the first rows of the data")
    add("--updates", type=count, default=8, help="updates of a side in a turn")
    add("--rounds", type=count, default=7, help="turns of each side, after one that doesn't count")
    return options


def read_texts(path: Path, most: int) -> list[tuple[str, ...]]:
    """Sentences or pairs.

    Raises:
        DataError: the path has none of these layouts.
        OSError: it can't be read.
    """
    if path.is_file():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [(line.split(" ", 1)[1],) for line in lines if " " in line][:most]
    columns = {"CoLA": (3,), "MRPC": (3, 4)}.get(path.name)
    if columns is None:
        raise DataError(f"{path}: pass a file of lines 'LABEL TEXT', or GLUE's folder CoLA or MRPC")
    with (path / "train.tsv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = rows[1:] if path.name == "MRPC" else rows
    return [tuple(row[column] for column in columns) for row in rows][:most]


def write_data(folder: Path, encoder: Path, texts: list[tuple[str, ...]]) -> None:
    """Writes the texts in the format of fairseq's GLUE recipe."""
    import numpy as np
    import torch

    from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

    tokenizer = tokenizer_for_encoder(encoder)
    for column in range(len(texts[0])):
        ids, lengths = tokenizer.encode([text[column] for text in texts])
        rows = [torch.from_numpy(part) for part in np.split(ids, np.cumsum(lengths)[:-1])]
        write_rows(folder / f"input{column}", tokenizer.dictionary, lambda rows=rows: rows)
    write_labels(folder, len(texts))


def tables(times: dict[str, list[float]], sides: dict[str, Side]) -> list[str]:
    """The seconds of each side, and the ratios."""
    on_gpu = next(iter(sides.values())).on_gpu
    head = "| side | seconds per 1000 sentences | real tokens |"
    lines = [head + " peak memory, MiB |" if on_gpu else head, "|---|---|---|" + "---|" * on_gpu]
    for name, found in times.items():
        row = f"| `{name}` | {_spread(found)} | {100 * sides[name].real_share():.0f} % |"
        lines.append(row + f" {sides[name].peak / 2**20:.0f} |" if on_gpu else row)
    lines += ["", "| ratio, turn by turn | median (least to most) |", "|---|---|"]
    for name, other in RATIOS:
        if name in times and other in times:
            ratios = [ours / theirs for ours, theirs in zip(times[name], times[other])]
            lines.append(f"| `{name}` / `{other}` | {_spread(ratios)} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def measure(options: argparse.Namespace) -> None:
    import torch

    mixed = [name for name in options.sides if AMP in name]
    if mixed and options.precision != "fp32":
        raise DataError(f"--sides {mixed[0]}: leave --precision {options.precision} out")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        rows = prepare(options, folder)
        words = [*FAIRSEQ["fairseq"], *LAYOUT, *encoder_words(options)]
        task = build_trainer(str(folder), words, folder / "unused", 1, False).task
        sides: dict[str, Side] = {}
        for side in sorted(options.sides, key=lambda name: plain_name(name) in FAIRSEQ, reverse=True):
            before = allocated(torch.cuda.is_available())
            if plain_name(side) in HUGGING_FACE:
                sides[side] = hugging_face_side(side, options, task)
            else:
                sides[side] = fairseq_side(side, options, folder)
            sides[side].first_update(before)
            sides[side].warm_up()
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
        DataError: the data or the encoder is missing or invalid.
    """
    kind, _, tokens = str(options.data).partition(":")
    if kind == "random":
        if not tokens.isdigit() or int(tokens) < 4:
            raise DataError(f"{options.data}: pass random:TOKENS with 4 or more")
        rows = options.sentences * options.updates
        write_words(folder / "input0", MODELS[options.model][4], int(tokens), rows)
        write_labels(folder, rows)
        return int(rows)
    if options.encoder is None:
        raise DataError("--encoder: pass the folder with dict.txt and the tokenizer's files")
    texts = read_texts(Path(options.data), options.rows)
    write_data(folder, options.encoder, texts)
    return len(texts)


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)
    return exit_status(lambda: measure(options))


if __name__ == "__main__":
    sys.exit(main())
