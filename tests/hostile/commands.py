"""What a person types to have a checkpoint read, whoever made it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

# Each makes the words of the folder with data and encoder, and the checkpoint.
VERBS: dict[str, Callable[[Path, Path], list[object]]] = {
    "predict --stdin": lambda films, bad: ["predict", bad, "--stdin"],
    "predict --input": lambda films, bad: [
        "predict", bad, "--input", films / "raw" / "dev.tsv", "--text", "sentence",
    ],
    "predict --data": lambda films, bad: [
        "predict", bad, "--data", films / "data", "--out", bad.parent / "out",
    ],
    "predict --task": lambda films, bad: [
        "predict", bad, "--data", films / "data", "--out", bad.parent / "out", "--task", "SST-2",
    ],
    "validate": lambda films, bad: ["validate", bad],
    "attack": lambda films, bad: ["attack", bad, "--epsilon", "0.1"],
    "compare": lambda films, bad: ["compare", bad.parent],
    "compare --epsilon": lambda films, bad: ["compare", bad.parent, "--epsilon", "0.1"],
    "figures noise": lambda films, bad: ["figures", "noise", bad, bad.parent / "figure", "--stds", "0,0.1"],
    "figures checkpoints": lambda films, bad: ["figures", "checkpoints", bad, bad.parent / "figure"],
    "export": lambda films, bad: ["export", bad, bad.parent / "hf"],
}  # fmt: skip
