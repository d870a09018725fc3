"""A temperature fitted by validate reaches predict, load and export; it changes probabilities alone."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import glue_samples
import numpy as np
import pytest
from support import CommandMain
from tiny import glue_model, save

from fairseq_adv import load
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.temperature import temperature_file
from fairseq_adv.evaluation.class_report import expected_calibration_error, softmax
from fairseq_adv.evaluation.predict.decisions import Prediction
from fairseq_adv.evaluation.validate import Validated, calibrate, evaluate
from fairseq_adv.hub.export import export_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/, a.pt, and b.pt that is not calibrated."""
    folder = glue_model(tmp_path_factory.mktemp("calibrate"), "RTE")
    save(folder / "data", folder / "b.pt", "--max-positions", "64", "--seed", "8")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> dict[str, CommandMain]:
    return {verb: CommandMain(verb, capsys) for verb in ("validate", "predict")}


def test_a_temperature_changes_probabilities_alone(
    folder: Path, tmp_path: Path, run: dict[str, CommandMain]
) -> None:
    for name in ("a.pt", "b.pt"):
        shutil.copy(folder / name, tmp_path / name)
    checkpoint, texts = tmp_path / "a.pt", glue_samples.pairs()

    def answers(*paths: Path) -> list[Prediction]:
        return load(paths, device="cpu", data=folder / "data").predict(texts)

    def shares(found: list[Prediction]) -> np.ndarray:
        return np.array([list(one.probabilities.values()) for one in found])

    words = ["--data", folder / "data", "--cpu"]
    before, both = answers(checkpoint), answers(checkpoint, tmp_path / "b.pt")
    plain = run["validate"](checkpoint, *words)
    valid = [*words, "--split", "valid", "--out", tmp_path / "out", "--json"]
    uncalibrated = json.loads(run["predict"](checkpoint, *valid).stdout)
    refused = run["validate"](checkpoint, *words, "--split", "test", "--calibrate")
    assert refused.returncode == 2 and "a temperature must not be fitted on a test split" in refused.stderr
    done = run["validate"](checkpoint, *words, "--calibrate")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(plain.stdout)
    kept = json.loads(temperature_file(checkpoint).read_text())
    temperature = kept["temperature"]
    assert f"wrote {temperature_file(checkpoint)}, which predict, load and export use" in done.stdout
    assert kept["split"] == "valid" and abs(temperature - 1) > 0.05
    after = answers(checkpoint)
    assert [one.label for one in after] == [one.label for one in before]
    np.testing.assert_allclose(shares(after), softmax(np.log(shares(before)), temperature), atol=1e-5)
    assert np.abs(shares(after) - shares(before)).max() > 1e-3
    assert answers(checkpoint, tmp_path / "b.pt") == both  # an ensemble has no temperature
    # predict on a split, and again from the scores that it kept
    found = [json.loads(run["predict"](checkpoint, *valid).stdout) for _ in range(2)]
    # and from these alone; the first of them were made before the temperature
    scores = next((tmp_path / "out" / "scores").iterdir())
    words_alone = ["--split", "valid", "--out", tmp_path / "alone", "--json", "--scores", scores]
    assert json.loads(run["predict"](*words_alone).stdout)["ece"] == found[0]["ece"] != uncalibrated["ece"]
    again = json.loads(run["validate"](checkpoint, *words, "--json").stdout)
    assert found[0] == found[1] and found[0]["confusion"] == again["confusion"]
    assert found[0]["ece"] == pytest.approx(again["calibrated_ece"], abs=1e-5)
    assert again["temperature"] == temperature and again["ece"] != again["calibrated_ece"]


def test_answers_that_are_not_finite_have_no_report() -> None:
    """A choice that a question doesn't have is -inf."""
    right = np.zeros(2, np.int64)
    for last, is_there in ((math.nan, False), (-math.inf, True)):
        logits = np.array([[1.0, 0.0], [1.0, last]], np.float32)
        assert (Validated({}, ["0", "1"], logits, right).report() is not None) == is_there


