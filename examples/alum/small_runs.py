#!/usr/bin/env python3
"""Continues the pre-training of a small encoder on a CPU, with and without ALUM for the same wall time, then
fine-tunes both models on RTE and MRPC with standard, alum_vat and smart.

  examples/alum/small_runs.py ../shared/data out/alum-small
  examples/alum/small_runs.py ../shared/data out/alum-small --table --into page.md

Finished runs are kept. A run that was interrupted or had other settings starts again.
Each pre-trained model is evaluated as soon as it is finished: on the validation split and under attack.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from driver import Record, Run, make
from tables import Column, last, outcome, table

from fairseq_adv.cli.number_types import positive

TASKS = ("MRPC", "RTE")
STAGES = ("warmup", "pretrain", "finetune")
STARTS = {"none": "as published", "plain": "plain", "alum": "ALUM"}
METHODS = {
    "standard": ["--criterion", "standard"],
    "alum_vat": ["--criterion", "alum_vat", "--vat-alpha", "1"],
    "smart": [
        "--criterion", "smart", "--vat-alpha", "1", "--smart-mu", "1", "--store-ema", "--ema-decay", "0.99",
    ],
}  # fmt: skip


def parser() -> ArgumentParser:
    options = small.parser(__doc__, "text/{train,valid}.txt, glue/RTE and glue/MRPC")
    small.add_names(options, "--stages", STAGES)
    about = "updates without ALUM that train the new masked-LM head, before the two runs part"
    small.add_number(options, "--warmup-updates", about, 400)
    options.add_argument(
        "--minutes", type=positive, default=15.0, metavar="N",
        help="wall time of each pre-training run; both run at once",
    )  # fmt: skip
    options.add_argument(
        "--epsilons", type=positive, nargs="+", default=[0.05, 0.2], metavar="R",
        help="L2 radii, per row of text, of the attack on the pre-trained models (default: 0.05 0.2)",
    )  # fmt: skip
    small.add_number(options, "--updates", "fine-tuning updates", 50)
    options.add_argument(
        "--starts", nargs="+", choices=list(STARTS), default=["plain", "alum"], metavar="NAME",
        help="what to fine-tune: plain, alum, or none (the encoder as published; default: plain alum)",
    )  # fmt: skip
    small.add_seeds(options)
    return options


def pretraining(options: Namespace, name: str, label: str, start: str, *words: str) -> Run:
    """A run on rows of 128 tokens of running text. lr is constant after warm-up: no total has to be known."""
    options_of_all = [
        *small.encoder_words(options), *small.COMMON, "--task", "masked_lm", "--sample-break-mode", "none",
        "--batch-size", "16", "--tokens-per-sample", "128", "--mask-prob", "0.15", "--lr", "3e-4",
        "--lr-scheduler", "fixed", "--warmup-updates", "50", "--batch-size-valid", "32",
    ]  # fmt: skip
    attacks = {
        f"attack {epsilon:g}": small.attack(f"{name}/checkpoint_last.pt", epsilon, 5, 4)
        for epsilon in options.epsilons
    }
    return Run(
        name, "corpus/shard0", start, [*options_of_all, *words], labels={"pre-training": label},
        after=attacks, delete=["checkpoint_best.pt"],
    )  # fmt: skip


def start_of_both(options: Namespace) -> str:
    """The checkpoint that both runs start from. Its name contains its settings: others mean new runs."""
    return f"warmup-{options.warmup_updates}/start.pt"


def pretrained(options: Namespace, arm: str) -> str:
    return f"{arm}-{options.warmup_updates}-{options.minutes:g}"


def warmup(options: Namespace) -> None:
    """Trains a masked-LM head from random weights, since the encoder was published without one."""
    begin, updates = options.out / start_of_both(options), str(options.warmup_updates)
    make([
        pretraining(options, begin.parent.name, "start of both", f"{options.encoder}/model.pt",
                    "--criterion", "masked_lm", "--max-update", updates)
    ], options.out)  # fmt: skip
    if not begin.is_file():
        weights_only(begin.with_name("checkpoint_last.pt"), begin)


def weights_only(checkpoint: Path, new: Path) -> None:
    """Copies a checkpoint without its optimizer and training time, which --stop-time-hours would count."""
    import torch
    from fairseq import checkpoint_utils

    from fairseq_adv.data.io import written_whole

    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    state["last_optimizer_state"] = None
    del state["extra_state"]["previous_training_time"]
    with written_whole(new) as file:
        torch.save(state, file)


def pretrain(options: Namespace) -> None:
    stop = ["--stop-time-hours", f"{options.minutes / 60:.6g}"]
    plain, alum = METHODS["standard"], ["--criterion", "alum_vat", "--vat-alpha", "10"]
    start = start_of_both(options)
    runs = [
        pretraining(options, pretrained(options, "plain"), "plain", start, *plain, *stop),
        pretraining(options, pretrained(options, "alum"), "ALUM", start, *alum, *stop),
    ]
    same = str(make(runs, options.out, jobs=2)[1]["updates"])
    # Separates the effect of ALUM from that of fewer updates.
    name, label = pretrained(options, "same"), "plain, as many updates as ALUM"
    make([pretraining(options, name, label, start, *plain, "--max-update", same)], options.out)


def finetune(options: Namespace) -> None:
    data = {task: small.prepare_glue(options, task)[0] for task in TASKS}
    make([
        finetuning(options, data[task], task, start, method, seed)
        for seed in options.seeds for start in options.starts for task in TASKS for method in METHODS
    ], options.out, options.jobs)  # fmt: skip


def finetuning(options: Namespace, data: str, task: str, start: str, method: str, seed: int) -> Run:
    # Some of RTE's premises are long, and a batch is padded to the longest.
    words = [
        *small.CLASSIFY, *small.encoder_words(options), *small.COMMON, *small.schedule(1e-4, options.updates),
        *METHODS[method], "--batch-size", "8" if task == "RTE" else "16", "--validate-interval", "1000",
        "--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", "--no-save",
    ]  # fmt: skip
    checkpoint = f"{pretrained(options, start)}/checkpoint_last.pt"
    if start == "none":
        checkpoint = f"{options.encoder}/model.pt"
    return Run(
        f"{task}-{start}-{method}-{seed}", data, checkpoint, words, seed,
        {"task": task, "start": STARTS[start], "criterion": method},
    )  # fmt: skip


def work(options: Namespace) -> None:
    text = options.data / "text"
    small.run_verb(
        "corpus", text / "train.txt", options.out / "corpus", "--shards", 1, "--workers", 1,
        "--encoder", options.out / options.encoder, "--valid", text / "valid.txt",
    )  # fmt: skip
    for stage, act in zip(STAGES, (warmup, pretrain, finetune)):
        if stage in options.stages:
            act(options)


def tables(records: list[Record]) -> list[str]:
    attacks = sorted({name for record in records for name in record["after"]})
    vat = ("vat_divergence", "vat_divergence_start")
    columns = [
        small.UPDATES,
        Column("wall minutes", lambda record: record["wall_seconds"] / 60, 1),
        Column("CPU minutes", lambda record: record["cpu_seconds"] / 60, 1),
        Column("valid perplexity", last("valid", "ppl")),
        *(Column("valid loss, first rows", outcome(name, "loss"), 3) for name in attacks[:1]),
        *(Column(f"under {name}", outcome(name, "perturbed_loss"), 3) for name in attacks),
        Column("`vat_cosine`, mean", last("train", "vat_cosine"), 8),
        *(Column(f"`{name}`, nats, mean", last("train", name, small.NATS), 8) for name in vat),
    ]
    order = ["start of both", "plain", "ALUM", "plain, as many updates as ALUM"]
    scores = [
        small.SEEDS, small.UPDATES, Column("accuracy", last("valid", "accuracy"), 2, True),
        Column("F1", last("valid", "f1"), 2, True), small.CPU,
    ]  # fmt: skip
    by = {"task": TASKS, "start": list(STARTS.values()), "criterion": list(METHODS)}
    return [*table(records, {"pre-training": order}, columns), *table(records, by, scores)]


def main() -> int:
    options = parser().parse_args()
    needs = ["text/train.txt", "text/valid.txt", *small.glue_files(TASKS)]
    return small.command(options, needs, work, tables)


if __name__ == "__main__":
    sys.exit(main())
