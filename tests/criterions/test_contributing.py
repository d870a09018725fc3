"""The examples of CONTRIBUTING.md, a method, an objective and a task, train."""

from __future__ import annotations

import csv
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
    write_encoder,
    write_task,
)  # fmt: skip

from criterions.restated import change
from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.objectives import Objective, register_objective
from fairseq_adv.tasks.multiple_choice import MultipleChoiceConfig, MultipleChoiceTask


@register_task("my_task", dataclass=SentencePredictionConfig)
class MyTask(SentencePredictionTask):
    """A task from elsewhere."""


@pytest.fixture(scope="module")
def examples(repo: Path) -> dict[str, Any]:
    """What the examples define."""
    text = (repo / "CONTRIBUTING.md").read_text(encoding="utf-8")
    used = [
        AdversarialMethod, Choice, F, Log, Logged, MiniBatch, MultipleChoiceConfig, MultipleChoiceTask,
        MyTask, Objective, Path, PerturbationConfig, Question, batch, build, csv, flat_gradient,
        register_criterion, register_objective, register_task, torch, train_args, write_task,
    ]  # fmt: skip
    names = {name: value for name, value in globals().items() if any(value is one for one in used)}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
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


@pytest.mark.parametrize("method", ["freelb", "alum_vat"])
def test_an_update_of_the_task(tmp_path: Path, examples: dict[str, Any], method: str) -> None:
    write_encoder(tmp_path)
    heads = ["video-id", "startphrase", *(f"ending{i}" for i in range(4)), "label"]
    for split in ("train", "valid"):
        with (tmp_path / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(heads)
            rows.writerows([f"v{n}", "w1 w2", "w3", "w4 w5", "w6", "w7 w8", n % 4] for n in range(6))
    run = build(train_args(tmp_path, None, method, task="swag"))
    assert type(run.task) is examples["SwagTask"]
    sample = batch(run, [1, 2])
    assert sample["target"].tolist() == [1, 2]
    assert sample["net_input"]["src_tokens"].shape[0] == 8
    run.trainer.begin_epoch(1)
    assert change(run, [1, 2]).any()
