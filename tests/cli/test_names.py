"""The names that are checked before torch is imported are those that the package knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.tasks import TASK_REGISTRY

from fairseq_adv.cli.script import check_name
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.layouts import TASKS
from fairseq_adv.evaluation.predict.benchmarks import PREDICTION_TASKS

pytestmark = pytest.mark.fast


def test_prediction_tasks_name_registered_tasks() -> None:
    used = {name for task in PREDICTION_TASKS for name in task.trained_with}
    assert used <= set(TASK_REGISTRY)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["prepare", "glue", "in", "AGNews", "out"],
            "AGNews: no such GLUE task (for your own data use fairseq-adv prepare classification). Choose",
        ),
        (["predict", "a.pt", "--task", "nope", "--out", "out"], "--task nope: no such task. Choose one of "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_name_is_refused_before_torch_is_imported(
    words: list[str], message: str, tmp_path: Path
) -> None:
    code = f"import sys, fairseq_adv.cli as cli; print(cli.main({words}), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "2 False\n" and done.stderr.startswith(f"error: {message}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_glue_tasks_are_named_in_any_case() -> None:
    check_name("stsb", [task.name for task in TASKS], "")
    with pytest.raises(DataError, match="one of freelb"):
        check_name("FreeLB", ["freelb"], "one of", loosely=False)
