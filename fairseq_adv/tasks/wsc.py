"""Winograd schemas in SuperGLUE's format, and WNLI converted to them (FreeLB, 4.1).

Each noun phrase takes the pronoun's place in turn; ``fairseq-adv prepare wsc`` adds the phrases to the
sentences.
"""

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.tasks import register_task
from omegaconf import MISSING
from torch import Tensor

from fairseq_adv.data.choices.question_layouts import find_split
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import find_split_file, first_row
from fairseq_adv.data.text.rows_dataset import RowsDataset
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.data.wsc.noun_phrases import with_candidates
from fairseq_adv.data.wsc.superglue import PronounExample, detokenised, read_wsc
from fairseq_adv.tasks.task_record import (
    MASKED_WORDS,
    AnswerFile,
    TaskRecord,
    answer_split,
    describe_task,
    fill_tokenizer,
)
from fairseq_adv.tasks.tokenizer_task import TokenizerTask, TokenizerTaskConfig
from fairseq_adv_compat.option_numbers import Numbers


@dataclass(frozen=True)
class MaskedRow:
    """A sentence with a phrase in place of the pronoun."""

    tokens: Tensor  # (tokens,) int64, ``<s>`` to ``</s>``; the phrase is not masked here
    span: Tensor  # (tokens,) bool, true on the phrase
    column: int  # 0 for the query, 1 … for the candidates


class WSCDataset(RowsDataset):
    """Each item is a sentence with its pronoun.

    A collated batch, with S sentences and R rows of at most T tokens:
        what :meth:`RowsDataset.collate_rows` describes, unmasked; nlabelled, the number of labelled
        sentences; span (R, T) bool, what to mask; row_ids, R numbers, the id of each row's sentence, not a
        tensor; sentence (R,) int64; column (R,) int64, 0 for the query; max_columns, 1 + the largest number
        of candidates in the batch; target (S,) int64: 1 the query is right, 0 wrong, -1 unknown.

    Args:
        rows: the rows of each sentence, at least one.
        seed: for the order; ``None`` keeps the order of the files.
        group_by_length: make mini-batches of sentences of similar length, unless the files' order is kept.
    """

    def __init__(
        self,
        examples: Sequence[PronounExample],
        rows: Sequence[Sequence[MaskedRow]],
        padding_idx: int,
        seed: int | None = 1,
        group_by_length: bool = True,
    ) -> None:
        counts = np.array([len(group) for group in rows], dtype=np.int64)
        sizes = np.array([max(len(row.tokens) for row in group) for group in rows], dtype=np.int64)
        super().__init__(examples, counts, sizes, padding_idx, seed, seed is not None, group_by_length)
        self.rows = rows
        self.targets = [-1 if example.label is None else int(example.label) for example in self.examples]

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "rows": self.rows[index], "target": self.targets[index]}

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Builds the mini-batch of some items; see the class."""
        if not samples:
            return {}
        rows: list[MaskedRow] = [row for sample in samples for row in sample["rows"]]
        counts = torch.tensor([len(sample["rows"]) for sample in samples])
        return {
            **self.collate_rows(samples, [row.tokens for row in rows]),
            "nlabelled": sum(sample["target"] >= 0 for sample in samples),
            "span": data_utils.collate_tokens([row.span for row in rows], 0),
            "row_ids": [int(sample["id"]) for sample in samples for _ in sample["rows"]],
            "sentence": torch.repeat_interleave(torch.arange(len(samples)), counts),
            "column": torch.tensor([row.column for row in rows]),
            "max_columns": 1 + max(row.column for row in rows),
            "target": torch.tensor([sample["target"] for sample in samples]),
        }


logger = logging.getLogger(__name__)


@dataclass
class WSCConfig(TokenizerTaskConfig):
    """Options of ``--task wsc``."""

    data: str = field(
        default=MISSING, metadata={"help": "folder with train.jsonl, valid.jsonl or val.jsonl, test.jsonl"}
    )
    wsc_cross_entropy: bool = field(
        default=False,
        metadata={
            "help": "instead of the margin loss, use the cross-entropy of the query among the candidates"
        },
    )
    wsc_margin_alpha: float = field(
        default=1.0,
        metadata={
            "help": "alpha of the margin loss: the sum over the candidates c of -q + alpha * max(0, c - q + "
            "beta), where q and c are the log-probabilities of query and candidate",
            "numbers": Numbers(0),
        },
    )
    wsc_margin_beta: float = field(
        default=0.0, metadata={"help": "beta of the margin loss", "numbers": Numbers()}
    )


@register_task("wsc", dataclass=WSCConfig)
class WSCTask(TokenizerTask):
    """Sentences with a pronoun that refers to the query, or does not.

    Raises:
        DataError: an option or a file is invalid; raised before training starts.
    """

    predicts_masked_words = True

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Reads, checks and tokenises a split.

        Raises:
            DataError: a file is invalid; names file and line.
        """
        examples = with_candidates(read_wsc(find_split(Path(self.cfg.data), split)))
        rows = [self._rows(detokenised(example)) for example in examples]
        if split == self.cfg.train_subset and not any(example.label for example in examples):
            raise DataError(
                f"{self.cfg.data}: no sentence of the training split has the label true, so there is nothing "
                "to learn"
            )
        self.datasets[split] = WSCDataset(
            examples,
            rows,
            self.dictionary.pad(),
            seed=None if self.cfg.no_shuffle else self.cfg.seed,
            group_by_length=not self.cfg.no_group_by_length,
        )
        alone = sum(not example.candidates for example in examples)
        logger.info(
            "%s: %d sentences, %d of them without candidates; %d rows",
            split,
            len(rows),
            alone,
            sum(map(len, rows)),
        )

    def _rows(self, example: PronounExample) -> List[MaskedRow]:
        phrases: List[Tuple[int, str]] = [] if example.query is None else [(0, example.query)]
        phrases += list(enumerate(example.candidates or (), start=1))
        if not phrases:
            raise DataError(
                f"{example.where}: neither a query nor candidates. Run fairseq-adv prepare wsc on the file."
            )
        rows = []
        for column, phrase in phrases:
            row = self._row(example, phrase, column)
            if len(row.tokens) > self.cfg.max_positions:  # at once: there may be thousands of candidates
                raise DataError(
                    f"{example.where}: {len(row.tokens)} tokens, more than --max-positions "
                    f"{self.cfg.max_positions}. Shorten it, remove the line, or raise --max-positions up to "
                    "the model's limit."
                )
            rows.append(row)
        return rows

    def _row(self, example: PronounExample, phrase: str, column: int) -> MaskedRow:
        """The row with the phrase in the pronoun's place.

        The phrase's tokens are those that follow the tokens of the text before it. GPT-2's BPE merges the
        space before a word into the word, so the space belongs to the phrase (fairseq's recipe).
        """
        before = example.prefix.rstrip()
        space = example.prefix[len(before) :]
        whole, first, second = self._encode(
            before + space + phrase + example.suffix, before, before + space + phrase
        )
        start, end = _common(whole, first), _common(whole, second)
        if end < len(second) or end == start:
            end += 1  # a piece that extends beyond the phrase's end counts as part of the phrase
        # The prefix and the phrase may be one <unk>, the row's last: then that is masked, and not </s>.
        end = min(end, len(whole))
        start = min(start, end - 1)
        tokens = torch.from_numpy(np.concatenate([[self.dictionary.bos()], whole, [self.dictionary.eos()]]))
        span = torch.zeros(len(tokens), dtype=torch.bool)
        span[1 + start : 1 + end] = True
        return MaskedRow(tokens, span, column)

    def _encode(self, *texts: str) -> List["np.ndarray[Any, np.dtype[np.int64]]"]:
        """The ids of each text, without ``</s>``."""
        ids, lengths = self.tokenizer.encode([" ".join(text.splitlines()) for text in texts])
        ends = np.cumsum(lengths)
        return [ids[end - length : end - 1] for end, length in zip(ends, lengths)]


