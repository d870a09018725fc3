#!/usr/bin/env python3
"""One encoder by both paths: fairseq's layers after ``convert``, and transformers' own model as it is.

Both train with freelb on the same mini-batches, without dropout, from the same weights, head included;
LayerNorm's epsilon is the converted one's on both sides. The segments' embeddings are not trained, since
convert adds them to the positions', which Adam then moves once, not twice. First the losses of some updates
are compared, then updates are timed, in turns in one process: "native" and "hf" with whole layers, "shipped"
is the native default, whose last layer is computed for <s> alone.

HF_FOLDER is a BERT, RoBERTa or ALBERT with its tokenizer.json, CONVERTED what fairseq-adv convert made of it.
Each line of TEXTS is a class, a space and a text.

  OMP_NUM_THREADS=1 benchmarks/hf_encoder.py HF_FOLDER CONVERTED TEXTS
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from fairseq.logging import metrics

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import build_trainer, clock, machine, rotated, spread

from fairseq_adv.cli import main as fairseq_adv
from fairseq_adv.cli.number_types import count
from fairseq_adv.cli.script import HelpFormatter

SIZES = "--adv-relative --adv-lr 0.0033 --adv-max-norm 0.01 --adv-init-mag 0.005"
METHOD = f"--criterion freelb {SIZES}"
TASK = (
    "--task text_classification --num-classes 2 --init-token 0 --seed 1 --cpu --max-positions 128 --lr 1e-4"
)
EPSILONS = {"bert": 1e-5, "roberta": 1e-5, "albert": 1e-9}
HEAD = "sentence_classification_head"
HEADS = {  # fairseq's two layers -> transformers'
    "bert": {"dense": "bert.pooler.dense", "out_proj": "classifier"},
    "albert": {"dense": "albert.pooler", "out_proj": "classifier"},
    "roberta": {"dense": "classifier.dense", "out_proj": "classifier.out_proj"},
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("hf", type=Path, metavar="HF_FOLDER")
    add("converted", type=Path, metavar="CONVERTED")
    add("texts", type=Path, metavar="TEXTS")
    add("--updates", type=count, default=50, help="updates whose losses are compared")
    add("--rounds", type=count, default=9, help="turns of each side, after two that don't count")
    add("--rows", type=count, default=32, help="rows in a batch")
    return options


def main() -> int:
    """Compares, then measures."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trainers = build(options, folder)
        compare(options, trainers)
        measure(options, trainers)
    return 0


def build(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The trainers of both paths, and of the native one as it is shipped."""
    texts = folder / "texts.txt"
    rows = options.texts.read_text(encoding="utf-8", errors="replace").splitlines()
    step = max(1, len(rows) // 2000)  # files are often sorted by class
    texts.write_text("\n".join(rows[::step]) + "\n", encoding="utf-8")
    hf = folder / "hf"
    hf.mkdir()
    for file in options.hf.resolve().iterdir():
        if file.name != "config.json":
            (hf / file.name).symlink_to(file)
    config = json.loads((options.hf / "config.json").read_text(encoding="utf-8"))
    kind = config["model_type"]
    changed = {**config, "layer_norm_eps": EPSILONS[kind]}
    (hf / "config.json").write_text(json.dumps(changed), encoding="utf-8")
    for side, encoder in (("hf", hf), ("native", options.converted)):
        words = ["prepare", "classification", texts, folder / f"{side}-data", "--text", "text"]
        fairseq_adv([*map(str, words), "--label", "label", "--encoder", str(encoder)])
    model = (options.converted / "model_args.txt").read_text(encoding="utf-8").split()
    native = [*model, "--finetune-from-model", str(options.converted / "model.pt")]
    sides = {
        "hf": ("hf", ["--arch", "hf_encoder", "--hf-model", str(hf), "--pooler-dropout", "0"]),
        "native": ("native", [*native, "--whole-last-layer"]),
        "shipped": ("native", native),
    }
    none = ["--dropout", "0", "--attention-dropout", "0"]
    trainers = {}
    for side, (data, words) in sides.items():
        every = [*TASK.split(), *METHOD.split(), *none, *words]
        trainers[side] = build_trainer(
            str(folder / f"{data}-data"), every, folder / "unused", options.rows, False
        )
    weights = torch.load(options.converted / "model.pt", weights_only=False)["model"]
    theirs = dict(trainers["hf"].model.hf.named_parameters())
    theirs[f"{kind}.embeddings.token_type_embeddings.weight"].requires_grad_(False)
    for side in ("native", "shipped"):
        model = trainers[side].model
        own = {
            f"classification_heads.{HEAD}.{ours}.{part}": theirs[f"{name}.{part}"]
            for ours, name in HEADS[kind].items()
            for part in ("weight", "bias")
        }
        model.load_state_dict({**weights, **own})
    return trainers


def batch(options: argparse.Namespace, trainer: Any, number: int) -> Any:
    data = trainer.task.dataset("train")
    rows = [(number * options.rows + i) % len(data) for i in range(options.rows)]
    return data.collater([data[i] for i in rows])


def update(options: argparse.Namespace, trainer: Any, number: int) -> None:
    metrics.reset()
    trainer.set_num_updates(number)
    trainer.train_step([batch(options, trainer, number)])


def loss(options: argparse.Namespace, trainer: Any, number: int) -> float:
    """The loss of a batch, in nats a sentence."""
    objective, sample = trainer.criterion.objective, batch(options, trainer, number)
    with torch.no_grad():
        return float(objective.loss(objective.predict(trainer.model, sample), sample)) / options.rows


def compare(options: argparse.Namespace, trainers: dict[str, Any]) -> None:
    losses: dict[str, list[float]] = {side: [] for side in trainers}
    for number in range(options.updates):
        for side, trainer in trainers.items():
            losses[side].append(loss(options, trainer, number))
            update(options, trainer, number)
    print(f"{machine(trainers['hf'])}, {options.rows} rows a batch")
    print(f"losses of native: {losses['native'][0]:.4f} at first, {losses['native'][-1]:.4f} at last")
    for side in ("hf", "shipped"):
        apart = max(abs(ours - native) for ours, native in zip(losses[side], losses["native"]))
        print(f"{side}: losses of {options.updates} updates within {apart:.1e} of native's")


def measure(options: argparse.Namespace, trainers: dict[str, Any]) -> None:
    times: dict[str, list[float]] = {side: [] for side in trainers}
    for turn in range(options.rounds + 2):
        for side in rotated(trainers, turn):
            begin = clock(trainers[side])
            update(options, trainers[side], turn)
            times[side].append(clock(trainers[side]) - begin)
    print("\n| side | s an update | times native, turn by turn |\n|---|---|---|")
    for side, seconds in times.items():
        ratios = [ours / native for ours, native in zip(seconds[2:], times["native"][2:])]
        print(f"| {side} | {spread(seconds[2:])} | {spread(ratios)} |")


if __name__ == "__main__":
    sys.exit(main())
