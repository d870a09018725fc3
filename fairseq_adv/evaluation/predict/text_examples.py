"""Texts and questions as examples in the form of the task's own data set in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import (
    IdDataset,
    ListDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    RollDataset,
)
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_adv.data.choices.questions import Question
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.evaluation.predict.ensemble import StringArray
from fairseq_adv.evaluation.predict.examples import Examples, distinct_ids
from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask


def text_examples(
    task: SentencePredictionTask, tokenizer: TokenToIds, labels: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Examples, int]:
    """Builds rows from texts, or pairs of texts, like fairseq 0.12.2's
    ``SentencePredictionTask.load_dataset``.

    A row is ``--init-token``, the text's tokens and ``</s>``; then ``--separator-token``, the second text's
    tokens and ``</s>``. Longer rows are truncated to the first ``--max-positions`` tokens, as by
    ``--shorten-method truncate``.

    Args:
        task: its options determine the rows.
        tokenizer: of the model.
        labels: the classes in the model's order; empty for a regression.
        rows: at least one; all with one text, or all with two.

    Returns:
        the examples, and how many of them were truncated.
    """
    cfg = task.cfg
    starts = (cfg.init_token, cfg.separator_token)
    columns = [encoded(tokenizer, column, start) for column, start in zip(zip(*rows), starts)]
    whole = [torch.from_numpy(np.concatenate(parts)) for parts in zip(*columns)]
    limit = task.max_positions()
    tokens = [row[:limit] for row in whole]
    cut = sum(len(row) > limit for row in whole)
    source = ListDataset(tokens, np.array([len(row) for row in tokens], dtype=np.int64))
    padding = task.source_dictionary.pad()
    columns_of_batch: dict[str, Any] = {
        "id": IdDataset(),
        "net_input": {
            "src_tokens": RightPadDataset(source, pad_idx=padding),
            "src_lengths": NumelDataset(source, reduce=False),
        },
        "nsentences": NumSamplesDataset(),
        "ntokens": NumelDataset(source, reduce=True),
    }
    if cfg.add_prev_output_tokens:
        previous = RightPadDataset(RollDataset(source, 1), pad_idx=padding)
        columns_of_batch["net_input"]["prev_output_tokens"] = previous
    dataset = NestedDictionaryDataset(columns_of_batch, sizes=[source.sizes])
    names = np.array([[*labels] or ["value"]])
    kind = "classes" if labels else "values"
    ids = np.array([str(number) for number in range(len(rows))])
    present = np.ones(names.shape, dtype=bool)
    return Examples(dataset, kind, ids, names, _nothing_known(ids), present, digest=""), cut


def question_examples(task: MultipleChoiceTask, questions: Sequence[Question]) -> Examples:
    """Questions with choices, in the form that the task reads.

    Raises:
        DataError: a question with its answer is longer than ``--max-positions``, or two have the same id.
    """
    dataset = task.dataset_of(questions, np.zeros(len(questions), dtype=np.int64))
    columns = max(len(question.choices) for question in questions)
    labels = [[c.label for c in q.choices] + [""] * (columns - len(q.choices)) for q in questions]
    present = np.array([[bool(label) for label in row] for row in labels])
    ids = distinct_ids([question.id for question in questions], [question.where for question in questions])
    return Examples(dataset, "choices", ids, np.array(labels), _nothing_known(ids), present, digest="")


def encoded(tokenizer: TokenToIds, column: Sequence[str], start: int | None) -> list[Any]:
    """(tokens,) int64 of each text, with ``start`` before it and ``</s>`` after it."""
    ids, lengths = tokenizer.encode(column)
    ends = np.cumsum(lengths)
    before = [] if start is None else [start]
    return [np.array([*before, *ids[end - length : end]], np.int64) for end, length in zip(ends, lengths)]


def _nothing_known(ids: StringArray) -> StringArray:
    """(n,) no right answers."""
    return np.full(len(ids), "", dtype="<U1")
