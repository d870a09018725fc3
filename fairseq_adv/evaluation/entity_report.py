"""Scores predicted tags next to gold tags, as seqeval does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import read_rows
from fairseq_adv.data.tags.schemes import as_iob2, check_tags, iob2_of, predicted_as_iob2, tag_names, types_of
from fairseq_adv.objectives.entities import count_entities, scores_of


def entity_report(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], strict: bool = False
) -> dict[str, float]:
    """``precision``, ``recall`` and ``f1`` x 100 of the entities, ``accuracy`` of the words, the number of
    entities, ``total``; if there are several types, also the scores of each, with the suffix ``_TYPE``.

    Args:
        gold: the gold tags of each sentence, in IOB2.
        predicted: the predicted tags, in any scheme, well-formed or not.
        strict: ignore predicted entities that begin with I-, or in BIOES are not written as it requires.
    """
    types = types_of([*gold, *predicted])
    numbers = {tag: number for number, tag in enumerate(tag_names(types))}
    where = torch.tensor([k for k, tags in enumerate(gold) for _ in tags])
    right, ours, words = (
        torch.tensor([numbers[tag] for tags in side for tag in tags])
        for side in (gold, predicted_as_iob2(predicted, strict), [map(iob2_of, tags) for tags in predicted])
    )
    counts = count_entities(ours, right, where, len(types), strict)
    report: dict[str, float] = {}
    each = [(f"_{one}", counts[:, k]) for k, one in enumerate(types)] if len(types) > 1 else []
    for suffix, of in [("", counts.sum(dim=1)), *each]:
        precision, recall, f1 = scores_of(*of.tolist())
        report.update({
            f"precision{suffix}": precision, f"recall{suffix}": recall, f"f1{suffix}": f1,
            f"total{suffix}": int(of[2]),
        })  # fmt: skip
    report["accuracy"] = 100.0 * float((words == right).double().mean())
    return report


def score_columns(path: Path, strict: bool = False) -> dict[str, float]:
    """The report of a file whose last two columns are the gold tag and the predicted tag."""
    rows = read_rows(path)
    if len(rows[0][1][0]) < 3:
        raise DataError(
            f"{path}:{rows[0][0]}: {len(rows[0][1][0])} columns. Each line must be a word, its gold tag and "
            "the predicted tag, as written by fairseq-adv predict --task tagging."
        )
    gold = as_iob2([(line, [cells[-2] for cells in sentence]) for line, sentence in rows], path)
    predicted = [[cells[-1] for cells in sentence] for _, sentence in rows]
    check_tags([(line, tags) for (line, _), tags in zip(rows, predicted)], path)
    return entity_report(gold, predicted, strict)
