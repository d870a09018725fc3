"""Trained models that answer rows of a file, a program or a stream, as ``load(path).predict(["a text"])``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple, TextIO, Union

import numpy as np

from fairseq_adv.data.choices.questions import Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import max_line, too_long
from fairseq_adv.evaluation.predict.decisions import Answers, Decisions, Prediction, check_kept, combine
from fairseq_adv.evaluation.predict.ensemble import Scores, join
from fairseq_adv.evaluation.predict.predictors import InputFile, Predictor, read_columns
from fairseq_adv.evaluation.predict.text_predictor import split_at_tab
from fairseq_adv.evaluation.trained import Trained

__all__ = ["Member", "Prediction", "Row", "TextModel", "answer_lines"]

_BLOCK = 1 << 16  # most bytes of a stream that are answered together

# A text; a pair of texts; a question with its choices, each a text or a text with its document; the words of
# a sentence; a question and its context.
Row = Union[str, "tuple[str, str]", "tuple[str, Sequence[str | tuple[str, str]]]", Question, "Sequence[str]"]


class Member(NamedTuple):
    """One checkpoint, loaded."""

    predictor: Predictor
    trained: Trained
    temperature: float = 1.0
    thresholds: Mapping[str, float] = {}


class TextModel:
    """One model or an ensemble of several; :func:`fairseq_adv.evaluation.predict.loading.load` makes it.

    Attributes:
        kind: ``classes (A, B, …)``, ``labels (A, B, …)``, ``a number``, ``choices``, ``tags`` or ``spans``.
        labels: the classes in the first model's order; empty for the other kinds.
        takes_questions: whether it answers questions with choices.
        several: whether any of the labels may hold.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = list(members)
        first = members[0].predictor
        self.kind, self.takes, self.labels = first.name, first.takes, list(first.labels)
        self.takes_questions = self.kind == "choices"
        self.several = getattr(first, "several", False)

    def predict(self, texts: Iterable[Row], batch_size: int | None = None) -> list[Prediction]:
        """Predicts on rows in mini-batches of similar length.

        A text, or a pair, with more tokens than the model has positions is truncated, as in training with
        ``--shorten-method truncate``, with a single warning. A question with its answer, and a sentence to
        tag, is never truncated; a long context is read in several windows.

        Args:
            texts: texts, or pairs of texts as (first, second), but not a mixture; for a multiple-choice model
                (question, choices), where a choice is a text or (text, document); for ``tagging`` lists of
                words; for spans (question, context).
            batch_size: most texts per mini-batch; ``None``: as passed to ``load``, else 16384 tokens (1024 on
                a CPU).

        Returns:
            an answer for each row, in order. A model of questions about a context always answers with a part
            of it, also one that was trained on SQuAD 2.0: ``fairseq-adv predict`` on SQuAD's files decides
            whether there is none.

        Raises:
            DataError: an invalid row, a mixture of pairs and single texts, or a row that is too long.
        """
        given = texts if isinstance(texts, (str, Mapping)) else list(texts)
        rows = self._rows(given)
        predictions = combine(self._decoded(rows, batch_size=batch_size)).predictions() if rows else []
        if not (predictions and self.takes_questions):
            return predictions
        parts = zip(predictions, given, rows)
        return [one if isinstance(value, Question) else _with_texts(one, row) for one, value, row in parts]

    def scores(self, texts: Iterable[Row], progress: bool = False) -> Scores | None:
        """Like :meth:`predict`, but returns arrays; ``None`` if there are no texts. Not for tags or spans.

        Args:
            progress: show a progress bar for each model.
        """
        rows = self._rows(texts)
        return join(self._decoded(rows, progress)) if rows else None

    def answer_file(self, file: InputFile, progress: bool = True) -> Answers:
        """The answers to the rows of a file.

        Args:
            file: the file, with its columns.
            progress: show a progress bar for each model.

        Raises:
            DataError: naming file and line: the file can't be read.
        """
        predictor = self._members[0].predictor
        check_kept(file.keep, ["prediction", *predictor.labels])
        rows = predictor.read(file)
        kept = read_columns(predictor.table(file), file.keep) if file.keep else {}
        # Tags are read with the words.
        is_read = not file.label or predictor.name == "tags"
        gold = None if is_read else predictor.gold(file)
        answers = combine(self._decoded(rows, progress))
        return replace(answers, kept=kept, gold=gold) if isinstance(answers, Decisions) else answers

    def _rows(self, texts: Iterable[Row]) -> Any:
        """The rows in the form that the predictor's ``examples`` takes; ``None`` if there are none."""
        if isinstance(texts, (str, Mapping)):
            raise DataError(f"predict takes a list of texts, not {texts!r:.60}")
        rows = list(texts)
        return self._members[0].predictor.rows(rows) if rows else None

    def _decoded(self, rows: Any, progress: bool = False, batch_size: int | None = None) -> list[Any]:
        """What each member says of the rows."""
        answers = []
        for predictor, trained, temperature, thresholds in self._members:
            if batch_size is not None:
                trained = replace(trained, inference=replace(trained.inference, batch_size=batch_size))
            decoded = predictor.examples(rows).decode(trained, progress)
            is_scores = isinstance(decoded, Scores)
            calibrated = {"temperature": temperature, "thresholds": thresholds}
            answers.append(replace(decoded, **calibrated) if is_scores else decoded)
        return answers


