"""Measures a checkpoint's loss and accuracy before and after an attack.

By default the attack perturbs the embeddings. The checkpoint is a fine-tuned model, or a masked LM, whose
examples are the masked positions.
Example: fairseq-adv attack run/checkpoint_best.pt --epsilon 0.1

With --attack NAME the attack changes words instead: textfooler, textbugger, bert-attack, pwws or deepwordbug.
fairseq-adv attack --attack textfooler --help lists its options.
"""

from __future__ import annotations

import argparse
import json
import sys

from fairseq_adv.evaluation.attack_settings import LOSSES, Attack

from .number_types import count, not_negative, positive, whole
from .script import command_parser, exit_status
from .shared_options import add_batch_size, add_cpu, add_json, add_precision


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("attack", __doc__)
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a checkpoint written by fairseq-train")
    add("--attack", metavar="NAME", help="attack by changing words; has options of its own")
    add("--data", metavar="DIR", help="data folder (default: the one the checkpoint was trained on)")
    add("--split", default="valid", help="split of the data")
    add("--epsilon", type=positive, required=True, help="radius of the L2 ball around each example")
    add(
        "--relative",
        action="store_true",
        help="--epsilon and other sizes are fractions of the L2 norm of each example's embeddings",
    )
    add("--step-size", type=positive, help="length of an ascent step (default: epsilon / 4)")
    add("--steps", type=count, default=20, help="number of ascent steps")
    add("--loss", choices=LOSSES, default=LOSSES[0], help="what the steps raise: the training's loss, or "
        "the margin of the logits, which over-confidence doesn't blunt (for tasks with classes)")  # fmt: skip
    add("--start", type=not_negative, default=0.0, help="m of the random start; 0: start at the clean text")
    add("--seed", type=whole, default=1, help="seed of the random start")
    add_batch_size(add, 32)
    add("--batches", type=count, metavar="N", help="attack only the first N mini-batches (default: all)")
    add_cpu(add)
    add_precision(add)
    add_json(add)
    return parser


def measure(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.trained import attack_checkpoint

    how = Attack(
        epsilon=options.epsilon,
        step_size=options.step_size or options.epsilon / 4,
        steps=options.steps,
        start=options.start,
        seed=options.seed,
        relative=options.relative,
        loss=options.loss,
    )
    means = attack_checkpoint(
        options.checkpoint,
        how,
        options.data,
        options.split,
        options.batch_size,
        options.cpu,
        options.batches,
        options.precision,
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
    return exit_status(lambda: measure(options))
