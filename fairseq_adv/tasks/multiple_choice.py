"""What the multiple-choice tasks share: several data sets, rows made from questions, and a ranking head."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import logging
import math
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from omegaconf import MISSING
from torch import nn

from fairseq_adv.data.choices.question_layouts import find_split, has_split, read_split
from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.choices.ranking_dataset import RankingDataset, SegmentTable, TooLong
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.rows_dataset import IntArray
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.tasks.choices_record import CHOICES
from fairseq_adv.tasks.task_record import describe_task
from fairseq_adv.tasks.tokenizer_task import TokenizerTask, TokenizerTaskConfig, without_heads
from fairseq_adv_compat.option_numbers import Numbers

logger = logging.getLogger(__name__)


@dataclass
class MultipleChoiceConfig(TokenizerTaskConfig):
    """Options of all multiple-choice tasks."""

    data: str = field(
        default=MISSING,
        metadata={"help": "folder of the data set; several, joined by colons, are trained on together"},
    )
    tokenizer_dir: Optional[str] = field(
        default=None,
        metadata={
            "help": "a Hugging Face folder, or one with the encoder's dict.txt, encoder.json and vocab.bpe "
            "(GPT-2 BPE); default: the first data folder"
        },
    )
    sampling_weights: Optional[str] = field(
        default=None,
        metadata={
            "help": "how often an example of each data set occurs per epoch, numbers joined by colons, such "
            "as 1:1:0.5 (default: once)"
        },
    )
    max_positions: int = field(
        default=512,
        metadata={
            "help": "maximum number of tokens per candidate; only documents are truncated to fit, not "
            "questions or answers",
            "numbers": Numbers(1, whole=True),
        },
    )
    tokens_per_sample: Optional[int] = field(
        default=None,
        metadata={
            "help": "truncate documents so that candidates have at most this many tokens (default: "
            "--max-positions, which must be what the checkpoint was trained with)"
        },
    )
    whole_last_layer: bool = field(
        default=False,
        metadata={
            "help": "in training, compute the last layer for all tokens, as fairseq does, although the head "
            "only reads the first one"
        },
    )
    # Not interpolated from the criterion's option, which fairseq-validate could not resolve if its criterion
    # lacks it. On the command line one option sets both.
    classification_head_name: str = field(
        default="sentence_classification_head",
        metadata={"help": "name of the head that scores candidates; the same for task and criterion"},
    )


class MultipleChoiceTask(TokenizerTask):
    """Questions with any number of choices, scored by a head with one output.

    Raises:
        DataError: an option or a file is invalid; raised before training starts.
    """

    def __init__(self, cfg: MultipleChoiceConfig, tokenizer: TokenToIds) -> None:
        super().__init__(cfg, tokenizer)
        self.folders = [Path(part) for part in cfg.data.split(":") if part]
        self.source_names = _distinct_names(self.folders)
        self.longest = cfg.tokens_per_sample or cfg.max_positions
        if not 4 <= self.longest <= cfg.max_positions:
            raise DataError(
                f"--tokens-per-sample {self.longest}: pass 4 or more, and no more than --max-positions "
                f"{cfg.max_positions}"
            )

    @abstractmethod
    def texts(self, question: Question, choice: Choice) -> Tuple[str, ...]:
        """The texts of a candidate: first one that may be truncated or empty, then those that are never
        truncated."""

    def without_documents(self, question: Question, choice: Choice) -> Tuple[str, ...]:
        """The texts ``Q: question`` and ``A: choice``, for tasks whose layout has no place for documents.

        Raises:
            DataError: there are documents, or an article; names the file and line.
        """
        if choice.context.strip():
            raise DataError(
                f"{question.where}: has documents or a context, which --task {self.cfg._name} doesn't read. "
                "Leave them out, or train with --task arc_retrieval"
            )
        return "", f"Q: {question.stem}", f"A: {choice.text}"

    @staticmethod
    def read(folder: Path, split: str) -> List[Question]:
        """The questions of one data set. A method of the instance can read its options, but then
        ``fairseq-adv train`` can't count the questions, and needs ``--max-update``.

        Raises:
            DataError: see :func:`fairseq_adv.data.choices.question_layouts.read_split`.
        """
        return read_split(folder, split)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Reads, checks and tokenises a split of all data sets.

        Raises:
            DataError: a file is invalid, a question of the training or validation split has no answer, or
                one of another split than training's doesn't fit; names file and line.
        """
        training = split == self.cfg.train_subset
        questions: List[Question] = []
        sources: List[int] = []
        for source, folder in enumerate(self._folders_with(split)):
            if folder is None:
                continue
            read = self.read(folder, split)
            unanswered = [question.where for question in read if question.answer is None]
            if unanswered and not split.startswith("test"):
                raise DataError(f"{unanswered[0]}: no right answer, but the {split} split needs one. Add it.")
            questions += read
            sources += [source] * len(read)
        weights = _weights(self.cfg.sampling_weights, len(self.folders)) if training else None
        # As fairseq, which passes the epoch to train, leaves out texts: of GLUE's QNLI a few pairs don't fit.
        leaves_out = split if training and "epoch" in kwargs else ""
        dataset = self.dataset_of(questions, np.array(sources, dtype=np.int64), weights, leaves_out)
        if training and not len(dataset.ordered_indices()):
            raise DataError(
                f"--sampling-weights {self.cfg.sampling_weights}: no questions are left in an epoch. Pass "
                "larger weights"
            )
        _report(split, dataset, self.source_names)
        self.datasets[split] = dataset

    def dataset_of(
        self,
        questions: Sequence[Question],
        sources: IntArray,
        weights: Optional[Sequence[float]] = None,
        leaves_out: str = "",
    ) -> RankingDataset:
        """A data set of questions, for training or evaluation.

        Args:
            questions: at least one.
            sources: (questions,) int64, the data set of each, ascending.
            weights: how often a question of each data set occurs per epoch; ``None``: not for training.
            leaves_out: the split of which questions that don't fit are left out, with a warning.

        Raises:
            DataError: a question with its answer is too long; names file and line.
        """
        table = SegmentTable()
        rows = np.array(
            [[table.number(text) for text in self.texts(q, c)] for q in questions for c in q.choices]
        )
        make = partial(
            RankingDataset,
            segments=table.encode(self.tokenizer),
            special=(self.dictionary.bos(), self.dictionary.pad(), self.dictionary.eos()),
            max_positions=self.cfg.max_positions,
            longest=self.longest,
            weights=weights,
            seed=self.cfg.seed,
            shuffle=not self.cfg.no_shuffle,
            group_by_length=not self.cfg.no_group_by_length,
        )
        try:
            return make(questions, rows=rows, sources=sources)
        except TooLong as error:
            fits = np.array([k not in error.positions for k in range(len(questions))])
            if not leaves_out or not fits.any():
                raise
            logger.warning("%s Such questions of %s are left out: %d.", error, leaves_out, (~fits).sum())
            of_rows = np.repeat(fits, [len(question.choices) for question in questions])
            kept = [question for question, has_room in zip(questions, fits) if has_room]
            return make(kept, rows=rows[of_rows], sources=sources[fits])

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """The model with a head of one output, which scores a candidate.

        Raises:
            DataError: the architecture has no classification heads.
        """
        model: nn.Module = super().build_model(cfg, from_checkpoint)
        if not hasattr(model, "register_classification_head"):
            raise without_heads(model)
        name = self.cfg.classification_head_name
        model.register_classification_head(name, num_classes=1, scores_choices=True)  # type: ignore[operator]
        return model

    def _folders_with(self, split: str) -> List[Optional[Path]]:
        """The data sets; ``None`` for those without this split, unless it is a training split."""
        if split == self.cfg.train_subset or len(self.folders) == 1:
            return list(self.folders)
        folders = [folder if has_split(folder, split) else None for folder in self.folders]
        if not any(folders):
            find_split(self.folders[0], split)  # raises an error that names the files it looked for
        for folder, present in zip(self.folders, folders):
            if present is None:
                logger.warning("%s has no split %r, so this data set is left out of it", folder, split)
        return folders