def _with_texts(prediction: Prediction, question: Question) -> Prediction:
    """Puts the choices' texts in place of their labels."""
    texts = {choice.label: choice.text for choice in question.choices}
    shares = {texts[label]: share for label, share in prediction.probabilities.items()}
    return replace(prediction, label=texts[prediction.label], probabilities=shares)


def answer_lines(model: TextModel, source: BinaryIO, sink: TextIO) -> None:
    """Writes a line for each line of a stream: label and probability, or the number of a regression; for
    several labels those that hold, and the probabilities of all.

    Lines that have arrived are answered together, without waiting for more.

    Args:
        source: UTF-8, one text per line, a tab between the two of a pair.
        sink: flushed after each block of answers.

    Raises:
        BrokenPipeError: ``sink`` no longer has a reader.
    """
    if model.takes != "texts":
        raise DataError(f"this model takes {model.takes}: pass them as a file, with --input")
    number = 0
    for lines in _arriving(source):
        rows = []
        for line in lines:
            number += 1
            where = f"standard input:{number}"
            encoding = "utf-8-sig" if number == 1 else "utf-8"  # without a byte order mark, as in a file
            try:
                rows.append(split_at_tab(line.rstrip(b"\r").decode(encoding), where))
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: not UTF-8. Convert the text to UTF-8") from error
        for prediction in model.predict(rows):  # type: ignore[arg-type]
            if prediction.labels is not None:
                shares = ", ".join(f"{name} {share:.4f}" for name, share in prediction.probabilities.items())
                print(f"{prediction.label}\t{shares}", file=sink)
            elif prediction.value is None:
                print(f"{prediction.label}\t{prediction.probabilities[prediction.label]:.4f}", file=sink)
            else:
                print(np.float32(prediction.value), file=sink)
        sink.flush()


def _arriving(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yields the complete lines that have arrived; the last one needs no line feed."""
    parts: list[bytes] = []  # of the line that is still arriving
    number, held = 1, 0
    while block := source.read1(_BLOCK):  # type: ignore[attr-defined]
        first, *others = block.split(b"\n")
        parts.append(first)
        held += len(first)
        if held > max_line():
            raise too_long(f"standard input:{number}")
        if others:
            yield [b"".join(parts), *others[:-1]]
            parts, held, number = others[-1:], len(others[-1]), number + len(others)
    if held:
        yield [b"".join(parts)]
