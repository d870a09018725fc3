"""Attacks on words in the evidence run: the commands, and the tables of their results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grid
from cells import Cells
from driver import Record, Run
from intervals import interval
from tables import markdown

NAMES = ("deepwordbug", "textfooler", "textbugger", "pwws")
NUMBERS = ("clean", "aua", "suc", "queries", "changed")
NEIGHBOURS = "attack/counterfitted_neighbors.json"
WORDNET = Path("/usr/share/wordnet")  # where Debian's package wordnet-base puts it
_PREFIX = "words-"


def attacks(run: Run, data: Path, wordnet: Path) -> dict[str, list[str]]:
    """The commands that attack a cell's model, by name; none if the grid has none for it."""
    if not grid.has_word_attacks(run):
        return {}
    return {f"{_PREFIX}{name}": _command(run, name, data, wordnet) for name in NAMES}


def _command(run: Run, name: str, data: Path, wordnet: Path) -> list[str]:
    words = [
        "fairseq-adv", "attack", f"{run.name}/checkpoint_last.pt", "--attack", name,
        "--data", attacked_file(run.labels["task"]), "--text", "text", "--label", "label",
        "--tokenizer-dir", "encoder", "--out", f"{run.name}/{_PREFIX}{name}", "--json",
    ]  # fmt: skip
    if name in ("textfooler", "textbugger"):
        words += ["--neighbours", str(data / NEIGHBOURS), "--similarity-encoder", "encoder"]
    if name == "textfooler":
        words += ["--check-short-texts"]  # most reviews are shorter than its window
    return [*words, "--wordnet", str(wordnet)] if name == "pwws" else words


def attacked_file(task: str) -> str:
    """The file of the attacked rows, in the output folder."""
    return f"data/{task}-attacked.tsv"


def split_outcomes(outcomes: Record) -> tuple[Record, Record]:
    """The outcomes of attacks on embeddings, and the numbers of those on words, by the attack's name."""
    on_words = {
        name.removeprefix(_PREFIX): {number: one[number] for number in NUMBERS}
        for name, one in outcomes.items()
        if name.startswith(_PREFIX)
    }
    return {name: one for name, one in outcomes.items() if not name.startswith(_PREFIX)}, on_words


def value(attack: str, number: str) -> Any:
    """A function that takes one of :data:`NUMBERS` from a record."""
    return lambda record: float(record["word_attacks"][attack][number])


def title(attack: str) -> str:
    """An attack's name on pages and in figures."""
    from fairseq_adv.evaluation.word_attacks.settings import TITLES

    return TITLES[attack]


def attacked(cells: Cells, method: str) -> list[Record]:
    """The records of a method's cells that have been attacked."""
    found = cells.of(grid.ATTACKED_TASK, grid.TASKS[grid.ATTACKED_TASK].tuned_rows, method)
    return [record for record in found if record["word_attacks"]]


def mean_accuracy(record: Record) -> float:
    """Accuracy under attack in %, the mean of :data:`NAMES`."""
    return float(statistics.mean(value(name, "aua")(record) for name in NAMES))


def gains(cells: Cells, method: str, number: Callable[[Record], float]) -> list[float]:
    """The differences of a number from ``standard``, with each seed that both have been attacked with."""
    plain = {record["seed"]: number(record) for record in attacked(cells, "standard")}
    return [number(one) - plain[one["seed"]] for one in attacked(cells, method) if one["seed"] in plain]


def tables(cells: Cells) -> list[str]:
    """A table for each attack."""
    heads = [
        "method",
        "seeds",
        "Clean",
        "Aua",
        "difference to `standard`",
        "Suc",
        "#Query",
        "changed words, %",
    ]
    lines: list[str] = []
    for name in NAMES:
        rows = [row for method in grid.ATTACKED if (row := _row(cells, method, name))]
        if rows:
            lines += [f"### {title(name)}", "", f"{_SETTINGS[name]}", "", *markdown(heads, rows)]
    if not lines:
        return []
    told = (
        f"{grid.ATTACKED_TASK}, {grid.TASKS[grid.ATTACKED_TASK].tuned_rows} training rows, 200 test rows. "
        "Clean: accuracy before; Aua: under attack, the higher the better; Suc: share of the attacked "
        "answers that changed; all %. Queries and changed words: means of the attacked, and of those whose "
        "answer changed. No limit of queries or of changed words, parts of speech not compared, TextFooler's "
        "stop words. Papers' numbers come from other resources and limits, and do not compare."
    )
    return ["## Under attacks on words", "", told, "", *lines]


_NEAR = "of the at most 8 counter-fitted neighbours of a word"
_SETTINGS = {
    "deepwordbug": "Words by importance ([UNK]); at most 30 letters changed; sentences not compared.",
    "textfooler": f"Any {_NEAR}; the encoder's angular similarity to the current text at least 0.84 in 15 "
    "words, short texts too.",
    "textbugger": f"Misspellings, letters that look alike, and the first 5 {_NEAR}; the encoder's cosine to "
    "the original text at least 0.8.",
    "pwws": "All synonyms in WordNet 3.0; words by weighted saliency; sentences not compared.",
}


def _row(cells: Cells, method: str, name: str) -> list[str]:
    found = attacked(cells, method)
    if not found:
        return []
    row = [f"`{method}`", str(len(found)), *(_interval(found, name, number) for number in ("clean", "aua"))]
    gained = gains(cells, method, value(name, "aua"))
    row.append(str(interval(gained)) if gained and method != "standard" else "")
    for number in ("suc", "queries", "changed"):
        row.append(f"{statistics.mean(value(name, number)(one) for one in found):.1f}")
    return row


def _interval(found: Sequence[Record], name: str, number: str) -> str:
    return str(interval([value(name, number)(one) for one in found]))
