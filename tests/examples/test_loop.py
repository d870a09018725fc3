"""examples/loop: both scripts train a tiny model on a csv, by the method that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from hf_models import save_bert
from recipes import ROOT
from safetensors.torch import load_file
from support import load_script

from fairseq_adv.data.errors import DataError

transformers = pytest.importorskip("transformers", reason="both scripts train its models")
pytest.importorskip("accelerate", reason="Trainer needs it")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT without dropout, and texts whose words tell their class."""
    folder = tmp_path_factory.mktemp("loop")
    save_bert(folder / "bert")
    words = [("negative", "a dull film"), ("positive", "never was this so good")]
    for name, count in (("train", 40), ("valid", 12)):
        rows = "".join(f"{words[n % 2][1]} {'and ' * (n % 3)}{n},{words[n % 2][0]}\n" for n in range(count))
        (folder / f"{name}.csv").write_text(f"text,label\n{rows}")
    return folder


def test_the_plain_loop(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It learns, with FreeLB's delta, and the folder has what was scored."""
    files = [str(made / "train.csv"), str(made / "valid.csv")]
    words = [*files, "--model", str(made / "bert"), "--out", str(tmp_path / "out"), "--lr", "1e-2"]
    load_script(ROOT / "examples/loop/train_csv.py").main([*words, "--rows", "4", "--epochs", "4", "--bf16"])
    shown = re.findall(
        r"epoch (\d): loss ([\d.]+), delta ([\d.]+)% .* accuracy ([\d.]+)%", capsys.readouterr().out
    )
    assert [int(line[0]) for line in shown] == [1, 2, 3, 4]
    assert all(1.3 < float(line[2]) < 1.6 for line in shown)  # of its start and two steps in a ball of 2 %
    assert float(shown[-1][1]) < 0.3 and float(shown[-1][3]) == 100
    answer = transformers.pipeline("text-classification", model=str(tmp_path / "out"), device="cpu")
    assert [answer(text)[0]["label"] for text in ("never was this so good", "a dull film")] == [
        "positive",
        "negative",
    ]


def test_the_last_update_of_an_epoch_is_a_mean_too(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 rows in one mini-batch, or in two that are one update, less than --accumulate."""
    found, clip = [], torch.nn.utils.clip_grad_norm_

    def kept(weights: Iterable[torch.Tensor], most: float) -> None:
        found.append(float(clip(weights, float("inf"))))

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", kept)
    files = [str(made / "train.csv"), str(made / "valid.csv")]
    words = [*files, "--model", str(made / "bert"), "--out", str(tmp_path / "out"), "--lr", "1e-12"]
    for more in (["--rows", "40", "--accumulate", "1"], ["--rows", "32", "--accumulate", "9"]):
        load_script(ROOT / "examples/loop/train_csv.py").main([*words, *more, "--epochs", "1"])
    assert found[1] == pytest.approx(found[0], rel=0.3)  # of 32 and 8 rows, and not a ninth of both


def test_trainer(made: Path, tmp_path: Path) -> None:
    """Plain and FreeLB begin alike, also with two mini-batches an update, and end apart."""
    script, logs, weights = load_script(ROOT / "examples/loop/train_glue.py"), {}, {}
    for method in ("none", "FreeLB"):
        for parts in (1, 2):
            out = tmp_path / f"{method}-{parts}"
            words = [
                "--model", made / "bert", "--train_file", made / "train.csv", "--validation_file",
                made / "valid.csv", "--output_dir", out, "--method", method, "--learning_rate", "1e-3",
                "--per_device_train_batch_size", 8 // parts, "--gradient_accumulation_steps", parts, "--bf16",
                "--num_train_epochs", 2, "--logging_steps", 1, "--eval_strategy", "epoch", "--save_strategy",
                "epoch", "--use_cpu", "--report_to", "none", "--disable_tqdm", "true",
            ]  # fmt: skip
            script.main(list(map(str, words)))
            state = json.loads((out / "checkpoint-10/trainer_state.json").read_text())
            logs[method, parts] = state["log_history"]
            weights[method, parts] = torch.cat(
                [one.flatten() for one in load_file(out / "model.safetensors").values()]
            )
    for parts in (1, 2):
        plain, ours = logs["none", parts], logs["FreeLB", parts]
        assert "adv_ratio" not in plain[0] and 0.013 < ours[0]["adv_ratio"] < 0.016
        assert ours[0]["adv_loss_first"] == pytest.approx(plain[0]["loss"], rel=0.02)
        assert ours[0]["adv_loss_last"] > ours[0]["adv_loss_first"]
        assert sum("eval_accuracy" in line for line in ours) == 2
        assert (weights["none", parts] - weights["FreeLB", parts]).norm() > 0.01
        assert ours[0]["loss"] == pytest.approx(logs["FreeLB", 1][0]["loss"], rel=0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("review,stars\nx,1\n", r"bad\.csv: line 2: pass .* and a label$"),
        ("text,label\nx,negative\ny\n", r"bad\.csv: line 3: pass"),
        (
            "text,label\nx,negative\nnice, but long,negative\n",
            r"bad\.csv: line 3: .*; put a text with commas",
        ),
        ("text,label\n", r"bad\.csv: no rows\. Pass a csv with"),
        ("text,label\nx,negative\nx,neutral\n", r"bad\.csv: line 3: .*, one of negative, positive$"),
    ],
    ids=["other columns", "a short row", "a comma", "no rows", "an unknown label"],
)
def test_bad_rows_are_named_before_training(made: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    files = [str(made / "train.csv"), str(tmp_path / "bad.csv")]
    files = files if "one of" in message else files[::-1]
    more = ["--model", str(made / "bert")]
    with pytest.raises(DataError, match=message):
        load_script(ROOT / "examples/loop/train_csv.py").main([*files, *more, "--out", str(tmp_path / "out")])
    named = [word for pair in zip(("--train_file", "--validation_file"), files) for word in pair]
    with pytest.raises(DataError, match=message):
        load_script(ROOT / "examples/loop/train_glue.py").main([*named, *more, "--output_dir", str(tmp_path)])
