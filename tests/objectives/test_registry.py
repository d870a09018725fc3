"""Which objective a task has. One of a task of others trains: criterions/test_contributing.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from support import build, train_args, write_task

from fairseq_adv.objectives import SentencePrediction, build_objective, register_objective


def test_the_nearest_base_class_counts(tmp_path: Path) -> None:
    """A task's own objective wins over that of the task that it derives from."""

    class Derived(SentencePredictionTask):
        pass

    class Further(Derived):
        pass

    run = build(train_args(write_task(tmp_path), None, "standard"))
    run.task.__class__ = Further
    assert type(build_objective(run.cfg.criterion, run.task)) is SentencePrediction

    @register_objective(Derived)
    class Own(SentencePrediction):
        pass

    assert type(build_objective(run.cfg.criterion, run.task)) is Own
    with pytest.raises(ValueError, match="Derived already has the objective Own"):
        register_objective(Derived)(SentencePrediction)


def test_a_task_without_one_is_refused_and_told_how_to_add_it(tmp_path: Path) -> None:
    run = build(train_args(write_task(tmp_path), None, "standard"))
    run.task.__class__ = LanguageModelingTask
    with pytest.raises(ValueError, match=r"no objective for LanguageModelingTask.*register_objective"):
        build_objective(run.cfg.criterion, run.task)
