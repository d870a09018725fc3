"""Small corpora and questions, in ARC's layout."""

from __future__ import annotations

import json
import random
from pathlib import Path

SENTENCES = [
    "Plants make sugar from sunlight, water and carbon dioxide.",
    "Photosynthesis is how plants make their food.",
    "PHOTOSYNTHESIS is how plants make their food!",
    "The Moon orbits the Earth in about a month.",
    "Ice is frozen water.",
    "Which plants make food from sunlight?",
    "sunlight | plants | 12 | 13",
    "See http://example.org/sunlight for plants and sunlight.",
    "Sunlight warms the café's garden in Zürich.",
    "Iron rusts when it meets water and oxygen.",
    "A magnet attracts iron and steel",
    "Animals eat plants or other animals.",
    "Sunlight.",
]


def question(
    stem: str, *choices: str, name: str = "q", answer: str = "A", **more: object
) -> dict[str, object]:
    """A row of ARC's jsonl."""
    entries = [{"text": text, "label": label} for text, label in zip(choices, "ABCDE")]
    return {"id": name, "question": {"stem": stem, "choices": entries}, "answerKey": answer, **more}


def write_questions(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def many_sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of words that follow Zipf's law, some of them said twice."""
    rng = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "e", "o", "ui") for c in "bdgklmnprtz"]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    lines = [
        " ".join(rng.choices(words, weights, k=rng.randint(4, 15))) + "." for _ in range(count * 9 // 10)
    ]
    return lines + rng.choices(lines, k=count - len(lines))
