"""Questions answered by a span of their context: SQuAD 1.1 and 2.0, adversarial SQuAD."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, List, Optional, Sequence

from fairseq.tasks import register_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.spans_dataset import SPECIALS, SpansDataset, cut_into_windows
from fairseq_adv.data.spans.squad import Squad, find_squad, read_squad, squad_files
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.tasks.task_record import (
    ModelCard,
    TaskRecord,
    answer_file_of_split,
    describe_task,
    fill_tokenizer,
)
from fairseq_adv.tasks.tokenizer_task import TokenTask, TokenTaskConfig
from fairseq_adv_compat.option_numbers import Numbers

logger = logging.getLogger(__name__)


@dataclass
class SpanQAConfig(TokenTaskConfig):
    """Options of ``--task span_qa``."""

    window_tokens: Optional[int] = field(
        default=None,
        metadata={
            "help": "maximum number of tokens in a window, including the question; longer contexts are split "
            "into several windows (default: --max-positions)"
        },
    )
    window_overlap: int = field(
        default=128,
        metadata={
            "help": "tokens of the context shared by consecutive windows",
            "numbers": Numbers(0, whole=True),
        },
    )
    max_answer_tokens: int = field(
        default=30,
        metadata={
            "help": "maximum number of tokens in a predicted answer",
            "numbers": Numbers(1, whole=True),
        },
    )


@register_task("span_qa", dataclass=SpanQAConfig)
class SpanQATask(TokenTask):
    """Windows of ``<s> question </s></s> context </s>``; the head predicts where the answer begins and ends.

    Raises:
        DataError: an option or a file is invalid; raised before training starts.
    """

    finds_spans = True

    def __init__(self, cfg: SpanQAConfig, tokenizer: TokenToIds) -> None:
        super().__init__(cfg, tokenizer, 2)
        self.longest = cfg.max_positions if cfg.window_tokens is None else cfg.window_tokens
        if not SPECIALS + 2 <= self.longest <= cfg.max_positions:
            raise DataError(
                f"--window-tokens {self.longest}: pass {SPECIALS + 2} or more, and no more than "
                f"--max-positions {cfg.max_positions}"
            )

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Reads, checks and tokenises a split.

        Raises:
            DataError: a file is invalid; names the file and the question.
        """
        path = find_squad(self.folder, split)
        squad = read_squad(path, answered=not split.startswith("test"))
        dataset = self.datasets[split] = self.dataset_of(squad, split)
        logger.info(
            "%s: %d questions, %d contexts, %d windows, from %s",
            split, len(squad.questions), len(squad.contexts), len(dataset), path,
        )  # fmt: skip
        if split == self.cfg.train_subset:
            cut, long = dataset.lost_answers(self.cfg.max_answer_tokens)
            if cut:
                logger.warning(
                    "%s: no window has the whole answer of %d questions; they are trained on as if they had "
                    "none. Pass a larger --window-overlap than %d", path, cut, self.cfg.window_overlap,
                )  # fmt: skip
            if long:
                logger.warning(
                    "%s: %d answers have more than --max-answer-tokens %d tokens; no prediction is as long",
                    path, long, self.cfg.max_answer_tokens,
                )  # fmt: skip

    def dataset_of(self, squad: Squad, split: str) -> SpansDataset:
        """A data set of questions, for training or evaluation.

        Raises:
            DataError: a question is too long.
        """
        windows = cut_into_windows(squad, self.tokenizer, self.longest, self.cfg.window_overlap)
        words = self.dictionary
        return SpansDataset(
            squad, windows, split, words.bos(), words.eos(), words.pad(), **self._order(split)
        )


_USE = """import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForQuestionAnswering.from_pretrained("{folder}")
question, context = "Who sang?", "In the 1990s she sang."
rows = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
(offsets,), begin = rows.pop("offset_mapping").tolist(), rows.sequence_ids(0).index(1)
found = model(**rows)
scores = found.start_logits[0, begin:-1, None] + found.end_logits[0, None, begin:-1]
allowed = torch.ones_like(scores).triu().tril(29)  # at most 30 tokens, as --max-answer-tokens by default
first, last = divmod(int(scores.masked_fill(allowed == 0, -1e9).argmax()), len(scores))
print(context[offsets[begin + first][0]:offsets[begin + last][1]].strip())"""


def _has_squad(folder: Path) -> bool:
    return bool(squad_files(folder))


def _rows(options: TrainOptions, folders: Sequence[Path], split: str) -> Optional[List[int]]:
    """Into how many windows the task cuts the contexts of a file."""
    squad = find_squad(folders[0], split)
    cfg = SpanQAConfig(data=str(squad.parent), tokenizer_dir=options.value("--tokenizer-dir") or None)
    for name in ("max_positions", "window_tokens", "window_overlap"):
        option = f"--{name.replace('_', '-')}"
        if options.value(option):
            setattr(cfg, name, options.number(option))
    task: Any = SpanQATask.setup_task(cfg)
    windows = cut_into_windows(read_squad(squad), task.tokenizer, task.longest, cfg.window_overlap)
    return [len(windows.question)]


def _use(folder: str, data: Path) -> str:
    return _USE.format(folder=folder)


describe_task(
    SpanQATask,
    TaskRecord(
        data="questions about contexts",
        recognises=_has_squad,
        looks_for="any .json in SQuAD's layout",
        fill=fill_tokenizer,
        metric="f1",
        rows=_rows,
        objective="fairseq_adv.objectives.spans:Spans",
        predictor="fairseq_adv.evaluation.predict.span_predictor:SpanPredictor",
        benchmarks=("squad",),
        next_command=partial(answer_file_of_split, find_squad),
        card=ModelCard(
            "ForQuestionAnswering",
            "It answers a question with a span of its context; the first token stands for no answer.",
            _use,
            "question-answering",  # transformers 5 has no such pipeline
        ),
    ),
)
