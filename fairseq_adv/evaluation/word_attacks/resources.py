"""The resources of an attack: tables, WordNet, encoders, a tagger, stop words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines, whole
from fairseq_adv.evaluation.attack_settings import Settings
from fairseq_adv.evaluation.word_attacks import candidates
from fairseq_adv.evaluation.word_attacks.candidates import Neighbours, Source, WordNet
from fairseq_adv.evaluation.word_attacks.encoders import MaskedLMCandidates, SentenceVectors, TextEncoder
from fairseq_adv.evaluation.word_attacks.schedule import Service
from fairseq_adv.evaluation.word_attacks.search import Parts

Tagger = Callable[["list[str]"], "list[str]"]
LETTERS: dict[str, Source] = {
    "swapped": candidates.swapped_letters,
    "substituted": candidates.substituted_letter,
    "deleted": candidates.deleted_letter,
    "inserted": candidates.inserted_letter,
    "swapped_inside": partial(candidates.swapped_letters, inside=True),
    "deleted_inside": partial(candidates.deleted_letter, inside=True),
    "inserted_blank": candidates.inserted_blank,
    "lookalikes": candidates.lookalikes,
}
_TAGGER = "averaged_perceptron_tagger_eng"
_STOP_WORDS = Path(__file__).with_name("stop_words.txt")
# Maps the Penn Treebank's tags to the universal ones (Petrov et al., 2012): by tag, or its first two letters.
_UNIVERSAL = {
    "NN": "NOUN", "VB": "VERB", "MD": "VERB", "JJ": "ADJ", "RB": "ADV", "WRB": "ADV", "PRP": "PRON",
    "WP": "PRON", "DT": "DET", "EX": "DET", "PDT": "DET", "WDT": "DET", "IN": "ADP", "CC": "CONJ",
    "CD": "NUM", "POS": "PRT", "RP": "PRT", "TO": "PRT",
}  # fmt: skip


@dataclass(frozen=True)
class Resources:
    """Paths; ``None`` if there is none."""

    neighbours: Path | None = None  # a table, JSON
    wordnet: Path | None = None  # WordNet's folder
    masked_lm: Path | None = None  # an encoder's folder, or a pre-training checkpoint
    similarity_encoder: Path | None = None  # likewise; without one, sentences are not compared
    tagger: Path | None = None  # nltk's perceptron tagger; without one, parts of speech are not compared
    stop_words: Path | None = None  # a file with one word per line; ``None``: TextFooler's list
    # for appended words: a word or phrase on each line, or texts with the columns of the attacked ones
    append_words: Path | None = None
    append_texts: Path | None = None


def build(settings: Settings, resources: Resources, victim: Service, device: torch.device) -> Parts:
    """Builds an attack from resources that :func:`check` has accepted."""
    sources = [_source(name, settings, resources) for name in settings.sources if name != "masked_lm"]
    encoder = masked_lm = None
    if resources.masked_lm is not None:
        masked_lm = MaskedLMCandidates(resources.masked_lm, device)
    if resources.similarity_encoder is not None:
        encoder = SentenceVectors(TextEncoder(resources.similarity_encoder, device))
    tagger = None if resources.tagger is None else _tagger(resources.tagger)
    stop_words = frozenset(text_lines(resources.stop_words or _STOP_WORDS))
    return Parts(settings, victim, sources, masked_lm, encoder, tagger, stop_words)


def check(settings: Settings, resources: Resources) -> None:
    """Raises DataError if the attack needs a resource that is missing, or does not use one that is given."""
    for name in ("neighbours", "wordnet", "masked_lm", "tagger"):
        option, is_given = "--" + name.replace("_", "-"), getattr(resources, name) is not None
        is_needed = name in settings.sources
        if is_needed and not is_given:
            raise DataError(f"--attack {settings.attack} needs {option}")
        if is_given and not (is_needed or (name == "tagger" and settings.part_of_speech)):
            raise DataError(f"{option}: --attack {settings.attack} doesn't use it. Leave it out.")


def _source(name: str, settings: Settings, resources: Resources) -> Source:
    if name in LETTERS:
        return LETTERS[name]
    if name == "neighbours":
        assert resources.neighbours is not None  # checked
        return Neighbours(resources.neighbours, settings.candidates)
    assert resources.wordnet is not None  # checked
    wordnet = WordNet(resources.wordnet)
    return lambda word, _: wordnet.synonyms(word)[: settings.candidates or None]


def _tagger(folder: Path) -> Tagger:
    """nltk's averaged perceptron, with the Penn Treebank's tags converted to universal ones."""
    try:
        from nltk.tag.perceptron import PerceptronTagger
    except ImportError as error:
        raise DataError("--tagger needs nltk: pip install 'fairseq_adv[attacks]'") from error
    tagger = PerceptronTagger(load=False)
    try:  # nltk itself only reads these from its own folders, and doesn't check them
        parts = [folder / f"{_TAGGER}.{part}.json" for part in ("weights", "tagdict", "classes")]
        weights, known, classes = (json.loads(whole(part)) for part in parts)
        if not (isinstance(weights, dict) and isinstance(known, dict) and classes):
            raise ValueError("two tables and a list were expected")
        tagger.decode_json_params([weights, known, classes])
        tagger.tag(["a", "word"])
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise DataError(
            f"{folder}: not the folder of nltk's {_TAGGER} ({error!s:.200}). Download it again, and "
            "pass it as --tagger."
        ) from error

    @lru_cache(maxsize=1 << 16)
    def tags(words: tuple[str, ...]) -> list[str]:
        return [_universal(tag) for _, tag in tagger.tag(list(words))]

    return lambda words: tags(tuple(words))


def _universal(tag: str) -> str:
    if not tag[:1].isalpha():
        return "."
    return _UNIVERSAL.get(tag.rstrip("$"), _UNIVERSAL.get(tag[:2], "X"))
