"""Small data sets with something to learn at tokens: tagged sentences, questions about contexts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from support import VOCABULARY, write_encoder

# Words 0 to 7 are of an entity of this type, 8 to 11 of that one.
TYPES = {**dict.fromkeys(range(8), "Gene"), **dict.fromkeys(range(8, 12), "Cell")}


def tagged_sentence(rng: np.random.Generator) -> list[tuple[str, str]]:
    """Words with tags in IOB2; some words are several tokens, by the _ in them."""
    rows: list[tuple[str, str]] = []
    for number in rng.integers(0, len(VOCABULARY), size=rng.integers(2, 6)):
        kind, before = TYPES.get(int(number), ""), rows[-1][1][2:] if rows else ""
        word = VOCABULARY[number] + ("_" + VOCABULARY[number] if number % 3 == 0 else "")
        rows.append((word, "O" if not kind else f"{'I' if kind == before else 'B'}-{kind}"))
    return rows


def write_tags(folder: Path, *, train: int = 16, valid: int = 8, seed: int = 0) -> Path:
    """A tagging data folder with its tokenizer; the test split has no tags."""
    rng = np.random.default_rng(seed)
    write_encoder(folder)
    for split, count in (("train", train), ("valid", valid), ("test", 4)):
        lines = []
        for _ in range(count):
            rows = tagged_sentence(rng)
            lines += [word if split == "test" else f"{word}\t{tag}" for word, tag in rows] + [""]
        (folder / f"{split}.tsv").write_text("\n".join(lines), encoding="utf-8")
    return folder


def span_question(name: str, context: str, answer: str | None, question: str = "w1 ?") -> dict[str, Any]:
    """As SQuAD writes it; ``None``: the context has no answer."""
    if answer is None:
        return {"id": name, "question": question, "answers": [], "is_impossible": True}
    return {
        "id": name, "question": question,
        "answers": [{"text": answer, "answer_start": context.index(answer)}],
    }  # fmt: skip


def write_squad(path: Path, *paragraphs: tuple[str, list[dict[str, Any]]]) -> Path:
    """A file with one article."""
    rows = [{"context": context, "qas": questions} for context, questions in paragraphs]
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": rows}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_spans(
    folder: Path, *, train: int = 16, valid: int = 8, impossible: bool = False, seed: int = 0
) -> Path:
    """A span_qa data folder with its tokenizer; the answer follows the word that the question has."""
    rng = np.random.default_rng(seed)
    write_encoder(folder)
    for split, count in (("train", train), ("valid", valid), ("test", 4)):
        paragraphs = []
        for i in range(count):
            words = [VOCABULARY[w] for w in rng.permutation(len(VOCABULARY))[: rng.integers(4, 11)]]
            place = int(rng.integers(len(words) - 2))
            context = " ".join(words)
            answer = " ".join(words[place + 1 : place + 2 + int(rng.integers(2))])
            row = span_question(
                f"{split}-{i}", context, None if impossible and i % 3 == 2 else answer, f"{words[place]} ?"
            )
            if split == "test":
                del row["answers"]
                row.pop("is_impossible", None)
            paragraphs.append((context, [row]))
        write_squad(folder / f"{split}.json", *paragraphs)
    return folder


def write_swag(folder: Path) -> Path:
    """SWAG as it is distributed: two questions for training, one for validation and one without an answer."""
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
    row = '0,lsmdc1,3,w1 w2. w3,w1 w2.,w3,gold,w4.,"w5, w6.",w7.,w8.'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.csv").write_text(f"{head},label\n{row},1\n{row},0\n")
    (folder / "val.csv").write_text(f"{head},label\n{row},2\n")
    (folder / "test.csv").write_text(f"{head}\n{row}\n")
    for split in ("train", "val"):
        (folder / f"{split}_full.csv").write_text("video-id,fold-ind,startphrase,gold-ending\n1,2,w1,w2\n")
    return folder
