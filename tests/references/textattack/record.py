"""Runs TextAttack's stock recipes on texts.txt and writes what they did, a JSON object a line.

README.md says what the fields are and which of them another implementation can be compared with.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

# NumPy's vectorised argsort orders equal numbers as the processor likes. Without it up to 16 keep theirs.
os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 X86_V3 AVX512_ICL AVX512_SPR"

import offline  # noqa: F401, I001  (before TextAttack, which can't be imported without it)
import numpy as np
import torch
from textattack.attack_recipes import AttackRecipe, DeepWordBugGao2018, PWWSRen2019
from textattack.attack_results import FailedAttackResult, SkippedAttackResult
from textattack.models.wrappers import ModelWrapper
from textattack.shared import AttackedText
from victim import Victim, victims, words_of

HERE = Path(__file__).parent


class Wrapper(ModelWrapper):
    """A victim as TextAttack wants it; counts the rows that reach it."""

    def __init__(self, victim: Victim) -> None:
        self.model, self.rows = victim, 0

    def __call__(self, texts: list[str]) -> torch.Tensor:
        self.rows += len(texts)
        return torch.tensor([self.model.scores(text) for text in texts], dtype=torch.float64)


class Recorder:
    """Listens to what a recipe's search method asks for, and changes nothing of it."""

    def __init__(self, attack: Any) -> None:
        self.attack, self.search = attack, attack.search_method
        self.order, self.transform, self.score = (
            self.search._get_index_order, self.search.get_transformations, self.search.get_goal_results,
        )  # fmt: skip
        self.search._get_index_order = self.ordered
        self.search.get_transformations = self.transformed
        self.search.get_goal_results = self.scored

    def clear(self) -> None:
        self.log: dict[str, Any] = {"saliency": [], "gain": {}, "order": [], "steps": []}
        self.searching, self.index = False, -1

    def ordered(self, text: Any) -> Any:
        order, over = self.order(text)
        self.log["order"] = [int(i) for i in order]
        self.searching = True
        return order, over

    def transformed(self, current: Any, **options: Any) -> Any:
        self.index = int(options["indices_to_modify"][0])
        texts = self.transform(current, **options)
        if self.searching:
            candidates = [replacement(current.text, current.words, self.index, t.text) for t in texts]
            self.log["steps"].append({"word": self.index, "candidates": candidates, "best": None})
        return texts

    def scored(self, texts: Any) -> Any:
        results, over = self.score(texts)
        scores = [float(result.score) for result in results]
        if self.searching:
            self.log["steps"][-1]["best"] = max(scores)
        elif self.index < 0:
            self.log["saliency"] = scores
        else:
            self.log["gain"][self.index] = max(scores)
        return results, over


def replacement(text: str, words: list[str], index: int, changed: str) -> str:
    """What stands in `changed` where `text` has its word `index`."""
    end = 0
    for word in words[: index + 1]:
        start = text.index(word, end)
        end = start + len(word)
    return changed[start : len(changed) - (len(text) - end)]


def rounded(value: Any) -> Any:
    """Floats with 12 digits, wherever they stand."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


class Run:
    """A stock recipe against a victim; one call a text."""

    def __init__(self, recipe: type[AttackRecipe], victim: Victim) -> None:
        self.wrapper = Wrapper(victim)
        self.attack = recipe.build(self.wrapper)
        self.recorder = Recorder(self.attack)

    def __call__(self, text: str, label: int) -> dict[str, Any]:
        """The first seed for which no misspelled word is one that the victim knows."""
        for seed in range(1000):
            line = self.once(text, label, seed)
            known = self.wrapper.model.vocabulary or frozenset()
            candidates = [word for step in line["steps"] for word in step["candidates"]]
            if not any(known & set(words_of(word)) for word in candidates):
                return line
        raise SystemExit(f"error: every seed turns a word into another that the victim knows: {text}")

    def once(self, text: str, label: int, seed: int) -> dict[str, Any]:
        random.seed(seed)
        np.random.seed(seed)
        self.recorder.clear()
        self.wrapper.rows = 0
        self.attack.clear_cache()  # TextAttack itself does so after each example that it doesn't skip
        result = self.attack.attack(text, label)
        skipped, failed = (isinstance(result, kind) for kind in (SkippedAttackResult, FailedAttackResult))
        first, final = result.original_result, result.perturbed_result
        return {
            "victim": self.wrapper.model.name, "text": text, "label": label, "seed": seed,
            "scores": first.raw_output.tolist(), **self.recorder.log,
            "outcome": "skipped" if skipped else "failed" if failed else "succeeded",
            "num_queries": result.num_queries, "model_rows": self.wrapper.rows,
            "changed": sorted(int(i) for i in final.attacked_text.attack_attrs["modified_indices"]),
            "final_text": final.attacked_text.text, "final_scores": final.raw_output.tolist(),
        }  # fmt: skip


def run(recipe: type[AttackRecipe], known: list[Victim], texts: list[str]) -> list[dict[str, Any]]:
    """One line a victim and text. A fifth of the labels are wrong, so that those examples are skipped."""
    lines = []
    for victim in known:
        attacked = Run(recipe, victim)
        for number, text in enumerate(texts):
            scores = victim.scores(text)
            lines.append(attacked(text, (int(np.argmax(scores)) + (number % 5 == 4)) % len(scores)))
    return lines


def write(name: str, lines: list[dict[str, Any]]) -> None:
    """JSON lines without spaces."""
    text = "".join(
        json.dumps(rounded(line), ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
    )
    (HERE / name).write_text(text, encoding="utf-8")


def splits(texts: list[str]) -> list[dict[str, Any]]:
    """TextAttack's words of each text, and the indices that both recipes may change, in its order."""
    attack = PWWSRen2019.build(Wrapper(victims()["even"]))
    lines = []
    for text in map(AttackedText, texts):
        indices = [int(i) for i in attack.get_indices_to_order(text)[1]]
        lines.append({"text": text.text, "words": text.words, "indices": indices})
    return lines


def wordnet_candidates(words: list[str]) -> list[dict[str, Any]]:
    """What PWWS's transformation offers for a text of one word, in its order."""
    attack = PWWSRen2019.build(Wrapper(victims()["even"]))
    lines = []
    for alone in map(AttackedText, words):
        changed = attack.filter_transformations(attack.transformation(alone), alone, alone)
        lines.append({"word": alone.text, "candidates": [text.text for text in changed]})
    return lines


def main() -> None:
    texts = (HERE / "texts.txt").read_text(encoding="utf-8").splitlines()
    split = splits(texts)
    write("words.jsonl", split)
    write("wordnet.jsonl", wordnet_candidates(sorted({word for line in split for word in line["words"]})))
    write("deepwordbug.jsonl", run(DeepWordBugGao2018, list(victims(texts).values()), texts))
    lines = run(PWWSRen2019, list(victims().values()), texts)
    for step in (step for line in lines for step in line["steps"]):
        step["candidates"] = len(step["candidates"])  # which ones, says wordnet.jsonl
    write("pwws.jsonl", lines)


if __name__ == "__main__":
    main()
