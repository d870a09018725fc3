"""Attacks the texts on stdin through fairseq_adv.hub.textattack, for tests/hub/test_textattack.py.

stdin: {"checkpoint": path, "recipe": name, "examples": [[text, label], …]}; a text is a string or a pair.
"""

from __future__ import annotations

import json
import random
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import offline  # noqa: F401  (before TextAttack, which can't be imported without it)

import fairseq_adv


def attacked(attack: Any, text: str | list[str], label: int) -> dict[str, Any]:
    """What became of one example."""
    given = text if isinstance(text, str) else OrderedDict(zip(("premise", "hypothesis"), text))
    result = attack.attack(given, label)
    final = result.perturbed_result.attacked_text.tokenizer_input
    return {
        "outcome": type(result).__name__.removesuffix("AttackResult"),
        "final": final,
        "num_queries": result.num_queries,
    }


def main() -> None:
    request = json.load(sys.stdin)
    silent = "textattack" not in sys.modules
    from textattack import attack_recipes  # here: what fairseq_adv imports is looked at first

    from fairseq_adv.hub.textattack import TextAttackModel

    wrapper = TextAttackModel(fairseq_adv.load(request["checkpoint"], device="cpu"))
    texts = [text if isinstance(text, str) else tuple(text) for text, _ in request["examples"]]
    probabilities = wrapper(texts)
    attack = getattr(attack_recipes, request["recipe"]).build(wrapper)
    random.seed(0)
    np.random.seed(0)
    results = [attacked(attack, text, label) for text, label in request["examples"]]
    answer = {"silent": silent, "dtype": str(probabilities.dtype), "results": results}
    answer["probabilities"] = probabilities.tolist()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
