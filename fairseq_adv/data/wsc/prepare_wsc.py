"""Adds candidates to each line of SuperGLUE's WSC files, so that training needs no spaCy."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.tables.split_files import files_of_splits
from fairseq_adv.data.workspace import finished, workspace
from fairseq_adv.data.wsc.noun_phrases import MODEL, noun_phrases, other_phrases, parse
from fairseq_adv.data.wsc.superglue import PronounExample, read_wsc
from fairseq_adv.data.wsc.wnli import examples_from_wnli

FORMAT_VERSION = 1


@dataclass
class PreparedWsc:
    """The result of :func:`prepare_wsc`."""

    out: Path
    reused: bool = False  # nothing was done, because ``out`` was complete and made from the same input
    rows: dict[str, int] = field(default_factory=dict)  # the number of examples of each split
    bare: dict[str, int] = field(default_factory=dict)  # the number of examples without candidates
    candidates: dict[str, int] = field(default_factory=dict)  # the total number of candidates of each split


def prepare_wsc(
    inputs: Sequence[Path],
    out: Path,
    source: str = "noun-phrases",
    model: str = MODEL,
    overwrite: bool = False,
) -> PreparedWsc:
    """Writes ``out/{train,valid,test}.jsonl``: the lines of the inputs, each with its ``candidates``.

    Args:
        inputs: jsonl files with train, val (or valid, dev) or test in their names, or folders with such
            files; or WNLI's tsv files, whose rows are converted to examples.
        source: where candidates come from. ``noun-phrases``: spaCy, as in fairseq. ``spans``: the queries
            that other lines of the same file list for the same text; labels are not used. ``both``: first
            noun phrases, then spans. No candidate overlaps the line's own query.
    """
    files = files_of_splits(inputs, (".jsonl", ".tsv"))
    for path in files.values():
        if not path.is_file():
            raise DataError(f"{path}: no such file")
    made_from = {
        "format": FORMAT_VERSION,
        "candidates": source,
        "spacy model": None if source == "spans" else model,
        "inputs": {split: sha256_of(path) for split, path in files.items()},
    }
    result = PreparedWsc(out)
    if finished(out, made_from, overwrite):
        result.reused = True
    else:
        with workspace(out, made_from) as folder:
            for split, path in files.items():
                _write(path, folder / f"{split}.jsonl", source, model)
    for split in files:
        counts = [len(example.candidates) for example in read_wsc(out / f"{split}.jsonl")]
        result.rows[split], result.candidates[split] = len(counts), sum(counts)
        result.bare[split] = counts.count(0)
    return result


def candidates_for(
    examples: Sequence[PronounExample], source: str = "noun-phrases", model: str = MODEL
) -> Iterator[tuple[str, ...]]:
    """Each example's candidates, in order; see :func:`prepare_wsc`."""
    parsed = parse((example.text for example in examples), model) if source != "spans" else None
    spans = _spans(examples) if source != "noun-phrases" else {}
    for example in examples:
        phrases = noun_phrases(next(parsed)) if parsed is not None else []
        phrases += spans.get(_words(example.text), [])
        yield other_phrases(phrases, example.query)


def _write(path: Path, target: Path, source: str, model: str) -> None:
    # Check all lines before writing the first.
    if path.suffix == ".tsv":
        examples = examples_from_wnli(path)
        rows = [_row_of(example) for example in examples]
    else:
        examples = read_wsc(path, with_candidates=False)
        rows = [row for _, row in json_lines(path)]
    bar = tqdm(
        zip(rows, candidates_for(examples, source, model)), total=len(examples), desc=target.name, unit="line"
    )
    with open(target, "w", encoding="utf-8") as file:
        for row, candidates in bar:
            file.write(json.dumps({**row, "candidates": candidates}, ensure_ascii=False) + "\n")


def _row_of(example: PronounExample) -> dict[str, Any]:
    """The example as a line in SuperGLUE's format."""
    row: dict[str, Any] = {
        "text": example.text,
        "target": {
            "span1_text": example.query,
            "span2_text": example.pronoun,
            "span2_index": example.prefix.count(" "),
        },
        "idx": int(example.id),
    }
    return row if example.label is None else {**row, "label": example.label}


def _spans(examples: Sequence[PronounExample]) -> dict[str, list[str]]:
    """All queries of each text."""
    spans: dict[str, list[str]] = defaultdict(list)
    for example in examples:
        if example.query is not None:
            spans[_words(example.text)].append(example.query)
    return spans


def _words(text: str) -> str:
    # The same text is "Adam , who" in some lines and "Adam, who" in others.
    return " ".join(re.findall(r"\w+", text.casefold()))
