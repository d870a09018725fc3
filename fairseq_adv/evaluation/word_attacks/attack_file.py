"""Attacks the examples of a file; an interrupted attack resumes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_adv.data.checked_json import (
    COUNT,
    SIZE,
    TEXT,
    TEXTS,
    FieldType,
    checked_object,
    json_object_or_none,
)
from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import atomic_write, locked, sha256_of
from fairseq_adv.data.temperature import read_thresholds
from fairseq_adv.data.workspace import differences
from fairseq_adv.evaluation.attack_settings import Settings, Variants
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.loading import load
from fairseq_adv.evaluation.predict.text_model import TextModel
from fairseq_adv.evaluation.word_attacks.report import page, summary
from fairseq_adv.evaluation.word_attacks.resources import Resources, build, check
from fairseq_adv.evaluation.word_attacks.schedule import run_together
from fairseq_adv.evaluation.word_attacks.search import (
    NO_CANDIDATES,
    NOTHING,
    SKIPPED,
    STATUS,
    Example,
    Outcome,
    Search,
    search,
)
from fairseq_adv.evaluation.word_attacks.victim import (
    Attacked,
    AttackedFile,
    Victim,
    read_change,
    read_examples,
    try_variants,
)

logger = logging.getLogger(__name__)
EXAMPLES, SUMMARY, PAGE = "examples.jsonl", "summary.json", "changes.html"
_PART, _SETTINGS = "examples.jsonl.part", "settings.json"
_STATUS = (", ".join(STATUS), lambda value: value in STATUS)
_PAIRS = ("a list of pairs of texts", lambda value: _are_all(value, 2, TEXT))
_PLACES = ("a list of three numbers each", lambda value: _are_all(value, 3, COUNT))
_KINDS = {
    "id": TEXT, "label": TEXT, "predicted": TEXT, "status": _STATUS, "why": TEXT, "names": TEXTS,
    "original": TEXTS, "changed": TEXTS, "words": COUNT, "changes": _PAIRS, "places": _PLACES,
    "queries": COUNT, "rows": COUNT, "before": SIZE, "after": SIZE,
}  # fmt: skip
_FIX = "Delete the folder and attack again."


@dataclass(frozen=True)
class Request:
    """An attack."""

    checkpoint: Path
    file: AttackedFile
    out: Path  # the folder for the results
    settings: Settings | Variants
    resources: Resources
    at_once: int = 32  # examples attacked at the same time
    data: Path | None = None  # the model's training data, if it has moved
    inference: InferenceConfig = field(default_factory=InferenceConfig)


def attack_file(request: Request, model: Callable[[], TextModel] | None = None) -> dict[str, Any]:
    """Attacks, and writes ``examples.jsonl``, ``summary.json`` and ``changes.html`` into ``request.out``.

    Args:
        model: loads the request's model; ``None``: it is loaded here.

    Until all examples are done, results are in ``examples.jsonl.part``; the same request resumes from there.

    Returns:
        the summary: see :func:`fairseq_adv.evaluation.word_attacks.report.summary`.

    Raises:
        DataError: something can't be read or doesn't match, or the folder has the results of another request.
    """
    out = request.out
    if isinstance(request.settings, Settings):
        check(request.settings, request.resources)
    made_from = _made_from(request)
    out.mkdir(parents=True, exist_ok=True)
    try:
        with full_disk_named(out), locked(out / EXAMPLES):
            _check_folder(out, made_from)
            records = _kept(out / EXAMPLES) or _attacked(
                request, made_from, model or partial(load_model, request)
            )
            results = summary(request.settings, made_from, records)
            atomic_write(out / PAGE, page(results, records))
            atomic_write(out / SUMMARY, json.dumps(results, indent=2) + "\n")
    finally:
        with suppress(OSError):  # it has results
            out.rmdir()
    return results


def load_model(request: Request) -> TextModel:
    """The model of a request."""
    return load(request.checkpoint, data=request.data, how=request.inference)


def _attacked(
    request: Request, made_from: Mapping[str, Any], load_it: Callable[[], TextModel]
) -> list[dict[str, Any]]:
    """Attacks all examples; stores and returns their records."""
    out, part, settings, model = request.out, request.out / _PART, request.settings, load_it()
    examples = read_examples(request.file, model)
    if bare := sum(not one.example.text.words for one in examples):
        if bare == len(examples):
            raise DataError(f"{request.file.path}: no example has a word to change. Pass another --side.")
        logger.warning("%d of %d examples have no word to change: they can't be fooled", bare, len(examples))
    victim = Victim(model, examples)
    # What the model can't read is told before anything is written.
    victim([(one.example.id, one.example.text.originals) for one in examples])
    if isinstance(settings, Settings):
        start = partial(search, parts=build(settings, request.resources, victim, request.inference.device))
    else:
        change = read_change(request.file, model, settings, request.resources)
        start = partial(try_variants, settings=settings, victim=victim, change=change)
    atomic_write(out / _SETTINGS, json.dumps(made_from, indent=2) + "\n")
    records = _attack(examples, start, part, request.at_once, settings.attack)
    tried = [record for record in records if record["status"] != SKIPPED]
    same = sum(record["why"] in (NOTHING, NO_CANDIDATES) for record in tried)
    if same and same == len(tried):
        fix = "Leave it out" if isinstance(settings, Variants) else "Pass others, or another --attack"
        raise DataError(f"{request.file.path}: {settings.attack} changes nothing in these texts. {fix}.")
    if same > sum(not record["words"] for record in tried):
        logger.warning("%s changes nothing in %d of %d examples", settings.attack, same, len(tried))
    atomic_write(out / EXAMPLES, "".join(map(_line, records)))
    part.unlink(missing_ok=True)
    return records


def _made_from(request: Request) -> dict[str, Any]:
    """Everything that the results depend on."""
    file = {name: value for name, value in asdict(request.file).items() if name != "path"}
    for later in ("more_labels", "label_separator", "only_class"):  # left out: as before there were these
        if not file[later]:
            del file[later]
    given = request.checkpoint
    named = {**asdict(request.resources), "tokenizer": request.inference.tokenizer_dir}
    return {
        "checkpoint": _digest(given) if given.is_dir() else sha256_of(given),
        "file": {"sha256": sha256_of(request.file.path), **file},
        "settings": request.settings.as_json(),
        "resources": {name: _digest(path) for name, path in named.items() if path is not None},
        "fp16": request.inference.fp16,
        **({"thresholds": thresholds} if (thresholds := read_thresholds(request.checkpoint)) else {}),
        **({} if request.inference.precision == "fp32" else {"precision": request.inference.precision}),
    }


def _digest(path: Path) -> dict[str, str]:
    """The SHA-256 of a resource's files; missing files are reported where they are read."""
    files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    return {one.name: sha256_of(one) for one in files if one.is_file()}


