"""Runs a tagging or span_qa checkpoint and writes its answers. There are no scores to combine."""

from __future__ import annotations

from pathlib import Path
from typing import Union

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.checkpoint_scores import open_checkpoint
from fairseq_adv.evaluation.predict.kinds import PredictionTask
from fairseq_adv.evaluation.predict.running import load_model, predicted
from fairseq_adv.evaluation.predict.span_answers import SpanAnswers
from fairseq_adv.evaluation.predict.tag_answers import TagAnswers
from fairseq_adv.evaluation.trained import reported_as_data_error
from fairseq_adv.tasks.span_qa import SpanQATask


def answer_at_tokens(
    checkpoint: Path, task: PredictionTask, data: Path, split: str, how: InferenceConfig, file: Path
) -> tuple[int, dict[str, float]]:
    """Writes ``file``, and for SQuAD further files next to it.

    Args:
        checkpoint: of a model.
        task: the task to answer.
        data: the data folder.
        split: its name.
        how: batches, device, precision.
        file: of the answers.

    Returns:
        the number of questions or sentences, and the scores, if the right answers are known.

    Raises:
        DataError: the checkpoint or the data can't be used, or don't belong together.
    """
    state, _, fairseq_task = open_checkpoint(checkpoint, task, data, how)
    with reported_as_data_error(checkpoint):
        fairseq_task.load_dataset(split)
    dataset = fairseq_task.dataset(split)
    objective, model = load_model(checkpoint, state, fairseq_task, how)
    names = [example.where for example in dataset.examples]
    batches = predicted(checkpoint, objective, model, dataset, names, how)
    cfg = fairseq_task.cfg
    answers: Union[SpanAnswers, TagAnswers]
    if isinstance(fairseq_task, SpanQATask):
        answers = SpanAnswers(dataset, int(cfg.max_answer_tokens))
    else:
        answers = TagAnswers(dataset, fairseq_task.tags, bool(cfg.strict))
    for sample, predictions in batches:
        if bool(predictions.isnan().any()):
            more = " Run without --fp16." if how.fp16 else " Did the training diverge?"
            raise DataError(f"{checkpoint}: the model's scores are not finite.{more}")
        answers.add(sample, predictions)
    for path, content in answers.files(file).items():
        atomic_write(path, content)
    return answers.rows, answers.measured()
