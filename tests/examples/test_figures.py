"""The figures of Flooding-X, on the logs and checkpoints of real trainings."""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from run_samples import line, write_run
from support import batch, build, fairseq_train, load_script, train_args, write_task

from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv.evaluation.trained import load
from fairseq_adv.perturbation import geometry

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "flooding" / "figures.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings, measured/ (no flooding) and flooded/, measured every third update; epochs of 6."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_task(folder / "data", train=24)
    for name, level in (("measured", "0"), ("flooded", "0.6")):
        fairseq_train(
            *train_args(data, folder / name, "flooding", "--flood-level", level),
            "--accordance-interval", "3", "--accordance-batches", "3", "--accordance-batch-size", "8",
            "--no-last-checkpoints",
        )  # fmt: skip
    return folder


@pytest.fixture
def figures() -> ModuleType:
    return load_script(SCRIPT)


def run(figures: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["figures.py", *map(str, words)])
    status: int = figures.main()
    return status


def rows(out: Path) -> list[dict[str, str]]:
    with open(f"{out}.csv", newline="") as file:
        return list(csv.DictReader(file))


def is_png(out: Path) -> bool:
    return Path(f"{out}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_figure_3_from_a_run_and_from_the_checkpoints(
    trained: Path, tmp_path: Path, figures: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same batches are drawn with the training's --seed; the model has no dropout."""
    out = tmp_path / "new" / "run"
    assert run(figures, monkeypatch, "log", trained / "measured", out) == 0 and is_png(out)
    measured = {
        str(int(line.values["accordance_update"])): line.values
        for line in read_metrics(trained / "measured").lines
        if "accordance_update" in line.values
    }
    found = {row["update"]: row for row in rows(out)}
    assert found.keys() == measured.keys() == {"3", "6", "9", "12"}
    for update, values in measured.items():
        row = found[update]
        for group in ("all", "encoder", "head"):
            cosine = values[f"accordance_{group}"]
            assert float(row[f"cosine_{group}"]) == pytest.approx(cosine, rel=1e-5)
            assert float(row[f"eq13_{group}"]) == pytest.approx(cosine / 2, rel=1e-5)
        assert float(row["train_loss_nats"]) == pytest.approx(values["accordance_loss_nats"], rel=1e-5)

    checkpoints = [trained / "measured" / f"checkpoint{epoch}.pt" for epoch in (2, 1)]
    out = tmp_path / "checkpoints"
    words = [*checkpoints, out, "--batches", 3, "--batch-size", 8, "--seed", 7, "--cpu"]
    assert run(figures, monkeypatch, "checkpoints", *words) == 0 and is_png(out)
    assert [row["update"] for row in rows(out)] == ["6", "12"]
    for row in rows(out):
        for name in ("cosine_all", "cosine_head", "dev_loss_nats"):
            assert float(row[name]) == pytest.approx(float(found[row["update"]][name]), abs=2e-4)


def test_crossings_and_the_range_for_b(
    tmp_path: Path, figures: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [(10, -0.5, 0.7), (20, -0.1, 0.5), (30, math.nan, 0.4), (40, 0.05, 0.6), (50, 0.2, 0.2)]
    lines = [
        line(at + 2, "train_inner", accordance_update=at, accordance_all=cosine, accordance_loss_nats=loss)
        for at, cosine, loss in points
    ]
    lines[2]["accordance_all"] = None  # not finite
    folder = write_run(tmp_path / "a", *lines)
    assert run(figures, monkeypatch, "log", folder, tmp_path / "f") == 0
    said = capsys.readouterr().out
    assert "all: updates 20 to 40: up (-0.1000 to +0.0500); training loss 0.5000 and 0.6000 nats" in said
    assert "suggested range for b: 0.5000 to 0.6000 nats" in said
    assert [row["crossing_all"] for row in rows(tmp_path / "f")] == ["", "", "", "up", ""]
    assert run(figures, monkeypatch, "log", folder, tmp_path / "f", "--crossing", "down") == 0
    assert "all: no crossing" in (said := capsys.readouterr().out) and "suggested" not in said


def test_figure_2_has_a_row_for_each_level(
    trained: Path, tmp_path: Path, figures: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [trained / "measured", trained / "flooded"]
    assert run(figures, monkeypatch, "levels", *runs, tmp_path / "f.png") == 0 and is_png(tmp_path / "f")
    assert [row["flood_level_nats"] for row in rows(tmp_path / "f")] == ["0", "0.6"]
    for row in rows(tmp_path / "f"):
        last = read_metrics(trained / row["names"]).of("valid")[-1]
        assert float(row["last_accuracy_mean"]) == last.values["accuracy"]


def test_noise_equals_noise_by_hand(trained: Path, figures: ModuleType) -> None:
    path = trained / "measured" / "checkpoint_best.pt"
    one = load(str(path), None, ["valid"], True)
    found = figures.mean_loss(one, "valid", 3, std=0.7, seed=3, draw=2)
    plain = build(train_args(trained / "data", None, "standard"))
    plain.model.load_state_dict(one.model.state_dict())
    plain.model.eval()
    sample = batch(plain, list(range(8)), "valid")
    tokens, encoder = sample["net_input"]["src_tokens"], plain.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens).detach()
    for row, seed in enumerate(geometry.row_seeds(3, 2, sample["id"].tolist())):
        real = tokens[row].ne(plain.task.source_dictionary.pad())
        noise = torch.randn(int(real.sum()), 16, generator=torch.Generator().manual_seed(seed))
        embedded[row, real] += 0.7 * noise
    features, _ = encoder.extract_features(tokens, token_embeddings=embedded)
    logits = plain.model.classification_heads["sentence_classification_head"](features)
    assert found == pytest.approx(F.cross_entropy(logits, sample["target"].view(-1)).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log", "gone", "f"], "error: gone: has no metrics.jsonl"),
        (["log", "FOLDER/measured", "f", "--group", "body"], "--group body: not measured"),
        (["levels", "FOLDER/measured", "f"], "needs two or more flood levels"),
    ],
)
def test_mistakes_are_told(
    trained: Path, tmp_path: Path, figures: ModuleType, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], words: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(figures, monkeypatch, *(word.replace("FOLDER", str(trained)) for word in words)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ") and message in last and not list(tmp_path.glob("*.csv"))
