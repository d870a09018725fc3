#!/usr/bin/env python3
"""Seconds per attacked example of `fairseq-adv attack --attack NAME` or of TextAttack: same rows and model.

Runs one side on one thread and prints a line of JSON. Both sides need an environment that has TextAttack
(docs/textattack.md). One example is attacked before the clock starts, to load everything that is loaded once.
With --side textattack the model is called as by load(…).predict. With --side textattack-hf it is the model
that fairseq-adv export wrote, in TextAttack's own wrapper for Hugging Face models, as its users would run it;
that wrapper pads each text to the model's maximum length. textfooler is the same attack on all sides, built
from parts that need no download: words ranked by deletion, a table of neighbours, no part-of-speech check, no
sentence encoder. All use NLTK's stop words. CPU seconds are those of this process; other programs disturb
them less than wall time.

Example: OMP_NUM_THREADS=1 VENV/bin/python benchmarks/word_attack.py run/checkpoint_best.pt mr.txt \\
             --attack deepwordbug --side textattack
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.cli.script import count

REFERENCES = Path(__file__).resolve().parents[1] / "tests/references/textattack"
STOP_WORDS = REFERENCES / "stopwords.txt"
Attacked = tuple[str, int, int, str]  # outcome, queries, rows that reached the model, final text


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("checkpoint", type=Path)
    add(
        "file",
        type=Path,
        metavar="FILE",
        help="lines with a class and a text, as in TextFooler's files",
    )
    add("--side", choices=("ours", "textattack", "textattack-hf"), required=True)
    add("--attack", choices=("deepwordbug", "pwws", "textfooler"), required=True)
    add("--exported", type=Path, metavar="DIR", help="from fairseq-adv export, for --side textattack-hf")
    add("--neighbours", type=Path, metavar="JSON", help='{"word": ["nearest", …], …}, for textfooler')
    add("--wordnet", type=Path, default=Path("/usr/share/wordnet"), help="for pwws on our side")
    add("--examples", type=count, default=20, metavar="N", help="the first N rows")
    add("--repeats", type=count, default=3)
    add(
        "--at-once",
        type=count,
        default=32,
        help="examples attacked in parallel on our side (default: 32, as in the command)",
    )
    return options


def read(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model, and the file's examples as read by the command."""
    import fairseq_adv
    from fairseq_adv.evaluation.word_attacks.victim import AttackedFile, read_examples

    model = fairseq_adv.load(options.checkpoint, device="cpu")
    file = AttackedFile(options.file, "text", label="label", encoding="latin-1", examples=options.examples)
    return model, read_examples(file, model)


def ours(options: argparse.Namespace) -> Callable[[int], list[Attacked]]:
    """What attacks the first n examples."""
    import torch

    from fairseq_adv.evaluation.attack_settings import ATTACKS
    from fairseq_adv.evaluation.word_attacks.resources import Resources, build
    from fairseq_adv.evaluation.word_attacks.schedule import run_together
    from fairseq_adv.evaluation.word_attacks.search import search
    from fairseq_adv.evaluation.word_attacks.victim import Victim

    model, examples = read(options)
    wordnet = options.wordnet if options.attack == "pwws" else None
    resources = Resources(options.neighbours, wordnet, stop_words=STOP_WORDS)
    victim = Victim(model, examples)
    parts = build(ATTACKS[options.attack], resources, victim, torch.device("cpu"))

    def attack(n: int) -> list[Attacked]:
        searches = ((k, search(one.example, parts)) for k, one in enumerate(examples[:n]))
        found = dict(run_together(searches, options.at_once))
        ends = [one for _, one in sorted(found.items())]
        return [(one.status, one.queries, one.rows, one.text.texts()[0]) for one in ends]

    return attack


