#!/usr/bin/env python3
"""Seconds per attacked example, of `fairseq-adv attack --attack NAME` or of TextAttack: same rows and model.

Runs one side, on one thread, and prints a line of json. Both sides want the Python of an environment that
has TextAttack (docs/textattack.md). An example is attacked before the clock starts, which loads what is
loaded once. With --side textattack the model is called as load(…).predict calls it. With --side
textattack-hf it is what fairseq-adv export made of it, behind TextAttack's own wrapper for Hugging Face's
models, as its users have it: that pads each text to the most tokens of the model. textfooler is the same
attack on all sides, of parts that need no download: words by deletion, a table of neighbours, no part of
speech, no sentence encoder. All have NLTK's stop words. CPU seconds are of this process; other programs
disturb them less than wall time.

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

from fairseq_adv_cli.number_types import count

REFERENCES = Path(__file__).resolve().parents[1] / "tests/references/textattack"
STOP_WORDS = REFERENCES / "stopwords.txt"
Attacked = tuple[str, int, int, str]  # outcome, queries, rows that reached the model, the text at the end


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
        help="a class and a text in a line, as TextFooler's files have them",
    )
    add("--side", choices=("ours", "textattack", "textattack-hf"), required=True)
    add("--attack", choices=("deepwordbug", "pwws", "textfooler"), required=True)
    add("--exported", type=Path, metavar="DIR", help="what fairseq-adv export made, for --side textattack-hf")
    add("--neighbours", type=Path, metavar="JSON", help='{"word": ["nearest", …], …}, for textfooler')
    add("--wordnet", type=Path, default=Path("/usr/share/wordnet"), help="for pwws, our side")
    add("--examples", type=count, default=20, metavar="N", help="the first N rows")
    add("--repeats", type=count, default=3)
    add(
        "--at-once",
        type=count,
        default=32,
        help="examples side by side, our side (default: 32, as the command)",
    )
    return options


def read(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model, and the file's examples as the command reads them."""
    import fairseq_adv
    from fairseq_adv.evaluation.word_attacks.victim import AttackedFile, read_examples

    model = fairseq_adv.load(options.checkpoint, device="cpu")
    file = AttackedFile(options.file, "text", label="label", encoding="latin-1", examples=options.examples)
    return model, read_examples(file, model)


def ours(options: argparse.Namespace) -> Callable[[int], list[Attacked]]:
    """What attacks the first n examples."""
    import torch

    from fairseq_adv.evaluation.word_attacks.resources import Resources, build
    from fairseq_adv.evaluation.word_attacks.schedule import run_together
    from fairseq_adv.evaluation.word_attacks.search import search
    from fairseq_adv.evaluation.word_attacks.settings import ATTACKS
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
    """A wrapper for TextAttack that counts the rows which reach the model."""

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
    """Prints the side's line. Returns the exit status."""
    options = parser().parse_args(argv)
    if (options.attack == "textfooler") != (options.neighbours is not None):
        return failed("--neighbours: give it with --attack textfooler, and only there")
    if (options.side == "textattack-hf") != (options.exported is not None):
        return failed("--exported: give it with --side textattack-hf, and only there")
    import torch

    from fairseq_adv.data.errors import DataError

    torch.set_num_threads(1)
    try:
        attack = (ours if options.side == "ours" else textattack)(options)
    except (DataError, ModuleNotFoundError) as error:
        return failed(str(error))
    attack(1)
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
    """Equal where an attack left the same texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def spread(seconds: Sequence[float], examples: int) -> list[float]:
    """Median, least and most, per example."""
    each = [second / examples for second in seconds]
    return [round(value, 3) for value in (statistics.median(each), min(each), max(each))]


def failed(message: str) -> int:
    """Says what is wrong."""
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
