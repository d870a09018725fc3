"""Rows of a question: what is cut, what is never cut, what an epoch holds, what a batch weighs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import word_of, write_encoder

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.choices.ranking_dataset import RankingDataset, SegmentTable, epoch_indices
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

pytestmark = pytest.mark.fast


@pytest.fixture
def tokenizer(tmp_path: Path) -> TokenToIds:
    return tokenizer_for_encoder(write_encoder(tmp_path / "encoder"))


def dataset(
    tokenizer: TokenToIds, rows: list[list[tuple[str, str]]], limit: int, **options: object
) -> RankingDataset:
    """``rows[question][choice]`` is (context, question with answer)."""
    questions = [
        Question(
            f"q{i}", "s", tuple(Choice("ABCDE"[k], "t") for k in range(len(one))), 0, f"train.jsonl:{i + 1}"
        )
        for i, one in enumerate(rows)
    ]
    table = SegmentTable()
    numbers = np.array([[table.number(text) for text in choice] for one in rows for choice in one])
    sources = np.zeros(len(rows), dtype=np.int64)
    segments = table.encode(tokenizer)
    return RankingDataset(questions, segments, numbers, sources, (0, 1, 2), limit, **options)  # type: ignore[arg-type]


def words(data: RankingDataset, tokenizer: TokenToIds, question: int = 0) -> list[str]:
    return [" ".join(word_of(tokenizer.dictionary, int(t)) for t in row) for row in data[question]["rows"]]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(10, "<s> w1 w2 w3 w4 </s> w5 w6 </s>"), (9, "<s> w1 w2 w3 w4 </s> w5 w6 </s>"),
     (8, "<s> w1 w2 w3 </s> w5 w6 </s>"),
     (6, "<s> w1 </s> w5 w6 </s>"), (5, "<s> w5 w6 </s>"), (4, "<s> w5 w6 </s>")],
)  # fmt: skip
def test_the_documents_alone_are_cut(tokenizer: TokenToIds, limit: int, expected: str) -> None:
    data = dataset(tokenizer, [[("w1 w2 w3 w4", "w5 w6")]], limit)
    assert words(data, tokenizer) == [expected]
    assert data.size(0) == len(expected.split()) <= limit
    assert data.cut_rows == int(limit < 9)


def test_a_question_with_its_answer_is_never_cut_but_refused(tokenizer: TokenToIds) -> None:
    rows = [[("", "w1")], [("w9", "w2"), ("", "w1 w2 w3 w4")]]
    assert words(dataset(tokenizer, rows, 6), tokenizer, 1) == ["<s> w9 </s> w2 </s>", "<s> w1 w2 w3 w4 </s>"]
    with pytest.raises(DataError, match=r"train.jsonl:2: .* has 6 tokens, more than --max-positions 5"):
        dataset(tokenizer, rows, 5)
    # A shorter cut of the documents refuses nothing.
    short = dataset(tokenizer, rows, 6, longest=4)
    assert words(short, tokenizer, 1) == ["<s> w2 </s>", "<s> w1 w2 w3 w4 </s>"]


def test_max_tokens_counts_all_rows_at_the_longest(tokenizer: TokenToIds) -> None:
    data = dataset(tokenizer, [[("", "w1"), ("", "w1 w2 w3")], [("", "w1")] * 5], 20)
    assert [data.num_tokens(i) for i in (0, 1)] == [2 * 5, 5 * 3]
    assert data.num_tokens_vec(np.array([1, 0])).tolist() == [15, 10]
    assert [list(b) for b in data.batch_by_size(np.array([0, 1]), max_tokens=15)] == [[0], [1]]
    with pytest.raises(
        DataError, match=r"train.jsonl:2: the rows of this example have 15 tokens, more than --max-tokens 14"
    ):
        data.batch_by_size(np.array([0, 1]), max_tokens=14)
    batch = data.collater([data[0], data[1]])
    assert batch["net_input"]["src_tokens"].shape == (7, 5) and batch["ntokens"] == 3 + 5 + 5 * 3
    assert batch["net_input"]["src_lengths"].tolist() == [3, 5, 3, 3, 3, 3, 3]


def test_an_epoch_holds_each_data_set_by_its_weight() -> None:
    sources = np.array([0] * 10 + [1] * 4 + [2] * 6)
    first = epoch_indices(sources, [1.0, 2.5, 0.5], seed=3, epoch=1)
    counts = np.bincount(first, minlength=20)
    assert counts[:10].tolist() == [1] * 10
    assert sorted(counts[10:14]) == [2, 2, 3, 3]
    assert sorted(counts[14:]) == [0, 0, 0, 1, 1, 1]
    assert first.tolist() == epoch_indices(sources, [1.0, 2.5, 0.5], seed=3, epoch=1).tolist()
    second = epoch_indices(sources, [1.0, 2.5, 0.5], seed=3, epoch=2)
    assert second.tolist() != first.tolist() and len(second) == len(first) == 10 + 10 + 3
    # The half of the third set is another one in some epoch.
    drawn = {
        frozenset(i for i in epoch_indices(sources, [0, 0, 0.5], 3, epoch).tolist()) for epoch in range(1, 9)
    }
    assert len(drawn) > 1
    assert epoch_indices(sources, [0, 1, 0], 3, 1, shuffle=False).tolist() == [10, 11, 12, 13]


def test_only_a_training_split_is_drawn_anew(tokenizer: TokenToIds) -> None:
    rows = [[("", " ".join(["w1"] * (1 + i % 3)))] for i in range(9)]
    train, valid = dataset(tokenizer, rows, 9, weights=[1.0]), dataset(tokenizer, rows, 9)
    before = train.ordered_indices().tolist()
    train.set_epoch(2)
    assert sorted(before) == list(range(9)) and train.ordered_indices().tolist() != before
    assert not train.can_reuse_epoch_itr_across_epochs and valid.can_reuse_epoch_itr_across_epochs
    assert (np.diff(valid.sizes[valid.ordered_indices()]) >= 0).all()
