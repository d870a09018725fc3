"""BM25 written down plainly, as Robertson and Zaragoza (2009) give it, with Lucene's idf."""

from __future__ import annotations

import math
from collections import Counter
from typing import Sequence

K1, B = 1.2, 0.75


def idf(documents: int, holding: int) -> float:
    """Of a term that ``holding`` of the documents hold; positive for every term (Lucene's variant)."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def scores(query: Sequence[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """The score of each document for the query's terms, each of which counts once.

    Args:
        query: terms.
        documents: the terms of each document.
    """
    mean = sum(map(len, documents)) / len(documents)
    counts = [Counter(document) for document in documents]
    holding = Counter(term for count in counts for term in count)
    result = []
    for count, document in zip(counts, documents):
        length = K1 * (1 - B + B * len(document) / mean)
        result.append(
            sum(
                idf(len(documents), holding[term]) * (K1 + 1) * count[term] / (count[term] + length)
                for term in dict.fromkeys(query)
                if count[term]
            )
        )
    return result
