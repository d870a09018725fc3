"""Data of one's own, without --task: classes with names, numbers, splits with and without labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import write_task
from tiny import kept, rename_labels, save, with_test_splits

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_folder import known_labels
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.ensemble import TEXTS
from fairseq_adv.evaluation.predict.predict import Predicted, Request, predict
from fairseq_adv.evaluation.validate import evaluate
from fairseq_adv.hub.export import _known_classes
from fairseq_adv.hub.trained_checkpoint import read_trained

NAMES = ("World", "Sports", "Sci/Tech")


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three classes, and two checkpoints beside it."""
    folder = tmp_path_factory.mktemp("news")
    data = rename_labels(with_test_splits(write_task(folder / "data", classes=3), test=9), *NAMES)
    save(data, folder / "a.pt", classes=3)
    save(data, folder / "b.pt", "--seed", "8", "--task", "text_classification", classes=3)
    return folder


def run(out: Path, *checkpoints: Path, data: Path, split: str = "test", **more: object) -> Predicted:
    how = InferenceConfig(cpu=True)
    return predict(Request(None, out, checkpoints, data=data, split=split, running=how, **more))  # type: ignore[arg-type]


def table(path: Path) -> tuple[list[str], list[list[str]]]:
    head, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    return head, rows


def test_a_split_without_labels(news: Path, tmp_path: Path) -> None:
    result = run(tmp_path, news / "a.pt", data=news / "data")
    assert result.file == tmp_path / "predictions.tsv" and result.rows == 9 and result.measured == {}
    head, rows = table(result.file)
    assert head == ["index", "prediction", *NAMES] and [row[0] for row in rows] == [str(i) for i in range(9)]
    shares = np.array([[float(cell) for cell in row[2:]] for row in rows])
    np.testing.assert_allclose(shares, np.exp(kept(tmp_path)[0].log_probs), atol=1e-6)
    assert [row[1] for row in rows] == [NAMES[k] for k in shares.argmax(axis=1)]
    assert len({row[1] for row in rows}) > 1


@pytest.mark.parametrize(
    "made_from",
    [
        {"rows (sha256)": {"valid": "1", "test": "2"}},
        {"task": "MNLI", "input files (sha256)": {"dev_matched.tsv": "1", "test_matched.tsv": "2"}},
    ],
)
def test_scores_tell_which_texts_they_are_of(news: Path, tmp_path: Path, made_from: dict[str, Any]) -> None:
    """Whatever the tokenizer is."""
    data = shutil.copytree(news / "data", tmp_path / "data")
    (data / "manifest.json").write_text(json.dumps({"made_from": made_from}))
    run(tmp_path / "new", news / "a.pt", data=data)
    assert [name for name in kept(tmp_path / "new")[0].made_from if name in TEXTS] == [
        name for name in TEXTS if name[:4] == next(reversed(made_from))[:4]
    ]
    other = next((tmp_path / "new" / "scores").iterdir())
    about = (data / "manifest.json").read_text()
    (data / "manifest.json").write_text(about.replace('"2"', '"3"'))
    with pytest.raises(DataError, match="has scores of other rows than"):
        run(tmp_path / "out", news / "b.pt", data=data, scores=[other])


def test_a_split_with_labels_is_measured_and_models_join(news: Path, tmp_path: Path) -> None:
    result = run(tmp_path / "both", news / "a.pt", news / "b.pt", data=news / "data", split="valid")
    assert result.file.name == "predictions-valid.tsv" and result.members == 2
    _, rows = table(result.file)
    gold = kept(tmp_path / "both")[0].gold.tolist()
    right = sum(row[1] == name for row, name in zip(rows, gold))
    assert result.measured == {"accuracy": pytest.approx(100 * right / len(gold))}
    files = sorted((tmp_path / "both" / "scores").iterdir())
    again = run(tmp_path / "again", data=news / "data", split="valid", scores=files)
    assert table(again.file) == table(result.file) and again.measured == result.measured


def test_numbers(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", classes=1)
    result = run(tmp_path / "out", save(data, tmp_path / "a.pt", classes=1), data=data, split="valid")
    head, rows = table(result.file)
    assert head == ["index", "prediction"]
    values = [float(value) for _, value in rows]
    np.testing.assert_allclose(values, kept(tmp_path / "out")[0].log_probs[:, 0], atol=1e-6)
    gold = [float(line) for line in (data / "label" / "valid.label").read_text().split()]
    assert result.measured["pearson"] == pytest.approx(100 * np.corrcoef(values, gold)[0, 1], abs=1e-2)


def test_what_the_checkpoint_says_of_its_classes_counts_most(news: Path) -> None:
    task = {"data": str(news / "data"), "class_names": None}
    assert known_labels(SimpleNamespace(task=SimpleNamespace(**task)), None) == list(NAMES)
    task["class_names"] = ["a", "b"]  # type: ignore[assignment]
    assert known_labels(SimpleNamespace(task=SimpleNamespace(**task)), None) == ["a", "b"]
    assert known_labels(SimpleNamespace(task=SimpleNamespace(data="gone")), {}) == []


def test_classes_in_another_order_than_in_training_are_refused(news: Path, tmp_path: Path) -> None:
    """fairseq's own task keeps no names in a checkpoint: they are in the folder that it was trained on."""
    data = shutil.copytree(news / "data", tmp_path / "data")
    checkpoint = save(data, tmp_path / "a.pt", classes=3)
    assert run(tmp_path / "out", checkpoint, data=data, split="valid").rows == 8
    names = data / "label" / "dict.txt"
    first, second, *rest = names.read_text().splitlines(keepends=True)
    names.write_text("".join([second, first, *rest]))
    for opens in (
        lambda: run(tmp_path / "again", checkpoint, data=data, split="valid"),
        lambda: evaluate(str(checkpoint)),
        lambda: _known_classes(read_trained(checkpoint)),
    ):
        with pytest.raises(DataError, match=r"label/dict.txt: has other classes, or another order of them"):
            opens()
    # The folder is gone, and the data has another order: nothing tells the classes' names but a digest.
    other = data.rename(tmp_path / "other")
    for opens in (
        lambda: run(tmp_path / "more", checkpoint, data=other, split="valid"),
        lambda: evaluate(str(checkpoint), str(other)),
    ):
        with pytest.raises(DataError, match=r"other/label/dict.txt: has other classes, or another order of"):
            opens()
    (other / "label" / "dict.txt").write_text("".join([first, second, *rest]))
    assert run(tmp_path / "more", checkpoint, data=other, split="valid").rows == 8


def test_gold_is_for_qnli(news: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--gold is for --task QNLI"):
        run(tmp_path / "out", news / "a.pt", data=news / "data", gold=tmp_path)
    assert not (tmp_path / "out").exists()