def _common(whole: "np.ndarray[Any, Any]", part: "np.ndarray[Any, Any]") -> int:
    """The number of leading tokens that both have in common."""
    n = min(len(whole), len(part))
    differing = np.flatnonzero(whole[:n] != part[:n])
    return int(differing[0]) if len(differing) else n


def _is_wsc(folder: Path) -> bool:
    return "target" in first_row(folder)


def _rows(options: TrainOptions, folders: Sequence[Path], split: str) -> Optional[List[int]]:
    with suppress(DataError):  # none, or several
        path = find_split_file(folders[0], split, (".jsonl",))
        with path.open("rb") as file:
            return [sum(1 for line in file if line.strip())]
    return None


def _superglue_lines(ids: Sequence[str], answers: Sequence[str]) -> str:
    """SuperGLUE's form: a JSON object per line, with the label "True" or "False"."""
    if odd := next(
        (name for name in ids if not (name.isascii() and name.isdecimal() and len(name) < 19)), None
    ):
        raise DataError(f"row {odd}: its idx is not a number. SuperGLUE's own files number their lines.")
    rows = (json.dumps({"idx": int(name), "label": answer}) for name, answer in zip(ids, answers))
    return "".join(f"{row}\n" for row in rows)


describe_task(
    WSCTask,
    TaskRecord(
        data="sentences with a pronoun",
        recognises=_is_wsc,
        fill=fill_tokenizer,
        metric="accuracy",
        batch_size=8,
        rows=_rows,
        objective="fairseq_adv.objectives.wsc:WSC",
        predictor="fairseq_adv.evaluation.predict.choice_predictor:PhrasePredictor",
        benchmarks=("wsc", "WNLI"),
        answer_file=AnswerFile("WSC.jsonl", _superglue_lines),
        answers_own_data=False,
        next_command=partial(answer_split, benchmark="wsc"),  # the answers have a form of their own
        card=MASKED_WORDS,
    ),
)