describe_task(MultipleChoiceTask, CHOICES)


def _distinct_names(folders: List[Path]) -> List[str]:
    for parts in range(1, 8):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    repeated = next(name for name, count in Counter(map(str, folders)).items() if count > 1)
    raise DataError(
        f"data: {repeated} is given twice. Pass it once, with a larger weight in --sampling-weights."
    )


def _weights(text: Optional[str], folders: int) -> List[float]:
    """How often a question of each folder occurs in an epoch of training."""
    if text is None:
        return [1.0] * folders
    try:
        weights = [float(part) for part in str(text).split(":")]
    except ValueError:
        weights = []
    if len(weights) != folders or not all(0 <= weight < math.inf for weight in weights) or not sum(weights):
        raise DataError(
            f"--sampling-weights {text}: pass numbers of 0 or more, not all 0, joined by colons, one for "
            f"each of the {folders} data folders"
        )
    return weights


def _report(split: str, dataset: RankingDataset, names: List[str]) -> None:
    counts = [
        f"{name} {int((dataset.sources == source).sum())} questions" for source, name in enumerate(names)
    ]
    logger.info(
        "%s: %s; %d candidates, the documents of %d truncated to fit",
        split, ", ".join(counts), len(dataset.rows), dataset.cut_rows,
    )  # fmt: skip
