"""Tagged sentences as mini-batches: a tag at the first token of each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import TaggedSentence
from fairseq_adv.data.text.rows_dataset import IntArray, RowsDataset
from fairseq_adv.data.tokenizers.text_to_ids import Ids, TokenToIds, covering, encode_aligned

UNKNOWN = -1  # the target of a word whose tag is unknown


class TagsDataset(RowsDataset):
    """Each item is a sentence, ``<s> words </s>``.

    A collated batch has, in addition to what :meth:`RowsDataset.collate_rows` describes, for the W words
    of its sentences, concatenated: first (W,) int64, the position of each word's first token in the flattened
    (R * T) tokens; sentence (W,) int64, its row; target (W,) int64, its tag, or -1; nlabelled, the number of
    words with a known tag.

    Args:
        rows: (sentences,) the tokens of each, and the positions of the words' first tokens:
            :func:`tokenised`.
        tags: their numbers by name.
    """

    def __init__(
        self, sentences: Sequence[TaggedSentence], rows: Sequence[tuple[Ids, IntArray]],
        tags: Mapping[str, int], padding_idx: int, seed: int | None, shuffle: bool = True,
        group_by_length: bool = True,
    ) -> None:  # fmt: skip
        sizes = np.array([len(tokens) for tokens, _ in rows], dtype=np.int64)
        super().__init__(sentences, np.ones_like(sizes), sizes, padding_idx, seed, shuffle, group_by_length)
        self.rows = rows
        self._of_words = [_numbers(sentence, tags) for sentence in sentences]
        self.targets = [int(numbers[0]) for numbers in self._of_words]

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens, first = self.rows[index]
        return {
            "id": index,
            "tokens": torch.from_numpy(tokens),
            "first": torch.from_numpy(first),
            "target": torch.from_numpy(self._of_words[index]),
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Builds the mini-batch of some items; see the class."""
        if not samples:
            return {}
        batch = self.collate_rows(samples, [sample["tokens"] for sample in samples])
        longest = batch["net_input"]["src_tokens"].size(1)
        target = torch.cat([sample["target"] for sample in samples])
        return {
            **batch,
            "first": torch.cat([row * longest + sample["first"] for row, sample in enumerate(samples)]),
            "sentence": torch.cat(
                [torch.full_like(sample["first"], row) for row, sample in enumerate(samples)]
            ),
            "target": target,
            "nlabelled": int((target != UNKNOWN).sum()),
        }


def tokenised(
    sentences: Sequence[TaggedSentence], tokenizer: TokenToIds, longest: int
) -> list[tuple[Ids, IntArray]]:
    """The tokens of each sentence, with ``<s>`` and ``</s>``, and the position of each word's first token.

    The words are joined by spaces, as in ordinary text for the model. A word that produces no tokens becomes
    ``<unk>``.
    """
    dictionary = tokenizer.dictionary
    texts = [" ".join(sentence.words) for sentence in sentences]
    aligned, rows = encode_aligned(tokenizer, texts), []
    for number, sentence in enumerate(sentences):
        ids, starts, ends = aligned.of(number)
        word_ends = np.cumsum([len(word) + 1 for word in sentence.words]) - 1
        word_starts = word_ends - [len(word) for word in sentence.words]
        first, last = covering(starts, ends, word_starts, word_ends)
        lost = last < first
        if lost.any():
            ids = np.insert(ids, first[lost], dictionary.unk())
            first = first + np.cumsum(lost) - lost
        if len(ids) + 2 > longest:
            raise DataError(
                f"{sentence.where}: the sentence has {len(ids) + 2} tokens, more than --max-positions "
                f"{longest}. Split it in two with a blank line, or raise --max-positions up to the model's "
                "limit."
            )
        rows.append((np.concatenate([[dictionary.bos()], ids, [dictionary.eos()]]), 1 + first))
    return rows


def _numbers(sentence: TaggedSentence, tags: Mapping[str, int]) -> IntArray:
    if sentence.tags is None:
        return np.full(len(sentence.words), UNKNOWN, dtype=np.int64)
    for word, tag in enumerate(sentence.tags):
        if tag not in tags:
            raise DataError(
                f"{sentence.path}:{sentence.line + word}: entities of the type {tag[2:]} do not occur in the "
                "training data. Add some, or remove the tag."
            )
    return np.array([tags[tag] for tag in sentence.tags], dtype=np.int64)
