"""The search, the words and WordNet against TextAttack's records (tests/references/textattack)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_victims import attacked, example
from support import load_script

from fairseq_adv.data.text.word_text import WordText
from fairseq_adv.evaluation.attack_settings import ATTACKS
from fairseq_adv.evaluation.word_attacks.candidates import WordNet
from fairseq_adv.evaluation.word_attacks.resources import LETTERS
from fairseq_adv.evaluation.word_attacks.search import Outcome, Parts, Texts

REFERENCES = Path(__file__).parents[2] / "references" / "textattack"
VICTIM = load_script(REFERENCES / "victim.py")
TEXTS = (REFERENCES / "texts.txt").read_text(encoding="utf-8").splitlines()
STOP_WORDS = frozenset((REFERENCES / "stopwords.txt").read_text(encoding="utf-8").splitlines())
DEBIAN = Path("/usr/share/wordnet")


def records(name: str) -> list[dict[str, Any]]:
    lines = (REFERENCES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


class Asked:
    """A recorded victim, and the texts that it was asked about."""

    def __init__(self, victim: Any) -> None:
        self.victim, self.texts = victim, list[str]()

    def __call__(self, questions: Sequence[tuple[str, Texts]]) -> list[Any]:
        self.texts += [texts[0] for _, texts in questions]
        return [np.array(self.victim.scores(texts[0])) for _, texts in questions]


def test_words_are_textattacks() -> None:
    for record in records("words"):
        words = WordText.of([record["text"]]).words
        assert list(words) == record["words"]
        assert [i for i, word in enumerate(words) if word not in STOP_WORDS] == sorted(record["indices"])


def _agrees(outcome: Outcome, record: dict[str, Any]) -> None:
    assert outcome.status == record["outcome"]
    assert [index for index, _, _ in outcome.text.changed()] == record["changed"]
    assert outcome.after == pytest.approx(record["final_scores"][record["label"]], abs=1e-11)
    assert outcome.before == pytest.approx(record["scores"][record["label"]], abs=1e-11)


def test_deepwordbug_changes_the_words_that_textattack_does() -> None:
    """With the recorded misspellings, so that the limit of edits binds where it did."""
    compared = {"skipped": 0, "failed": 0, "succeeded": 0}
    for record in records("deepwordbug"):
        spellings = {step["word"]: step["candidates"] for step in record["steps"]}
        text = WordText.of([record["text"]])
        by_word: dict[str, list[list[str]]] = {}
        for place in [step["word"] for step in record["steps"]]:
            by_word.setdefault(text.words[place], []).append(spellings[place])

        def recorded(word: str, _: Any, by_word: dict[str, list[list[str]]] = by_word) -> list[str]:
            return by_word[word].pop(0) if by_word.get(word) else []

        victim = VICTIM.victims(TEXTS)[record["victim"]]
        settings = replace(ATTACKS["deepwordbug"], max_edits=0)  # the record holds what passed it
        parts = Parts(settings, Asked(victim), [recorded], stop_words=STOP_WORDS)
        (outcome,) = attacked([example(record["text"], record["label"])], parts)
        _agrees(outcome, record)
        assert outcome.queries == record["num_queries"]
        assert outcome.rows <= record["model_rows"]
        compared[record["outcome"]] += 1
    assert min(compared.values()) > 5


def test_deepwordbug_with_its_own_misspellings_ends_alike() -> None:
    """All misspelled words are unknown to the victim: the same words change, for as many queries if each has
    four candidates.
    """
    alike = queries = 0
    for record in records("deepwordbug"):
        if record["victim"] == "stubborn":  # its limit of edits binds, and depends on the letters
            continue
        victim = VICTIM.victims(TEXTS)[record["victim"]]
        sources = [LETTERS[name] for name in ATTACKS["deepwordbug"].sources]
        parts = Parts(ATTACKS["deepwordbug"], Asked(victim), sources, stop_words=STOP_WORDS)
        (outcome,) = attacked([example(record["text"], record["label"])], parts)
        _agrees(outcome, record)
        alike += 1
        queries += outcome.queries == record["num_queries"]
    assert alike > 60 and queries > 0.6 * alike


@pytest.fixture(scope="module")
def wordnet() -> WordNet:
    """WordNet 3.0."""
    if not (DEBIAN / "index.noun").is_file():
        pytest.skip("needs WordNet's files (Debian's package wordnet-base)")
    return WordNet(DEBIAN)


def test_synonyms_are_those_of_nltk(wordnet: WordNet) -> None:
    found = records("wordnet")
    assert len(found) > 100
    for record in found:
        assert wordnet.synonyms(record["word"]) == sorted(record["candidates"]), record["word"]


def _ties(record: dict[str, Any]) -> bool:
    """Whether two words are equally important, so that TextAttack's order is a matter of its sort."""
    text = WordText.of([record["text"]])
    attacked_words = [word.lower() for word in text.words if word not in STOP_WORDS]
    return len(set(attacked_words)) < len(attacked_words)


def test_pwws_is_textattacks() -> None:
    """From the recorded synonyms, which :func:`test_synonyms_are_those_of_nltk` compares."""
    compared = {"skipped": 0, "failed": 0, "succeeded": 0}
    synonyms = {record["word"]: sorted(record["candidates"]) for record in records("wordnet")}
    for record in records("pwws"):
        asked = Asked(VICTIM.victims()[record["victim"]])
        parts = Parts(ATTACKS["pwws"], asked, [lambda word, _: synonyms[word]], stop_words=STOP_WORDS)
        (outcome,) = attacked([example(record["text"], record["label"])], parts)
        _agrees(outcome, record)
        assert outcome.text.texts()[0] == record["final_text"] or _ties(record)
        assert outcome.queries == record["num_queries"] or _ties(record)
        assert len(asked.texts) == len(set(asked.texts)) == outcome.rows <= record["model_rows"]
        compared[record["outcome"]] += 1
    assert min(compared.values()) > 5
