"""Finds candidates, the other phrases that a pronoun could refer to: noun phrases, with spaCy.

Like fairseq's ``examples/roberta/wsc/wsc_utils.py`` (``extended_noun_chunks``, ``filter_noun_chunks``), but
for spaCy 3, which no longer has the lemma ``-PRON-``; pronouns are found by their part of speech. spaCy and
its model are optional and loaded when the first text is parsed. ``prepare wsc`` adds the candidates to each
line of SuperGLUE's files, so that training needs no spaCy.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.errors import DataError, no_file
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.tables.split_files import files_of_splits
from fairseq_adv.data.workspace import Prepared, finished, workspace
from fairseq_adv.data.wsc.superglue import PronounExample, read_wsc
from fairseq_adv.data.wsc.wnli import examples_from_wnli

MODEL = "en_core_web_lg"  # fairseq's
_ELSEWHERE = (
    "Or run fairseq-adv prepare wsc on a machine that has them: the files it writes contain the candidates, "
    "and need no spaCy. Without a model, --candidates spans uses the phrases that the data itself lists "
    "for the same text."
)


def candidates_for(
    examples: Sequence[PronounExample], source: str = "noun-phrases", model: str = MODEL
) -> Iterator[tuple[str, ...]]:
    """The candidates of each example, in order; none overlaps its own query.

    Args:
        source: ``noun-phrases``: spaCy, as in fairseq. ``spans``: the queries that other examples list for
            the same text; labels are not used. ``both``: first noun phrases, then spans.
        model: the spaCy pipeline; not needed for ``spans``.
    """
    parsed = parse((example.text for example in examples), model) if source != "spans" else None
    spans = _spans(examples) if source != "noun-phrases" else {}
    for example in examples:
        phrases = noun_phrases(next(parsed)) if parsed is not None else []
        phrases += spans.get(_words(example.text), [])
        yield other_phrases(phrases, example.query)


def with_candidates(examples: Sequence[PronounExample], model: str = MODEL) -> list[PronounExample]:
    """The examples; those whose lines don't say theirs get the noun phrases of the text as candidates."""
    bare = [example for example in examples if example.candidates is None]
    if not bare:
        return list(examples)
    try:
        phrases = candidates_for(bare, model=model)
        return [replace(one, candidates=next(phrases)) if one.candidates is None else one for one in examples]
    except DataError as error:
        raise DataError(f"{bare[0].where}: no candidates, and {error}") from error


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


@lru_cache(maxsize=2)
def load_pipeline(model: str = MODEL) -> Any:
    """The spaCy pipeline of this name (an installed package, or a folder)."""
    try:
        return importlib.import_module("spacy").load(model)
    except (OSError, ImportError) as error:  # spaCy raises OSError for an unknown model
        reason = str(error).splitlines()[0]
        raise DataError(
            f"finding noun phrases needs spaCy and its model {model!r}, which can't be loaded ({reason}). "
            f"Run pip install 'fairseq_adv[wsc]', then python -m spacy download {model}. {_ELSEWHERE}"
        ) from error


def parse(texts: Iterable[str], model: str = MODEL) -> Iterator[Any]:
    """One parsed ``spacy.tokens.Doc`` per text, in order."""
    pipeline = load_pipeline(model)
    for doc in pipeline.pipe(texts):
        if len(doc) and not (doc.has_annotation("POS") and doc.has_annotation("DEP")):
            raise DataError(
                f"spaCy's model {model!r} gives no parts of speech or no dependencies, which noun phrases "
                f"need. Choose one with a tagger and a parser, such as {MODEL}."
            )
        yield doc


def noun_phrases(doc: Any) -> list[str]:
    """spaCy's noun chunks and the maximal runs of nouns or of proper nouns, in the order of the text.

    Phrases that consist of pronouns are left out. Duplicates are kept.
    """
    spans = {(chunk.start, chunk.end) for chunk in doc.noun_chunks} | set(_noun_runs(doc))
    phrases = [doc[start:end] for start, end in sorted(spans)]
    texts = [" ".join(span.text.split()) for span in phrases if any(token.pos_ != "PRON" for token in span)]
    return [text for text in texts if text]


def other_phrases(phrases: Iterable[str], query: str | None) -> tuple[str, ...]:
    """The phrases that don't overlap the query, without duplicates, in order.

    Two phrases overlap if one is a substring of the other, ignoring case, as in fairseq. Duplicates are also
    found ignoring case (fairseq keeps them; they would then count twice in the cross-entropy).

    Args:
        query: the phrase that the pronoun may refer to; ``None``: only remove duplicates.
    """
    kept: dict[str, str] = {}
    asked = None if query is None else query.casefold()
    for phrase in phrases:
        folded = phrase.casefold()
        if asked is None or (folded not in asked and asked not in folded):
            kept.setdefault(folded, phrase)
    return tuple(kept.values())


def _noun_runs(doc: Any) -> Iterator[tuple[int, int]]:
    """(start, end) of each maximal run of nouns, or of proper nouns."""
    for part_of_speech, run in groupby(doc, key=lambda token: token.pos_):
        tokens = list(run)
        if part_of_speech in ("NOUN", "PROPN"):
            yield tokens[0].i, tokens[-1].i + 1


# ---- files with candidates


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
