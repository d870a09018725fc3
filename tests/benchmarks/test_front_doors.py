"""benchmarks/front_doors.py: both doors get the same settings, it scores as fairseq-adv attack, its table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hf_models import save_bert
from support import load_script

from fairseq_adv.evaluation.attack import Attack, attack_checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import front_doors

pytest.importorskip("transformers", reason="both doors train its models")


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Of a run with a tiny random encoder and 24 reviews."""
    save_bert(tmp_path / "bert", hidden_dropout_prob=0.1)
    (tmp_path / "reviews").mkdir()
    texts = ["a dull film", "never was this so good", "the plot of it", "and then some more"]
    rows = "".join(f"{texts[n % 4]} {n},{['negative', 'positive'][n % 3 % 2]}\n" for n in range(60))
    for name in ("train", "valid", "test"):
        (tmp_path / "reviews" / f"{name}.csv").write_text(f"text,label\n{rows}")
    folders = ["--encoder", str(tmp_path / "bert"), "--reviews", str(tmp_path / "reviews")]
    return [str(tmp_path / "out"), *folders, "--rows", "24", "--precision", "fp32"]


def test_it_scores_as_fairseq_adv_attack(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model that fairseq-adv train has trained; the radius is one that changes answers."""
    monkeypatch.setattr(front_doors, "RADIUS", 0.6)
    options = front_doors.parser().parse_args([*words, "--lr", "3e-3"])
    front_doors.write_rows(options, 3, tmp_path)
    rows = (tmp_path / "train.csv").read_text().splitlines()[1:]
    assert len(set(rows)) == 24 and set(rows) < set((tmp_path / "reviews/train.csv").read_text().splitlines())
    assert front_doors.train(options, "fairseq", "FreeLB", 3, tmp_path) > 1
    found = front_doors.score(tmp_path / "model", tmp_path / "valid.csv", 50, 50, "fp32")
    how = Attack(0.6, 0.15, front_doors.STEPS, 0, 0, relative=True, loss="margin")
    theirs = attack_checkpoint(str(tmp_path / "run/checkpoint_last.pt"), how, cpu=True)
    assert theirs["examples"] == 50 and theirs["perturbed_accuracy"] < theirs["accuracy"]
    assert found == {"accuracy": theirs["accuracy"], "moved": theirs["perturbed_accuracy"]}


def test_both_doors_get_the_same_settings(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(front_doors, "run", lambda words, log: called.append(list(map(str, words))) or 1.0)
    options = front_doors.parser().parse_args([*words, "--rows", "1000", "--epochs", "3", "--lr", "2e-4"])
    front_doors.train(options, "Trainer", "FreeLB", 7, tmp_path)
    front_doors.train(options, "fairseq", "FreeLB", 7, tmp_path)
    (script, *theirs), _, (_, _, *ours), _ = called
    chosen, training = load_script(Path(script)).parser().parse_args_into_dataclasses(theirs)
    given = dict(zip(ours, ours[1:]))
    assert chosen.method == "FreeLB" and given["--criterion"] == "freelb"
    assert training.seed == int(given["--seed"]) == 7 and not training.bf16
    assert training.learning_rate == float(given["--lr"]) == 2e-4
    assert training.per_device_train_batch_size == int(given["--batch-size"]) == 32
    assert training.num_train_epochs == int(given["--max-epoch"]) == 3
    assert training.warmup_steps == int(given["--warmup-updates"]) == 5
    assert int(given["--total-num-update"]) == 96


def test_the_table_and_what_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """All records are there, so nothing is trained."""
    out = Path(words[0])
    out.mkdir()
    scores = {
        ("Trainer", "plain"): 80,
        ("Trainer", "FreeLB"): 82,
        ("fairseq", "plain"): 79,
        ("fairseq", "FreeLB"): 80,
    }
    for (door, method), accuracy in scores.items():
        for seed, more in ((1, 0.0), (2, 1.0)):
            cell: dict[str, Any] = {"seed": seed, "door": door, "method": method, "moved": 50}
            cell["accuracy"] = accuracy + more * (method == "FreeLB")
            (out / f"{seed}-{door}-{method}.json").write_text(json.dumps(cell))
    assert front_doors.main([*words, "--seeds", "1", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    half = 12.7062 * 0.5**0.5 / 2**0.5  # t of one degree of freedom, of gains 2 and 3
    assert lines[2].endswith(f"| 80.00 | 82.50 | +2.50 ± {half:.2f} | +2.0, +3.0 |")
    assert lines[4].endswith("difference of the gains |  |  | +1.00 ± 0.00 | +1.0, +1.0 |")
    assert front_doors.main([*words, "--seeds", "1", "2", "--epochs", "9"]) == 2
    assert "the records were made with" in capsys.readouterr().err
