"""QNLI's rows from ranked questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_scores import NONE, choices

from fairseq_adv.data.choices.prepare_qnli_ranking import DEV_ROWS, prepare_pairs
from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.ensemble import join
from fairseq_adv.evaluation.predict.glue_rows import qnli_rows

YES, NO = "entailment", "not_entailment"


def test_the_best_of_a_question_is_entailed_whatever_its_place() -> None:
    found = qnli_rows(join([choices([["3", "0"], ["1", "2"]], [[2, 1], [5, 6]])]))
    assert found.answers == [NO, NO, YES, YES] and found.notes == []


def test_right_choices_are_no_right_answers_of_rows() -> None:
    scores = choices([["0", "1"], ["2", "3"]], [[2, 1], [5, 6]], gold=np.array(["0", "3"]))
    assert qnli_rows(join([scores])).measured("QNLI") == {}


def test_right_answers_are_those_of_the_rows_numbers(tmp_path: Path) -> None:
    """Not those of the file's order."""
    head, lines = "index\tquestion\tsentence\tlabel", [f"1\ta\tb\t{YES}", f"2\ta\tb\t{YES}", f"0\ta\tb\t{NO}"]
    (tmp_path / "dev.tsv").write_text("\n".join([head, *lines]) + "\n")
    scores = join([choices([["0", "1"], ["2", "dev-0"]], [[1, 2], [2, 1]])])
    assert list(qnli_rows(scores, tmp_path / "dev.tsv").gold) == [NO, YES, YES]
    (tmp_path / "dev.tsv").write_text("\n".join([head, *lines[1:], f"3\ta\tb\t{YES}"]) + "\n")
    with pytest.raises(DataError, match="3 were predicted, or they have other numbers"):
        qnli_rows(scores, tmp_path / "dev.tsv")


def test_a_partner_of_another_split_takes_part_and_is_left_out() -> None:
    found = qnli_rows(join([choices([["dev-7", "0"], ["1", "train-0"]], [[2, 1], [2, 1]])]))
    assert found.answers == [NO, YES]


def test_a_tie_goes_to_the_lower_row_and_is_told() -> None:
    scores = choices(
        [["10", "9"], ["dev-1", "0"]] + [[str(i), str(i + 1)] for i in (1, 3, 5, 7)], [[1, 1]] * 6
    )
    found = qnli_rows(join([scores]))
    assert found.answers[9:] == [YES, NO]  # by number, not by text
    assert found.answers[0] == YES  # a row of the file before one of another split
    assert found.notes == ["6 of 6 questions are tied; the lower row was chosen"]
    assert found.tied.all()  # so that none of them is counted as right


def test_a_single_row_is_compared_with_the_midpoint_of_the_split() -> None:
    # Winners 4 and 6 (mean 5), losers 0 and 2 (mean 1): the midpoint is 3.
    labels = [["0", "1"], ["2", "3"], ["4", ""], ["5", ""]]
    found = qnli_rows(join([choices(labels, [[4, 0], [2, 6], [3.1, NONE], [2.9, NONE]])]))
    assert found.answers == [YES, NO, NO, YES, YES, NO]
    assert found.notes == ["2 rows without a partner were answered by the midpoint of the scores"]


def test_an_ensemble_adds_raw_scores() -> None:
    labels = [["0", "1"], ["2", ""]]
    members = [
        choices(labels, [[1, 0], [2, NONE]], "a"),
        choices(labels, [[1, 0], [2, NONE]], "b"),
        choices(labels, [[0, 9], [0, NONE]], "c"),
    ]
    # Mean scores 2/3 and 3 with the midpoint 11/6; the single row's mean is 4/3.
    assert qnli_rows(join(members)).answers == [NO, YES, NO]


def test_missing_repeated_and_incomparable_rows() -> None:
    with pytest.raises(DataError, match="row 1 of QNLI is in no question"):
        qnli_rows(join([choices([["0", "2"]], [[1, 2]])]))
    with pytest.raises(DataError, match="question q1: row 0 is already in another question"):
        qnli_rows(join([choices([["0", "1"], ["0", "2"]], [[1, 2], [1, 2]])]))
    with pytest.raises(DataError, match="no question has two sentences"):
        qnli_rows(join([choices([["0"], ["1"]], [[1], [2]])]))


@pytest.mark.slow
def test_every_row_of_the_real_files_gets_an_answer(shared_data: Path, tmp_path: Path) -> None:
    prepare_pairs(shared_data / "glue" / "QNLI", tmp_path / "QNLI")
    rng = np.random.default_rng(0)
    for split, pairs in (("test", 1362), (DEV_ROWS, 1361)):
        questions = read_questions(tmp_path / "QNLI" / f"{split}.jsonl")
        width = max(len(q.choices) for q in questions)
        labels = [[c.label for c in q.choices] + [""] * (width - len(q.choices)) for q in questions]
        values = [[rng.normal() if label else NONE for label in row] for row in labels]
        found = qnli_rows(join([choices(labels, values)]))
        assert len(found.answers) == 5463
        own = [[label for label in row if label.isdigit()] for row in labels]
        entailed = [sum(found.answers[int(label)] == YES for label in row) for row in own if len(row) == 2]
        assert entailed == [1] * pairs
