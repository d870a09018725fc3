"""Answers from scores: means, ties, and the scores of the answers."""

from __future__ import annotations

import numpy as np
import pytest
from made_scores import NONE, choices

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.decisions import decide, measure
from fairseq_adv.evaluation.predict.ensemble import Scores, join

pytestmark = pytest.mark.fast


def test_answers_are_the_questions_own_labels() -> None:
    joined = join([choices([["A", "B", ""], ["1", "2", "3"]], [[-3, -1, NONE], [-2, -2.5, -0.1]])])
    assert decide(joined).answers == ["B", "3"]


def test_a_tie_is_told_and_is_no_right_answer() -> None:
    joined = join([choices([["A", "B"], ["A", "B"]], [[-1, -1], [-2, -1]])])
    found = decide(joined)
    assert found.answers == ["A", "B"] and found.tied.tolist() == [True, False]
    assert found.notes == ["1 of 2 rows are tied; the first of the best was chosen"]
    assert measure("arc", found.answers, ["A", "B"], found.tied) == {"accuracy": 50.0}


def phrases(values: list[list[float]], name: str = "a") -> Scores:
    raw = np.array(values, dtype=np.float32)
    labels = np.array([[f"p{k}" if np.isfinite(v) else "" for k, v in enumerate(row)] for row in values])
    ids = np.array([str(i) for i in range(len(values))])
    return Scores("phrases", "wsc", "test", ids, labels, raw, raw, np.full(len(values), ""), {}, name)


def test_the_query_must_not_be_worse_than_any_candidate() -> None:
    found = decide(join([phrases([[-1, -2, -3], [-1, -0.5, NONE], [-1, -1, NONE], [-9, NONE, NONE]])]))
    assert found.answers == ["True", "False", "True", "True"]
    assert found.notes == ["1 of 4 sentences have no candidates: answered with True"]


def test_a_sentence_without_a_query_is_named() -> None:
    with pytest.raises(DataError, match="row 1: no query"):
        decide(join([phrases([[-1, -2], [NONE, -1]])]))


def numbers(values: list[float], name: str = "a") -> Scores:
    column = np.array(values, dtype=np.float32)[:, None]
    ids = np.array([str(i) for i in range(len(values))])
    gold = np.full(len(values), "")
    return Scores("values", "STS-B", "test", ids, np.array([["value"]]), column, column, gold, {}, name)


def test_numbers_have_a_mean() -> None:
    joined = join([numbers([0.25, 1.0]), numbers([0.75, 0.5], "b")])
    assert [float(answer) for answer in decide(joined).answers] == [0.5, 0.75]


def test_scores_against_scikit_learn() -> None:
    from scipy import stats
    from sklearn import metrics

    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, 60)
    found = np.where(rng.random(60) < 0.7, gold, 1 - gold)
    names = [str(v) for v in found], [str(v) for v in gold]
    untied = np.zeros(60, dtype=bool)
    cola = measure("CoLA", *names, untied)
    assert cola["accuracy"] == pytest.approx(100 * metrics.accuracy_score(gold, found))
    assert cola["mcc"] == pytest.approx(100 * metrics.matthews_corrcoef(gold, found))
    assert measure("MRPC", *names, untied)["f1"] == pytest.approx(100 * metrics.f1_score(gold, found))
    x, y = rng.random(60), rng.random(60)
    stsb = measure("STS-B", [str(v) for v in x], [str(v) for v in y], untied)
    assert stsb["pearson"] == pytest.approx(100 * stats.pearsonr(x, y)[0])
    assert stsb["spearman"] == pytest.approx(100 * stats.spearmanr(x, y)[0])


def test_rows_whose_answer_is_not_told_do_not_count() -> None:
    assert measure("RTE", ["a", "b", "b"], ["a", "", "a"], np.zeros(3, dtype=bool)) == {"accuracy": 50.0}
    assert measure("RTE", ["a"], [""], np.zeros(1, dtype=bool)) == {}
