#!/usr/bin/env python3
"""One flattened forward-backward pass of all candidates, against one call of the model per choice, as in
fairseq.

Three ways to score the same questions: all candidates as one batch (this project); one call for the first
choices of all questions, one for the second choices, … (fairseq's criterion; a dummy stands in for missing
choices); one call per candidate. The ways take turns in one process. Their scores are compared, and the
largest difference is reported. Times are of forward and backward in evaluation mode (no dropout), on a CPU in
CPU seconds of the process.

  flattened_ranking.py DATA --encoder ENCODER --task commonsense_qa
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import build_trainer, clock, machine

from fairseq_adv.cli.model_args import model_args
from fairseq_adv.cli.number_types import count

HEAD = "sentence_classification_head"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("data", help="data folder of the task")
    options.add_argument("--encoder", type=Path, required=True, help="written by fairseq-adv convert")
    options.add_argument(
        "--task", default="commonsense_qa", help="commonsense_qa (default), arc_retrieval, qnli_ranking"
    )
    options.add_argument(
        "--tokens-per-sample", type=count, default=128, help="length that documents are cut to (default: 128)"
    )
    options.add_argument("--questions", type=count, default=16, help="questions in a batch (default: 16)")
    options.add_argument(
        "--batches", type=count, default=6, help="batches, after one that doesn't count (default: 6)"
    )
    options.add_argument("--fp16", action="store_true", help="half precision (needs a GPU)")
    return options


def build(options: argparse.Namespace, unused: str) -> Any:
    """The task's trainer, as fairseq-train makes it, with the encoder's size and random weights."""
    words = [
        "--task", options.task, "--criterion", "standard",
        "--tokenizer-dir", str(options.encoder), "--tokens-per-sample", str(options.tokens_per_sample),
        *model_args(options.encoder),
    ]  # fmt: skip
    trainer = build_trainer(options.data, words, Path(unused), options.questions, options.fp16)
    trainer.model.train()  # turns off fairseq's fused inference layer, which has no gradient
    trainer.model.eval()
    return trainer


def score(trainer: Any, tokens: Any) -> Any:
    return trainer.model(tokens, features_only=True, classification_head_name=HEAD)[0].view(-1)


Batches = list[Any]  # the token batches of one way, and the place of each row's score in the flattened batch


def flattened(sample: Any) -> Batches:
    return [(sample["net_input"]["src_tokens"], None)]


def call_per_choice(sample: Any) -> Batches:
    """All k-th choices as one batch; a question with fewer choices repeats its first, which is ignored."""
    choice, question = sample["choice"], sample["question"]
    firsts = (choice == 0).nonzero().view(-1)
    batches = []
    for k in range(sample["max_choices"]):
        rows = firsts.clone()
        there = (choice == k).nonzero().view(-1)
        rows[question[there]] = there
        batches.append((cut(sample, rows), (there, question[there])))
    return batches


def call_per_candidate(sample: Any) -> Batches:
    import torch

    rows = torch.arange(len(sample["choice"]), device=sample["choice"].device)
    return [(cut(sample, row), (row, torch.zeros_like(row))) for row in rows.split(1)]


def cut(sample: Any, rows: Any) -> Any:
    """These rows, without the padding that they share."""
    return sample["net_input"]["src_tokens"][rows, : int(sample["net_input"]["src_lengths"][rows].max())]


def timed(trainer: Any, batches: Batches, rows: int) -> tuple[float, Any]:
    """(seconds of forward and backward, scores in the order of the flattened batch)"""
    import torch

    trainer.zero_grad()
    begin = clock(trainer)
    scores = [score(trainer, tokens).float() for tokens, _ in batches]
    trainer.optimizer.backward(torch.cat(scores).sum())
    seconds = clock(trainer) - begin
    if batches[0][1] is None:
        return seconds, scores[0].detach()
    ordered = scores[0].new_zeros(rows)
    for values, (_, (target, source)) in zip(scores, batches):
        ordered[target] = values.detach()[source]
    return seconds, ordered


def main() -> int:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as unused:
        trainer = build(options, unused)
        data = trainer.task.dataset("train")
        wanted = options.questions * (options.batches + 1)
        if len(data) < wanted:
            print(f"error: {options.data}: {len(data)} questions, {wanted} are needed", file=sys.stderr)
            return 2
        order = data.ordered_indices()[:wanted].reshape(-1, options.questions)
        ways = {
            "flattened": flattened,
            "a call a choice": call_per_choice,
            "a call a candidate": call_per_candidate,
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        worst = 0.0
        for number, rows in enumerate(order):
            sample, _ = trainer._prepare_sample(data.collater([data[int(i)] for i in rows]))
            rows_in_all = len(sample["choice"])
            measured = {name: timed(trainer, way(sample), rows_in_all) for name, way in ways.items()}
            worst = max(
                worst, *(float((s - measured["flattened"][1]).abs().max()) for _, s in measured.values())
            )
            if number:
                for name, (seconds, _) in measured.items():
                    times[name].append(seconds)
    print(
        f"{options.task}, {options.questions} questions a batch, {options.batches} batches, "
        f"{machine(trainer)}"
    )
    for name, values in times.items():
        ratios = [other / own for other, own in zip(values, times["flattened"])]
        print(
            f"{name:20} median {statistics.median(values):.3f} s ({min(values):.3f} to {max(values):.3f}); "
            f"{statistics.median(ratios):.2f} x flattened ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(f"largest difference of a score: {worst:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
