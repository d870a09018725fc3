"""Scores of several models are joined by name: of the row, and of the column."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_scores import NONE, choices, classes

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.ensemble import Scores, join


def test_a_file_gives_back_what_was_written_without_pickle(tmp_path: Path) -> None:
    ranked = choices([["A", "B", ""], ["1", "2", "3"]], [[1, 2, NONE], [3, 2, 1]])
    for scores in (classes(temperature=2.5), ranked):
        path = tmp_path / "scores" / f"{scores.kind}.npz"
        scores.save(path)
        found = Scores.load(path)
        for name in ("ids", "labels", "log_probs", "raw", "gold"):
            assert (getattr(found, name) == getattr(scores, name)).all()
            assert getattr(found, name).dtype.hasobject is False
        for name in ("kind", "task", "split", "made_from", "temperature"):
            assert getattr(found, name) == getattr(scores, name)
        assert [p.name for p in path.parent.iterdir() if p.name.endswith(".tmp")] == []


def test_a_file_of_0_3_has_no_temperature(tmp_path: Path) -> None:
    scores = classes()
    scores.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"]))
    del about["temperature"], about["thresholds"]
    np.savez(tmp_path / "b.npz", **{**arrays, "about": np.array(json.dumps(about))})
    assert Scores.load(tmp_path / "b.npz").temperature == 1


def test_the_mean_of_log_probabilities(tmp_path: Path) -> None:
    other = classes("b", log_probs=np.log(np.array([[0.5, 0.5]] * 3, dtype=np.float32)))
    joined = join([classes(), other])
    expected = (np.log([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]) + np.log(0.5)) / 2
    assert np.allclose(joined.log_probs, expected, atol=1e-6)
    assert joined.log_probs.shape == (3, 2)


def test_a_temperature_is_that_of_a_single_model() -> None:
    member = classes(temperature=2.0)
    alone, joined = join([member]), join([member, member])
    assert np.allclose(alone.shares()[0], [0.75, 0.25])  # the root of 0.9 is three times that of 0.1
    assert np.allclose(joined.shares()[0], [0.9, 0.1])


def test_rows_and_labels_in_another_order_are_put_right() -> None:
    order = [2, 0, 1]
    a = classes()
    b = classes(
        "b", ids=a.ids[order], labels=a.labels[:, ::-1], log_probs=a.log_probs[order][:, ::-1],
        raw=a.raw[order][:, ::-1], gold=a.gold[order],
    )  # fmt: skip
    joined = join([a, b])
    assert np.allclose(joined.log_probs, a.log_probs) and np.allclose(joined.raw, a.raw)


def test_choices_in_another_order_are_put_right() -> None:
    a = choices([["A", "B", ""], ["1", "2", "3"]], [[1, 2, NONE], [4, 5, 6]])
    b = choices([["B", "A", ""], ["3", "1", "2"]], [[20, 10, NONE], [60, 40, 50]], "b")
    assert join([a, b]).raw.tolist() == [[5.5, 11, NONE], [22, 27.5, 33]]


MISMATCHES = [
    ({"ids": np.array(["0", "1", "3"])}, "b: has other rows than a: 2 are in one of them only, such as 2."),
    ({"task": "WNLI"}, "b: its task is 'WNLI', but that of a is 'RTE'"),
    ({"labels": np.array([["yes", "perhaps"]])}, "b: row 0 has the choices yes, perhaps, but in a it has"),
    ({"gold": np.array(["", "yes", "yes"])}, "b: row 1: the right answer is yes, but in a it is no."),
]


@pytest.mark.parametrize(("changes", "message"), MISMATCHES, ids=range(len(MISMATCHES)))
def test_members_that_differ_are_refused_by_row(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        join([classes(), classes("b", **changes)])


def test_members_with_other_texts_are_refused(tmp_path: Path) -> None:
    """Their ids are the numbers 0, 1, … as well."""
    none = np.array([""] * 3)
    a = classes(made_from={"rows (sha256)": "1"})
    b = classes("b", made_from={"rows (sha256)": "2"})
    with pytest.raises(DataError, match="b: has scores of other rows than a"):
        join([a, b])
    join([a, replace(b, gold=none)])  # the labels are hashed, too
    with pytest.raises(DataError, match="b: has scores of other rows than a"):
        join([replace(a, gold=none), replace(b, gold=none)])
    join([a, classes("b", made_from={"input file (sha256)": "2"})])


def test_a_known_right_answer_is_kept_whoever_knows_it() -> None:
    joined = join([classes(gold=np.array(["", "", ""])), classes("b")])
    assert joined.gold.tolist() == ["", "no", "yes"]
