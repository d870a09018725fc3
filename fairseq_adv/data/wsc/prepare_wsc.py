"""Adds candidates to each line of SuperGLUE's WSC files, so that training needs no spaCy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.errors import no_file
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.tables.split_files import files_of_splits
from fairseq_adv.data.workspace import Prepared, finished, workspace
from fairseq_adv.data.wsc.noun_phrases import MODEL, candidates_for
from fairseq_adv.data.wsc.superglue import PronounExample, read_wsc
from fairseq_adv.data.wsc.wnli import examples_from_wnli

FORMAT_VERSION = 1


def prepare_wsc(
    inputs: Sequence[Path],
    out: Path,
    source: str = "noun-phrases",
    model: str = MODEL,
    overwrite: bool = False,
) -> Prepared:
    """Writes ``out/{train,valid,test}.jsonl``: the lines of the inputs, each with its ``candidates``.

    Args:
        inputs: jsonl files with train, val (or valid, dev) or test in their names, or folders with such
            files; or WNLI's tsv files, whose rows are converted to examples.
        source: where candidates come from: :func:`fairseq_adv.data.wsc.noun_phrases.candidates_for`.
    """
    files = files_of_splits(inputs, (".jsonl", ".tsv"))
    for path in files.values():
        if not path.is_file():
            raise no_file(path)
    made_from = {
        "format": FORMAT_VERSION,
        "candidates": source,
        "spacy model": None if source == "spans" else model,
        "inputs": {split: sha256_of(path) for split, path in files.items()},
    }
    result = Prepared("wsc", out)
    if finished(out, made_from, overwrite):
        result.reused = True
    else:
        with workspace(out, made_from) as folder:
            for split, path in files.items():
                _write(path, folder / f"{split}.jsonl", source, model)
    for split in files:
        counts = [len(example.candidates or ()) for example in read_wsc(out / f"{split}.jsonl")]
        result.rows[split], mean = len(counts), sum(counts) / len(counts)
        result.details.append(
            f"  {split}: {len(counts)} examples, {mean:.1f} candidates each, {counts.count(0)} without any"
        )
    return result


def _write(path: Path, target: Path, source: str, model: str) -> None:
    # Check all lines before writing the first.
    if path.suffix == ".tsv":
        examples = examples_from_wnli(path)
        rows = [_row_of(example) for example in examples]
    else:
        examples = read_wsc(path)
        rows = [row for _, row in json_lines(path)]
    bar = tqdm(
        zip(rows, candidates_for(examples, source, model)), total=len(examples), desc=target.name, unit="line"
    )
    with open(target, "w", encoding="utf-8") as file:
        for row, candidates in bar:
            # ASCII: keys that nothing reads may have half a surrogate pair.
            file.write(json.dumps({**row, "candidates": candidates}) + "\n")


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
