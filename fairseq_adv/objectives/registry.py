"""Maps tasks to objectives; other projects can add theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.data.errors import DataError
from fairseq_adv.objectives.base import Objective

_OBJECTIVES: dict[type[FairseqTask], type[Objective]] = {}
_Class = TypeVar("_Class", bound=type[Objective])


def register_objective(task_class: type[FairseqTask]) -> Callable[[_Class], _Class]:
    """Class decorator: registers the objective of a task and of its subclasses without one of their own.

    Raises:
        ValueError: the task already has another objective.
    """

    def register(objective_class: _Class) -> _Class:
        other = _OBJECTIVES.setdefault(task_class, objective_class)
        if other is not objective_class:
            raise ValueError(f"{task_class.__name__} already has the objective {other.__name__}")
        return objective_class

    return register


def build_objective(cfg: Any, task: FairseqTask) -> Objective:
    """The objective for ``task``, or for the nearest of its base classes that has one.

    Args:
        cfg: the criterion's options.
        task: the fairseq task.

    Raises:
        DataError: there is no objective for this task, or the options don't match the task.
    """
    for task_class in type(task).__mro__:
        if task_class in _OBJECTIVES:
            return _OBJECTIVES[task_class](cfg, task)
    known = ", ".join(sorted(task_class.__name__ for task_class in _OBJECTIVES))
    raise DataError(
        f"no objective for {type(task).__name__}; the adversarial criterions train {known}. Choose "
        "another --task, another --criterion, or write an objective and register it with "
        "@fairseq_adv.objectives.register_objective (CONTRIBUTING.md)."
    )
