"""What a person types to have a checkpoint read, whoever made it; and how a command refuses one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from support import CommandMain

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
    "attack": lambda films, bad: ["attack", bad, "--epsilon", "0.1", "--relative"],
    "compare --epsilon": lambda films, bad: ["compare", bad.parent, "--epsilon", "0.1", "--relative"],
    "export": lambda films, bad: ["export", bad, bad.parent / "hf"],
}  # fmt: skip


def refusal(run: CommandMain, place: Path, *words: object) -> str:
    """The line with which a command ends, in time; ``place`` is left as it was, without canary or output."""
    there = sorted(place.rglob("*"))
    begun = time.process_time()  # of this process, in which it runs: others may keep the machine busy
    done = run(*words)
    assert time.process_time() - begun < 10
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    line = str(done.stderr.splitlines()[-1])
    assert line.startswith("error: ") and len(line) < 1000, line
    assert sorted(place.rglob("*")) == there
    return line
