"""ALBERT in fairseq's own commands: workers, micro-batches, restarts after kill -9, and the way from and back
to Hugging Face.
"""

from __future__ import annotations

import re
from pathlib import Path

import hf_models
import pytest
import torch
from support import fairseq_train, run_command, slow, train_args, verb, write_task

from fairseq_adv import load
from integration.test_equal_updates import METHODS, OPTIONS, assert_close, run, start_and_kill, state

ALBERT = ["--arch", "albert_base", "--encoder-input-dim", "8", "--pooler-dropout", "0"]


@pytest.mark.parametrize("method", ["freelb", slow("alum_vat"), slow("yopo"), slow("smart")])
def test_whole_equals_update_freq_equals_two_processes(tmp_path: Path, method: str) -> None:
    """As tests/integration/test_equal_updates.py, with a layer that is used twice."""
    data = write_task(tmp_path / "data")
    whole = run(data, tmp_path / "whole", method, *ALBERT, "--batch-size", "16")
    parts = run(data, tmp_path / "parts", method, *ALBERT, "--batch-size", "8", "--update-freq", "2")
    workers = run(data, tmp_path / "workers", method, *ALBERT, "--batch-size", "8", workers=2)
    assert_close(parts, whole, atol=2e-6)
    assert_close(workers, whole, atol=2e-6)


@pytest.mark.parametrize("method", [m if m == "freelb" else slow(m) for m in METHODS])
def test_kill_9_in_mid_epoch_and_restart_equals_uninterrupted(tmp_path: Path, method: str) -> None:
    """With dropout in all places of the shared layer: the same weights and method state, bit for bit."""
    data = write_task(tmp_path / "data", train=64)
    schedule = [
        *ALBERT, "--dropout", "0.1", "--attention-dropout", "0.1", "--max-epoch", "2", "--batch-size", "4",
        "--optimizer", "adam", "--lr", "0.001", "--save-interval-updates", "3",
        "--keep-interval-updates", "1",
    ]  # fmt: skip
    args = train_args(
        data, tmp_path / "killed", method, *OPTIONS[method], *schedule, "--no-epoch-checkpoints"
    )
    killed_at = start_and_kill(args, 1, after_update=4)
    done = fairseq_train(*args)
    resumed = re.search(
        r"Loaded checkpoint .*last.pt \(epoch \d+ @ (\d+) updates\)", done.stdout + done.stderr
    )
    assert resumed and 3 <= int(resumed.group(1)) <= killed_at
    expected = run(data, tmp_path / "straight", method, *schedule)
    killed = state(tmp_path / "killed")
    assert all(torch.equal(killed[name], expected[name]) for name in expected)


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