def textattack(options: argparse.Namespace) -> Callable[[int], list[Attacked]]:
    """What attacks the first n examples."""
    sys.path.insert(0, str(REFERENCES))
    import numpy as np
    import offline  # noqa: F401  (before TextAttack)
    from textattack import attack_recipes

    from fairseq_adv.hub.textattack import TextAttackModel

    model, examples = read(options)
    if options.side == "textattack":
        wrapper = counting(TextAttackModel)(model)
    else:
        from textattack.models.wrappers import HuggingFaceModelWrapper
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        exported = AutoModelForSequenceClassification.from_pretrained(options.exported)
        tokenizer = AutoTokenizer.from_pretrained(options.exported)
        wrapper = counting(HuggingFaceModelWrapper)(exported.eval(), tokenizer)
    recipes = {
        "deepwordbug": attack_recipes.DeepWordBugGao2018.build, "pwws": attack_recipes.PWWSRen2019.build,
        "textfooler": lambda wrapper: from_neighbours(wrapper, options.neighbours),
    }  # fmt: skip
    attacker = recipes[options.attack](wrapper)
    statuses = {"SkippedAttackResult": "skipped", "FailedAttackResult": "failed"}

    def attack(n: int) -> list[Attacked]:
        random.seed(1)
        np.random.seed(1)
        attacker.clear_cache()
        found = []
        for example, *_ in examples[:n]:
            before = wrapper.rows
            result = attacker.attack(example.text.texts()[0], example.gold)
            status = statuses.get(type(result).__name__, "succeeded")
            end = result.perturbed_result.attacked_text.text
            found.append((status, result.num_queries, wrapper.rows - before, end))
        return found

    return attack


def counting(base: type) -> Any:
    """A wrapper for TextAttack that counts the rows that reach the model."""

    class Counting(base):  # type: ignore[misc]
        rows = 0

        def __call__(self, texts: Sequence[Any]) -> Any:
            self.rows += len(texts)
            return super().__call__(texts)

    return Counting


def from_neighbours(wrapper: Any, path: Path) -> Any:
    """TextFooler's search over a table of neighbours, from TextAttack's own parts."""
    import textattack
    from textattack.constraints.pre_transformation import RepeatModification, StopwordModification
    from textattack.transformations.word_swaps.word_swap_embedding import recover_word_case

    table = json.loads(path.read_bytes())

    class FromTable(textattack.transformations.WordSwap):
        def _get_replacement_words(self, word: str) -> list[str]:
            return [recover_word_case(other, word) for other in table.get(word.lower(), [])[:50]]

    return textattack.Attack(
        textattack.goal_functions.UntargetedClassification(wrapper),
        [RepeatModification(), StopwordModification()],
        FromTable(),
        textattack.search_methods.GreedyWordSwapWIR("delete"),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the side's line; returns the exit status."""
    options = parser().parse_args(argv)
    if (options.attack == "textfooler") != (options.neighbours is not None):
        return failed("--neighbours is required with --attack textfooler and not allowed otherwise")
    if (options.side == "textattack-hf") != (options.exported is not None):
        return failed("--exported is required with --side textattack-hf and not allowed otherwise")
    import torch

    from fairseq_adv.data.errors import DataError

    torch.set_num_threads(1)
    try:
        attack = (ours if options.side == "ours" else textattack)(options)
    except (DataError, ModuleNotFoundError) as error:
        return failed(str(error))
    # Loads what is kept: a row that the model gets wrong is skipped.
    next((n for n in range(1, options.examples + 1) if attack(n)[-1][0] != "skipped"), None)
    wall, cpu = [], []
    for _ in range(options.repeats):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        found = attack(options.examples)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    outcomes = Counter(one[0] for one in found)
    attacked = [one for one in found if one[0] != "skipped"]
    if not attacked:
        return failed("the model is wrong on all of these rows, so none was attacked")

    line = {
        "side": options.side, "attack": options.attack, "examples": len(found), **outcomes,
        "queries": round(statistics.mean(one[1] for one in attacked), 2),
        "rows": round(statistics.mean(one[2] for one in attacked), 2),
        "seconds": spread(wall, len(attacked)), "cpu_seconds": spread(cpu, len(attacked)),
        "repeats": options.repeats, "texts": digest([one[3] for one in found]),
    }  # fmt: skip
    print(json.dumps(line))
    return 0


def digest(texts: Sequence[str]) -> str:
    """A hash for comparing the final texts of two attacks."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def spread(seconds: Sequence[float], examples: int) -> list[float]:
    """Median, minimum and maximum per example."""
    each = [second / examples for second in seconds]
    return [round(value, 3) for value in (statistics.median(each), min(each), max(each))]


def failed(message: str) -> int:
    """Prints an error; returns the exit status."""
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
