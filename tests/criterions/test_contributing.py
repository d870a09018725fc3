"""The examples of CONTRIBUTING.md, a method and an objective, train. That of a task: tests/tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from support import (
    ADVERSARIAL,
    VIRTUAL,
    batch,
    build,
    flat_gradient,
    train_args,
    write_task,
)  # fmt: skip

from criterions.restated import change
from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.objectives import Objective, register_objective


@register_task("my_task", dataclass=SentencePredictionConfig)
class MyTask(SentencePredictionTask):
    """A task from elsewhere."""


@pytest.fixture(scope="module")
def examples(repo: Path) -> dict[str, Any]:
    """What the examples define."""
    text = (repo / "CONTRIBUTING.md").read_text(encoding="utf-8")
    used = [
        AdversarialMethod, F, Log, Logged, MiniBatch, MyTask, Objective, Path, PerturbationConfig, batch,
        build, flat_gradient, register_criterion, register_objective, torch, train_args, write_task,
    ]  # fmt: skip
    names = {name: value for name, value in globals().items() if any(value is one for one in used)}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "describe_task" in block:
            continue
        code = block.replace('"my_head"', '"sentence_classification_head"')
        exec(compile(code, "CONTRIBUTING.md", "exec", dont_inherit=True), names)  # without our __future__
    return names


@pytest.mark.parametrize(
    ("method", "words"),
    [("random_start", ["--adv-init-mag", "0.3"]), ("freelb", ADVERSARIAL), ("alum_vat", VIRTUAL)],
)
def test_an_update(tmp_path: Path, examples: dict[str, Any], method: str, words: list[str]) -> None:
    data = write_task(tmp_path / "data")
    layout = ["--num-classes", "2", "--init-token", "0", "--separator-token", "2"]
    run = build(train_args(data, None, method, *words, *layout, task="my_task"))
    assert type(run.criterion.objective) is examples["MyObjective"]
    run.trainer.begin_epoch(1)
    assert change(run, [0, 1, 2]).any()
    if method == "random_start":
        assert type(run.criterion) is examples["RandomStartCriterion"]
        assert metrics.get_meter("train", "start_norm").avg > 0.05


def test_the_example_of_a_test_passes(examples: dict[str, Any], tmp_path: Path) -> None:
    examples["test_a_start_of_size_0_is_standard_training"](tmp_path)
