"""Noun phrases: on parses written by hand, which spaCy's own code reads like those of a model."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.wsc.noun_phrases import (
    load_pipeline,
    noun_phrases,
    other_phrases,
    parse,
    with_candidates,
)
from fairseq_adv.data.wsc.superglue import PronounExample, read_wsc

pytestmark = pytest.mark.fast

# word, part of speech, head, relation
SENTENCE = [
    ("He", "PRON", 1, "nsubj"), ("put", "VERB", 1, "ROOT"), ("his", "PRON", 5, "poss"),
    ("old", "ADJ", 5, "amod"),
    ("apple", "NOUN", 5, "compound"), ("pie", "NOUN", 1, "dobj"), ("in", "ADP", 1, "prep"),
    ("Mark", "PROPN", 8, "compound"), ("Twain", "PROPN", 10, "poss"), ("'s", "PART", 8, "case"),
    ("box", "NOUN", 6, "pobj"), (".", "PUNCT", 1, "punct"),
]  # fmt: skip


@pytest.fixture
def doc() -> Any:
    spacy = pytest.importorskip("spacy", reason="needs spaCy (pip install 'fairseq_adv[wsc]')")
    words, tags, heads, relations = zip(*SENTENCE)
    return spacy.tokens.Doc(
        spacy.blank("en").vocab, words=list(words), pos=list(tags), heads=list(heads), deps=list(relations)
    )


def test_chunks_and_runs_without_pronouns(doc: Any) -> None:
    # "He" is a chunk too, but a pronoun; "apple pie", "Mark Twain" and "box" are runs of nouns inside chunks.
    expected = ["his old apple pie", "apple pie", "Mark Twain", "Mark Twain 's box", "box"]
    assert noun_phrases(doc) == expected


def test_a_run_ends_where_the_kind_of_noun_changes(doc: Any) -> None:
    doc[4].pos_ = "PROPN"
    assert noun_phrases(doc)[1:3] == ["apple", "pie"]


def test_what_overlaps_the_query_goes() -> None:
    phrases = ["The box", "a pie", "Pie", "Mark", "the BOX", "apple pie"]
    assert other_phrases(phrases, "the pie") == ("The box", "a pie", "Mark", "apple pie")
    assert other_phrases(phrases, "pie") == ("The box", "Mark")
    assert other_phrases(phrases, None) == ("The box", "a pie", "Pie", "Mark", "apple pie")


def test_without_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    load_pipeline.cache_clear()
    with pytest.raises(DataError, match=r"needs spaCy.*pip install 'fairseq_adv\[wsc\]'.*prepare wsc"):
        load_pipeline()


def test_from_a_model_to_candidates(doc: Any, tmp_path: Any) -> None:
    """A pipeline on disk that gives the parse above, through spaCy's loading and pipe."""
    import spacy
    from spacy.language import Language

    @Language.component("parse_by_hand")
    def parse_by_hand(text: Any) -> Any:
        for token, (_, tag, head, relation) in zip(text, SENTENCE):
            token.pos_, token.dep_, token.head = tag, relation, text[head]
        return text

    pipeline = spacy.blank("en")
    pipeline.add_pipe("parse_by_hand")
    pipeline.to_disk(tmp_path / "model")
    row = {"text": doc.text, "target": {"span1_text": "Mark", "span2_text": "his", "span2_index": 2}}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    (found,) = with_candidates(read_wsc(tmp_path / "train.jsonl"), str(tmp_path / "model"))
    assert found.candidates == ("his old apple pie", "apple pie", "box")


def test_a_model_that_parses_nothing(tmp_path: Any) -> None:
    spacy = pytest.importorskip("spacy", reason="needs spaCy (pip install 'fairseq_adv[wsc]')")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(DataError, match="gives no parts of speech or no dependencies"):
        list(parse(["He is here."], str(tmp_path / "blank")))


def test_without_candidates_and_without_a_model() -> None:
    """A list that is empty needs none."""
    example = PronounExample("0", "The cup fell as ", "it", " broke.", "the cup", (), None, "a.jsonl:1")
    assert with_candidates([example]) == [example]
    bare = replace(example, candidates=None, where="a.jsonl:2")
    with pytest.raises(DataError, match=r"a\.jsonl:2: no candidates, and .*wsc.*prepare wsc"):
        with_candidates([example, bare], "no_such_model")
