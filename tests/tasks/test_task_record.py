"""The record of a task: a new task needs nothing else, and nothing else knows tasks by name."""

from __future__ import annotations

import ast
import csv
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import hf_encoders
import pytest
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from support import VOCABULARY, fork_command

import fairseq_adv.registration  # noqa: F401
from fairseq_adv.evaluation.predict.benchmarks import prediction_task
from fairseq_adv.hub.trained_checkpoint import CLASS_SUFFIX
from fairseq_adv.objectives import Objective
from fairseq_adv.tasks import task_record
from fairseq_adv.tasks.choices_record import CHOICES
from fairseq_adv.tasks.commonsense_qa import CommonsenseQATask
from fairseq_adv.tasks.scheduled_masked_lm import ScheduledMaskedLMTask

# Where a name means something else than the task, or the value of predict --task of the same name.
NAMES_ELSEWHERE = {
    "data/wsc/noun_phrases.py": {"wsc"},  # the result's name
    # The help of predict --task, which doesn't import the records.
    "evaluation/predict/benchmarks.py": {"commonsense_qa", "qnli_ranking", "wsc", "tagging"},
    "evaluation/word_attacks/report.py": {"masked_lm"},  # a source of substitutes
    "evaluation/word_attacks/resources.py": {"masked_lm"},
    "evaluation/attack_settings.py": {"masked_lm"},
    # What a folder of transformers would be if it were a checkpoint.
    "hub/classifier_folder.py": {"text_classification", "multi_label"},
    "loop/hf_trainer.py": {"multi_label"},  # an option of methods
    "hub/convert.py": {"masked_lm"},  # fairseq's pre-training command, which conversion imitates
}


def test_the_new_task_of_contributing_needs_only_its_own_file(repo: Path, tmp_path: Path) -> None:
    """It is found in the data, trained, answered as the last line says, and exported."""
    text = (repo / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "SwagTask" in block)
    own, data, out = tmp_path / "swag_task", tmp_path / "swag", tmp_path / "out"
    for folder in (own, data):
        folder.mkdir()
    (own / "__init__.py").write_text(code, encoding="utf-8")
    for split in ("train", "valid"):
        with (data / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["video-id", "startphrase", *(f"ending{i}" for i in range(4)), "label"])
            rows.writerows([f"v{n}", "w1 w2", "w3", "w4 w5", "w6", "w7 w8", n % 4] for n in range(6))
    encoder = tmp_path / "encoder"
    hf_encoders.save_encoder(encoder, "bert", VOCABULARY)
    quick = ["--user-dir", str(own), "--batch-size", "4", "--max-epoch", "1", "--cpu", "--num-workers", "0"]
    trained = fork_command(
        "fairseq-adv", "train", str(data), "--encoder", str(encoder), "--save-dir", str(out), *quick
    )
    assert trained.returncode == 0, trained.stderr[-2000:]
    assert "4 updates" not in trained.stdout and "2 updates" in trained.stdout, "they are counted"
    assert "'--task', 'swag'" in str(shlex.split((out / "train.log").read_text().splitlines()[0]))
    after = trained.stdout.splitlines()[-1].replace("next: fairseq-adv ", "")
    after = after.replace("--out OUT", f"--out {tmp_path}/answers")
    answered = fork_command("fairseq-adv", *shlex.split(after), "--cpu")
    assert answered.returncode == 0 and "accuracy" in answered.stdout, (after, answered.stderr)
    (answers,) = (tmp_path / "answers").glob("predictions*.tsv")
    assert len(answers.read_text().splitlines()) == 7, "a header and a line for each question"
    again = fork_command("fairseq-adv", *shlex.split(after), "--cpu", "--task", "SWAG")
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / "answers" / "predictions-valid.csv").read_text().splitlines()) == 6
    words = [str(out / "checkpoint_best.pt"), str(tmp_path / "hf"), "--user-dir", str(own)]
    exported = fork_command("fairseq-adv", "export", *words)
    assert exported.returncode == 0 and "AutoModelForMultipleChoice" in exported.stdout, exported.stderr
    assert "It scores the choices of a question" in (tmp_path / "hf" / "README.md").read_text()


def test_names_of_tasks_stand_only_in_their_own_files(repo: Path) -> None:
    names = {*task_record.described_tasks(), "scheduled_masked_lm"}
    found: dict[str, set[str]] = {}
    package = repo / "fairseq_adv"
    for path in package.rglob("*.py"):
        if path.parent.name == "tasks":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                found.setdefault(path.relative_to(package).as_posix(), set()).add(node.value)
    assert found == NAMES_ELSEWHERE


@pytest.mark.parametrize("name", [*task_record.described_tasks(), "scheduled_masked_lm"])
def test_what_a_record_names_exists(name: str) -> None:
    record = task_record.record_named(name)
    assert record is not None and record.card is not None
    assert issubclass(task_record.load(record.objective), Objective)
    if record.predictor:
        assert hasattr(task_record.load(record.predictor), "split")
    for card in filter(None, (record.card, record.regression_card)):
        assert card.model in CLASS_SUFFIX.values()
        compile(card.use("a-folder", Path("data")), "card", "exec")


def test_a_record_holds_for_subclasses_and_for_tasks_of_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    class Derived(CommonsenseQATask):
        """Of a user."""

    record_of = task_record.record_of
    assert record_of(Derived) is record_of(CommonsenseQATask) is not CHOICES
    assert record_of(ScheduledMaskedLMTask) is record_of(MaskedLMTask) is not None
    assert record_of(SentencePredictionTask) is not None
    monkeypatch.setitem(TASK_REGISTRY, "derived", Derived)
    assert "derived" not in task_record.described_tasks(), "it recognises nothing"
    for odd in (None, "nope", ["wsc"], {}):
        assert task_record.record_named(odd) is None
    own: dict[type, Any] = dict(task_record._RECORDS)
    monkeypatch.setattr(task_record, "_RECORDS", own)
    file = task_record.AnswerFile("own.txt", lambda ids, answers: f"{ids} {answers}")
    record = replace(CHOICES, recognises=Path.is_dir, benchmarks=("own",), answer_file=file)
    task_record.describe_task(Derived, record)
    benchmark = prediction_task("Own")
    assert (benchmark.name, benchmark.file("valid", "tsv")) == ("own", "own-valid.txt")
    assert benchmark.text(["a"], ["1"], Path()) == "['a'] ['1']"
    assert next(iter(task_record.described_tasks())) == "derived", "the last one is asked first"
    with pytest.raises(ValueError, match="Derived already has a record"):
        task_record.describe_task(Derived, CHOICES)
