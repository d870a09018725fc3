"""Measures a checkpoint's loss and accuracy before and after an attack on its embeddings.

Fine-tuned, or a masked LM, whose examples are the masked positions.
Example: fairseq-adv attack run/checkpoint_best.pt --epsilon 0.1

With --attack NAME it is attacked with changed words instead: textfooler, textbugger, bert-attack, pwws or
deepwordbug. fairseq-adv attack --attack textfooler --help lists the options.
"""

from __future__ import annotations

import argparse
import json
import sys

from .number_types import count, not_negative, positive, whole
from .script import command_parser, exit_status


def _parser() -> argparse.ArgumentParser:
    options = command_parser("attack", __doc__)
    options.add_argument("checkpoint", help="a checkpoint that fairseq-train wrote")
    options.add_argument("--attack", metavar="NAME", help="an attack on words, which has options of its own")
    options.add_argument("--data", help="binarised data folder (default: the one it was trained on)")
    options.add_argument("--split", default="valid", help="which split")
    options.add_argument("--epsilon", type=positive, required=True, help="radius of the l2 ball, per example")
    options.add_argument(
        "--relative", action="store_true", help="sizes are shares of the norm of each example's embeddings"
    )
    options.add_argument("--step-size", type=positive, help="length of an ascent step (default: epsilon / 4)")
    options.add_argument("--steps", type=count, default=20, help="number of ascent steps")
    options.add_argument(
        "--start", type=not_negative, default=0.0, help="m of the random start; 0: from the clean text"
    )
    options.add_argument("--seed", type=whole, default=1, help="of the random start")
    options.add_argument("--batch-size", type=count, default=32, help="sentences in a mini-batch")
    options.add_argument("--batches", type=count, help="attack only so many mini-batches (default: all)")
    options.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    options.add_argument("--json", action="store_true", help="print one line of json instead of a table")
    return options


def measure(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.attack import Attack
    from fairseq_adv.evaluation.trained import attack_checkpoint

    how = Attack(
        epsilon=options.epsilon,
        step_size=options.step_size or options.epsilon / 4,
        steps=options.steps,
        start=options.start,
        seed=options.seed,
        relative=options.relative,
    )
    means = attack_checkpoint(
        options.checkpoint,
        how,
        options.data,
        options.split,
        options.batch_size,
        options.cpu,
        options.batches,
    )
    if options.json:
        print(json.dumps(means))
    else:
        print(f"{means['examples']} examples, {how.steps} ascent steps within epsilon {how.epsilon}")
        print(f"{'':12}{'loss (nats)':>14}{'accuracy':>12}")
        print(f"{'clean':12}{means['loss']:14.4f}{means['accuracy']:12.2f}")
        print(f"{'perturbed':12}{means['perturbed_loss']:14.4f}{means['perturbed_accuracy']:12.2f}")


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if any(word == "--attack" or word.startswith("--attack=") for word in words):
        from .attack_words import main as attack_words

        return attack_words(words)
    options = _parser().parse_args(words)
    return exit_status(lambda: measure(options), (ValueError, OSError))
