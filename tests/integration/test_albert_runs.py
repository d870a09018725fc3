"""ALBERT from a Hugging Face folder to answers and back, by the commands of the README."""

from __future__ import annotations

from pathlib import Path

import hf_models
import pytest
from support import run_command, verb

from fairseq_adv import load


def test_from_a_hugging_face_folder_to_answers_and_back(tmp_path: Path) -> None:
    """By the commands of the README: what transformers answers with the export is what predict answers."""
    transformers = pytest.importorskip("transformers")
    hf_models.save_albert(tmp_path / "hf", hidden_dropout_prob=0.1)
    rows = [f"{text}\t{'long' if len(text) > 60 else 'short'}" for text in hf_models.SENTENCES]
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *rows * 4]) + "\n", encoding="utf-8")
    encoder, data, save = (str(tmp_path / name) for name in ("encoder", "data", "save"))
    command("convert", str(tmp_path / "hf"), encoder)
    named = ["--text", "text", "--label", "label", "--encoder", encoder]
    command("prepare classification", str(tmp_path / "rows.tsv"), *named, data)
    more = ["--encoder", encoder, "--criterion", "freelb", "--save-dir", save, "--cpu", "--max-epoch", "2"]
    command("train", data, *more, "--batch-size", "4", "--lr", "0.01")
    checkpoint = str(tmp_path / "save" / "checkpoint_last.pt")
    answers = load(checkpoint, device="cpu").predict(hf_models.SENTENCES)
    command("export", checkpoint, str(tmp_path / "export"))
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path / "export"), top_k=None)
    assert pipeline.model.config.model_type == "albert"
    for text, ours in zip(hf_models.SENTENCES, answers):
        theirs = {one["label"]: one["score"] for one in pipeline([text])[0]}
        assert theirs == pytest.approx(ours.probabilities, abs=1e-5)
    assert len({round(one.probabilities["long"], 3) for one in answers}) > 5


def command(name: str, *words: str) -> None:
    done = run_command(*verb(name), *words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
