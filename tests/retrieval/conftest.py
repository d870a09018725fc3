"""Fixtures of the tests of retrieval."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # bm25.py, retrieval_samples.py

pytest.importorskip("tantivy", reason="needs tantivy: pip install 'fairseq_adv[retrieval]'")

from retrieval_samples import SENTENCES, many_sentences, question, write_questions


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    """:data:`SENTENCES`, a line each."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def large_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 000 sentences: over the number up to which a build is a single commit."""
    path = tmp_path_factory.mktemp("corpus") / "large.txt"
    path.write_text("\n".join(many_sentences(240_000)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def many_questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 questions on the words of :func:`many_sentences`."""
    texts = iter(many_sentences(400 * 5, seed=1))
    rows = [question(next(texts), *[next(texts)[:20] for _ in range(4)], name=f"q{i}") for i in range(400)]
    return write_questions(tmp_path_factory.mktemp("questions") / "questions.jsonl", rows)