@pytest.mark.parametrize(
    ("logits", "right", "message"),
    [
        ([[3.0, 0], [0, 1]], [0, 1], "the temperature 0.05 is a bound"),  # all are right
        ([[3.0, 0], [0, 1]], [1, 0], "the temperature 20 is a bound"),
        ([[math.nan, 0], [0, 1]], [0, 1], None),
        ([[3.0, 0], [0, 1], [2, 0]], [0, 1, 1], ""),
    ],
)
def test_a_temperature_that_means_nothing_is_told_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, logits: list[Any], right: list[int], message: str | None
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"weights")
    found = Validated({}, ["0", "1"], np.array(logits, np.float32), np.array(right))
    if message is None:
        with pytest.raises(DataError, match=r"--calibrate: .*a\.pt: the logits are not finite"):
            calibrate(path, found, "valid")
        assert not temperature_file(path).exists()
    else:
        calibrate(path, found, "valid")
        assert len(caplog.messages) == bool(message) and message in caplog.text


def test_the_report_is_that_of_the_logits(folder: Path, run: dict[str, CommandMain]) -> None:
    words = [folder / "b.pt", "--data", folder / "data", "--cpu"]
    found = json.loads(run["validate"](*words, "--json", "--batch-size", "3").stdout)
    evaluated = evaluate(str(folder / "b.pt"), str(folder / "data"), cpu=True)
    matrix = np.array(found["confusion"])
    assert matrix.sum() == found["examples"] == len(evaluated.right)
    assert 100 * matrix.trace() / matrix.sum() == pytest.approx(found["accuracy"], abs=0.01)
    ece = expected_calibration_error(softmax(evaluated.logits), evaluated.right)
    assert found["ece"] == pytest.approx(ece, abs=1e-5) and "temperature" not in found
    assert set(found["classes"]) == {"entailment", "not_entailment"}
    table = run["validate"](*words).stdout
    assert "entailment " in table and f"ECE (15 bins): {ece:.4f}" in table


def test_labels_of_a_file(folder: Path, tmp_path: Path, run: dict[str, CommandMain]) -> None:
    rows = [f'"{a}"\t"{b}"'.replace('"', "") for a, b in [("The film", "A film"), ("One", "Two")]]
    file = tmp_path / "a.tsv"
    file.write_text("a\tb\tlabel\n" + "".join(f"{row}\tentailment\n" for row in rows))
    words = [folder / "b.pt", "--data", folder / "data", "--input", file, "--text", "a", "--text-pair", "b"]
    done = run["predict"](*words, "--cpu", "--label", "label")
    assert done.returncode == 0 and done.stdout.count("\n") == 3  # the answers alone
    assert "accuracy: " in done.stderr and "ECE (15 bins): " in done.stderr
    done = run["predict"](*words, "--cpu", "--label", "label", "--out", tmp_path, "--json")
    found = json.loads(done.stdout)
    lines = (tmp_path / f"predictions-{file.stem}.tsv").read_text().splitlines()
    answers = [line.split("\t")[1] for line in lines]
    assert found["rows"] == 2 and found["classes"]["entailment"]["support"] == 2
    assert found["accuracy"] == 50 * answers.count("entailment")
    file.write_text(file.read_text().replace("Two\tentailment", "Two\tyes"))
    done = run["predict"](*words, "--cpu", "--label", "label")
    assert done.returncode == 2
    assert "a.tsv:3: label 'yes' is not a class of the model (entailment, not_entailment)." in done.stderr


def test_an_export_carries_the_temperature(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.pt", tmp_path / "a.pt")
    shutil.copytree(folder / "data" / "tokenizer", tmp_path / "tokenizer")
    export_checkpoint(tmp_path / "a.pt", tmp_path / "plain")
    content = json.dumps({"temperature": 2.5, "checkpoint": sha256_of(tmp_path / "a.pt")})
    temperature_file(tmp_path / "a.pt").write_text(content)
    export_checkpoint(tmp_path / "a.pt", tmp_path / "calibrated")
    plain, calibrated = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("plain", "calibrated")
    )
    assert calibrated == {**plain, "fairseq_adv_temperature": 2.5}
    tensors = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "calibrated")]
    assert tensors[0] == tensors[1]  # the logits are the checkpoint's
    card = (tmp_path / "calibrated" / "README.md").read_text(encoding="utf-8")
    assert "model.config.fairseq_adv_temperature" in card and "2.500 here" in card
    assert "temperature" not in (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    assert export_checkpoint(tmp_path / "a.pt", tmp_path / "calibrated").reused