def _check_folder(out: Path, made_from: Mapping[str, Any]) -> None:
    kept = json_object_or_none(out / _SETTINGS)
    if kept is None:
        odd = next((name for name in (EXAMPLES, _PART, SUMMARY) if (out / name).exists()), None)
        if odd is not None:
            raise DataError(f"{out / odd}: is from an attack with unknown settings. Pass another --out.")
    elif differing := differences(made_from, kept):
        raise DataError(
            f"{out}: has an attack with a different {', '.join(differing)}. Pass another --out, or remove it."
        )


def _attack(
    examples: Sequence[Attacked], start: Callable[[Example], Search], part: Path, at_once: int, title: str
) -> list[dict[str, Any]]:
    """The records of all examples, in the file's order; those in ``part`` are not computed again."""
    done = {record["id"]: record for record in _kept(part)}
    todo = [n for n, one in enumerate(examples) if one.example.id not in done]
    searches = ((n, start(examples[n].example)) for n in todo)
    with open(part, "a", encoding="utf-8") as kept, tqdm(
        total=len(examples), initial=len(done), desc=title, unit="example"
    ) as bar:  # fmt: skip
        for number, outcome in run_together(searches, at_once):
            record = _record(examples[number], outcome)
            done[record["id"]] = record
            kept.write(_line(record))
            kept.flush()
            bar.update()
    return [done[one.example.id] for one in examples]


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _kept(file: Path) -> list[dict[str, Any]]:
    """The complete lines of a file of records, if it exists; a partial line left by a kill is removed."""
    if not file.is_file():
        return []
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        atomic_write(file, whole)
    lines = whole.decode("utf-8", "replace").split("\n")[:-1]
    return [checked_object(line, _KINDS, f"{file}:{number}", _FIX) for number, line in enumerate(lines, 1)]


def _are_all(value: Any, length: int, field_type: FieldType) -> bool:
    """Whether it is a list of lists of this length."""
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == length and all(map(field_type[1], one)) for one in value
    )


def _record(attacked: Attacked, outcome: Outcome) -> dict[str, Any]:
    """A line of the results; includes texts that can't change."""
    example, answers = attacked.example, attacked.answers
    changed = outcome.text.changed()
    return {
        "id": example.id, "label": answers[example.gold], "predicted": answers[outcome.predicted],
        "status": outcome.status, "why": outcome.why, "names": list(attacked.names),
        "original": list(example.text.originals), "changed": list(outcome.text.texts()),
        "words": len(example.text.words), "changes": [[before, after] for _, before, after in changed],
        "places": [list(outcome.text.places[index]) for index, _, _ in changed],
        "before": round(outcome.before, 6), "after": round(outcome.after, 6),
        "queries": outcome.queries, "rows": outcome.rows,
    }  # fmt: skip
