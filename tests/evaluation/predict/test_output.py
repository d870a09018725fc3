"""The leaderboards' files, letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.benchmarks import FILES, prediction_task

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("task", "ids", "answers", "text"),
    [
        ("RTE", ["b", "a"], ["1", "0"], "index\tprediction\n0\t1\n1\t0\n"),
        ("arc", ["Mercury_1", "CSZ,2"], ["A", "4"], 'Mercury_1,A\n"CSZ,2",4\n'),
        ("wsc", ["0", "12"], ["True", "no"], '{"idx": 0, "label": "True"}\n{"idx": 12, "label": "no"}\n'),
        (  # a similarity is from 0 to 5
            "STS-B", "abcdef", ["0.5", "0.0", "1.0", "-0.1", "1.2", "0.12345"],
            "index\tprediction\n0\t2.500\n1\t0.000\n2\t5.000\n3\t0.000\n4\t5.000\n5\t0.617\n",
        ),
    ],
)  # fmt: skip
def test_files(task: str, ids: list[str], answers: list[str], text: str, tmp_path: Path) -> None:
    assert prediction_task(task).text(ids, answers, tmp_path / "new") == text


def test_a_sentence_of_wsc_has_a_number(tmp_path: Path) -> None:
    for odd in ("a-1", "\u00b2", "9" * 5000):
        with pytest.raises(DataError, match=f"row {odd:.40}.* its idx is not a number"):
            prediction_task("wsc").text([odd], ["True"], tmp_path / "new")


def test_glue_files_are_those_of_the_submission() -> None:
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
    assert list(FILES) == [f"{name}.tsv" for name in names.split()]
    assert prediction_task("mnlimm").file("test", "csv") == "MNLI-mm.tsv"
    assert prediction_task("MNLI-mm").split("test") == "test1"
    assert prediction_task("MNLI-m").split("test") == "test"


def test_answers_to_other_questions_are_not_overwritten(tmp_path: Path) -> None:
    path, arc = tmp_path / "predictions.csv", prediction_task("arc")
    path.write_text(arc.text(["a", 'b,"'], ["A", "B"], path), encoding="utf-8")
    arc.text(['b,"', "a"], ["A", "B"], path)
    with pytest.raises(DataError, match=r"has the answers to other questions \(2, such as a\)"):
        arc.text(["a", "c"], ["A", "B"], path)
