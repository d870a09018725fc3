"""The leaderboards' files, letter by letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict import output
from fairseq_adv.evaluation.predict.benchmarks import PREDICTION_TASKS, prediction_task
from fairseq_adv.evaluation.predict.submission import FILES

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "2.500"), (0.0, "0.000"), (1.0, "5.000"), (-0.1, "0.000"), (1.2, "5.000"), (0.12345, "0.617")],
)
def test_a_similarity_is_from_0_to_5(value: float, text: str) -> None:
    assert output.stsb_answer(value) == text


def test_files() -> None:
    assert output.glue_lines(["1", "0"]) == "index\tprediction\n0\t1\n1\t0\n"
    assert output.choice_lines(["Mercury_1", "CSZ,2"], ["A", "4"]) == 'Mercury_1,A\n"CSZ,2",4\n'
    lines = output.wsc_lines(["0", "12"], ["True", "False"]).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"idx": 0, "label": "True"},
        {"idx": 12, "label": "False"},
    ]
    with pytest.raises(DataError, match="row a-1: its idx is not a number"):
        output.wsc_lines(["a-1"], ["True"])


def test_glue_files_are_those_of_the_submission() -> None:
    assert {task.file("test", "csv") for task in PREDICTION_TASKS if task.glue} == set(FILES)
    assert prediction_task("mnlimm").file("test", "csv") == "MNLI-mm.tsv"
    assert prediction_task("MNLI-mm").split("test") == "test1"
    assert prediction_task("MNLI-m").split("test") == "test"


def test_answers_to_other_questions_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "predictions.csv"
    output.refuse_other_questions(path, ["a"])
    path.write_text(output.choice_lines(["a", 'b,"'], ["A", "B"]), encoding="utf-8")
    output.refuse_other_questions(path, ['b,"', "a"])
    with pytest.raises(DataError, match=r"has the answers to other questions \(2, such as a\)"):
        output.refuse_other_questions(path, ["a", "c"])
