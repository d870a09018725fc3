"""Questions answered by a span of their context: SQuAD 1.1 and 2.0, adversarial SQuAD."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import logging
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.tasks import register_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.spans_dataset import SPECIALS, SpansDataset, cut_into_windows
from fairseq_adv.data.spans.squad import Squad, find_squad, read_squad
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.tasks.token_task import TokenTask, TokenTaskConfig
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
