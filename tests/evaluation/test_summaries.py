"""What runs came to, from real logs and checkpoints and from logs written by hand."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support import fairseq_train, logged, train_args

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import sizes, summarise

HOW = Attack(epsilon=0.4, step_size=0.2, steps=2)
SIZES = "steps 3, lr 0.1, max-norm 0.6, init-mag 0.2"


def write_log(
    folder: Path, *lines: Any, criterion: str = "'_name': 'sentence_prediction'", best: str = "accuracy"
) -> Path:
    """A run's folder with such a log; a line is a text or the values of a JSON object."""
    folder.mkdir()
    first = (
        f"{{'checkpoint': {{'optimizer_overrides': '{{}}', 'best_checkpoint_metric': '{best}', "
        "'maximize_best_checkpoint_metric': True}, "
    )
    rows = [first + f"'criterion': {{{criterion}}}}}", *lines]
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    (folder / "train.log").write_text(text)
    return folder


def valid(updates: int, **values: float) -> dict[str, Any]:
    named = {f"valid_{name}": str(value) for name, value in values.items()}
    return {"epoch": updates // 10, **named, "valid_num_updates": str(updates)}


def test_a_log_has_everything(runs: Path) -> None:
    found = summarise(runs / "freelb")
    text = (runs / "freelb" / "train.log").read_text()
    # The same numbers, looked for in the log by other means.
    lines = [json.loads(line) for line in dict.fromkeys(text.splitlines()) if '"valid_accuracy"' in line]
    best = max(lines, key=lambda line: (float(line["valid_accuracy"]), line["epoch"]))
    assert (found.name, found.criterion, found.updates, found.metric) == ("freelb", "freelb", 24, "accuracy")
    assert (found.score, found.epoch) == (float(best["valid_accuracy"]), best["epoch"])
    assert found.loss == pytest.approx(float(best["valid_loss"]) * math.log(2))
    options = dict(re.findall(r"'adv_(steps|lr|max_norm|init_mag)': ([\d.]+)", text))
    assert found.sizes == ", ".join(f"{name.replace('_', '-')} {value}" for name, value in options.items())
    assert 0 < found.seconds_per_update < 10 and 0 < found.ratio < 1
    assert [update for update, _ in found.train_losses] == list(range(1, 25))
    assert [point for point in found.dev_losses if point[1] == found.loss]
    assert [update for update, _ in found.dev_scores] == [12, 24]


def test_checkpoints_alone_hold_less(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(runs / "freelb", tmp_path / "freelb")
    whole = summarise(folder)
    (folder / "train.log").unlink()
    found = summarise(folder)
    for name in ("name", "criterion", "sizes", "updates", "metric", "score", "epoch"):
        assert getattr(found, name) == getattr(whole, name), name
    assert math.isnan(found.loss) and not found.train_losses and not found.dev_scores
    assert found.ratio == pytest.approx(whole.ratio, abs=1e-4)
    assert 0.2 < found.seconds_per_update / whole.seconds_per_update < 5
    monkeypatch.chdir(folder)
    assert summarise(Path(".")).name == "freelb"
    assert math.isnan(summarise(folder, "mcc").score) and math.isnan(summarise(folder, "mcc").epoch)
    # A run that is judged by its loss, which fairseq has in bits; and one that has its last checkpoint alone.
    for path in (folder / "checkpoint_best.pt", folder / "checkpoint_last.pt"):
        state = torch.load(path, weights_only=False)
        state["cfg"]["checkpoint"]["best_checkpoint_metric"] = "loss"
        state["extra_state"].update(val_loss=0.5, best=0.25)
        torch.save(state, path)
    found = summarise(folder)
    assert (found.loss, found.metric) == (pytest.approx(0.5 * math.log(2)), "") and math.isnan(found.score)
    (folder / "checkpoint_best.pt").unlink()
    found = summarise(folder)
    assert found.loss == pytest.approx(0.25 * math.log(2)) and math.isnan(found.epoch)
    (folder / "checkpoint_last.pt").write_text("no checkpoint")
    with pytest.raises(DataError, match="not a checkpoint"):
        summarise(folder)
    (folder / "checkpoint_last.pt").unlink()
    with pytest.raises(DataError, match=r"neither train.log nor checkpoint_best.pt"):
        summarise(folder)


def test_the_last_of_equal_scores_is_the_best_checkpoint_s(tmp_path: Path) -> None:
    lines = [valid(10, loss=1, accuracy=80), valid(20, loss=2, accuracy=80), valid(30, loss=3, accuracy=70)]
    found = summarise(write_log(tmp_path / "a", *lines))
    assert (found.score, found.epoch, found.loss, found.updates) == (80, 2, 2 * math.log(2), 30)
    assert math.isnan(found.seconds_per_update)


def test_a_score_without_a_checkpoint_is_not_the_best(tmp_path: Path) -> None:
    """fairseq saves none at --validate-interval-updates."""
    saved = "INFO | Saved checkpoint a/checkpoint1.pt (epoch 1 @ {} updates, score 70) (writing took 1 s)"
    lines = [valid(10, accuracy=86), valid(20, accuracy=70), saved.format(20), valid(30, accuracy=90)]
    found = summarise(write_log(tmp_path / "a", *lines))
    assert (found.score, found.epoch) == (70, 2)
    # At a signal, a checkpoint without a score; then a resumed run of fairseq-train, which logs none.
    signal = saved.format(30).replace("70)", "None)")
    lines += [signal, "{'_name': None, 'common': {}}", valid(40, accuracy=80)]
    found = summarise(write_log(tmp_path / "b", *lines))
    assert (found.score, found.epoch) == (80, 4)
    lines += [valid(1_234_570, accuracy=85), saved.format(1_234_567), saved.format(40)]
    assert summarise(write_log(tmp_path / "c", *lines)).score == 85


def test_a_score_that_is_no_number_is_not_the_best(tmp_path: Path) -> None:
    lines = [valid(10, accuracy=math.nan), valid(20, accuracy=80), valid(30, accuracy=70)]
    assert summarise(write_log(tmp_path / "a", *lines)).score == 80


def test_an_earlier_run_in_the_log_does_not_count(tmp_path: Path) -> None:
    """Its checkpoints have been removed; its updates were more rows each."""
    anew = "2026-11-26 10:00:00 | INFO | fairseq.trainer | No existing checkpoint found a/checkpoint_last.pt"
    found = summarise(write_log(tmp_path / "a", anew, valid(10, accuracy=90), anew, valid(20, accuracy=70)))
    assert (found.score, found.epoch) == (70, 2)


def test_slow_updates_have_their_seconds(tmp_path: Path) -> None:
    """fairseq writes 0.01 updates a second for 67 to 200 s each."""
    train = {"train_loss": "1", "train_ups": "0.01", "train_wps": "8", "train_wpb": "1024", "epoch": 1}
    found = summarise(write_log(tmp_path / "a", {**train, "train_num_updates": "2"}, valid(2, accuracy=80)))
    assert found.seconds_per_update == 128


def test_the_score_is_the_one_that_chose_the_best_checkpoint(tmp_path: Path) -> None:
    """Tags and spans log the accuracy of words or windows, too."""
    lines = [valid(10, loss=1, accuracy=90, f1=40), valid(20, loss=1, accuracy=91, f1=30)]
    found = summarise(write_log(tmp_path / "a", *lines, best="f1"))
    assert (found.metric, found.score, found.epoch) == ("f1", 40, 1)


def test_a_score_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    lines = [valid(10, loss=1, ppl=3), valid(20, loss=2, ppl=2)]
    found = summarise(write_log(tmp_path / "a", *lines))
    assert (found.metric, found.score, found.epoch) == ("ppl", 2, 2)  # the lower the better
    found = summarise(tmp_path / "a", "mcc")
    assert math.isnan(found.score) and math.isnan(found.loss) and found.dev_losses
    found = summarise(write_log(tmp_path / "b", valid(10, loss=2), valid(20, loss=1)))
    assert (found.metric, found.epoch, found.loss) == ("", 2, math.log(2)) and math.isnan(found.score)
    running = {"epoch": 1, "update": 0.5, "loss": "1.0", "num_updates": "7"}  # before the first validation
    found = summarise(write_log(tmp_path / "c", running))
    assert (found.updates, found.metric) == (7, "accuracy") and math.isnan(found.loss)
    assert found.train_losses == [(7, math.log(2))]


def test_a_loss_in_nats_is_preferred(tmp_path: Path) -> None:
    found = summarise(write_log(tmp_path / "a", valid(10, loss=1, loss_nats=0.7, accuracy=3)))
    assert found.loss == 0.7


def test_of_several_starts_the_last_one_s_options_count(tmp_path: Path) -> None:
    first = "{'criterion': {'_name': 'pgd', 'adv_lr': 0.5}}"
    line = valid(10, accuracy=3)
    folder = write_log(tmp_path / "a", line, first, line, criterion="'_name': 'freelb', 'adv_lr': 0.1")
    assert (summarise(folder).criterion, summarise(folder).sizes) == ("pgd", "lr 0.5")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"_name": "pgd", "adv_steps": "3", "adv_lr": "0.1", "adv_start_update": "0", "adv_relative": "True"},
         "steps 3, lr 0.1, relative"),
        ({"_name": "freelb", "adv_start_update": "50", "adv_init_mag": "0.0", "adv_norm_type": "l2"},
         "start-update 50, init-mag 0.0"),
        ({"_name": "smart", "vat_epsilon": "1e-05", "smart_mu": "1", "vat_projection": "smart"},
         "epsilon 1e-05, smart-mu 1"),
        ({"_name": "noise", "noise_kind": "normal", "noise_size": "0.1"},
         "noise-size 0.1"),
        ({"_name": "r3f", "r3f_lambda": "1.0", "r3f_share_dropout": "True"},
         "r3f-lambda 1.0, r3f-share-dropout"),
        ({"_name": "creat", "adv_steps": "2", "creat_tau": "1.0"},
         "steps 2, creat-tau 1.0"),
        ({"_name": "unknown", "adv_lr": "0.1", "unknown_tau": "2", "train_subset": "1"},
         "lr 0.1, unknown-tau 2"),
        ({"flood_level": "auto", "flood_scope": "update"}, "flood-level auto"),
        ({"_name": "flooding", "adv_lr": "0.1", "flood_level": "0.05"}, "flood-level 0.05"),
        ({"flood_level": "None", "seed": "1"}, ""),
    ],
)  # fmt: skip
def test_sizes(options: dict[str, str], expected: str) -> None:
    assert sizes(options) == expected


def test_an_attack_is_kept(runs: Path) -> None:
    first = summarise(runs / "freelb", attacks=[HOW])
    assert first.score == summarise(runs / "freelb").score
    assert first.attacked[0][0] > first.loss
    kept = runs / "freelb" / "attack-0.4.json"
    changed = json.loads(kept.read_text())
    changed["means"]["loss"] = 123.0
    kept.write_text(json.dumps(changed))
    assert summarise(runs / "freelb", attacks=[HOW]).loss == 123.0  # read, not measured again
    other = Attack(epsilon=0.5, step_size=0.2, steps=2)
    assert summarise(runs / "freelb", attacks=[other]).loss == first.loss  # another attack is measured
    kept.unlink()


def test_a_kept_attack_is_of_the_same_data(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the split's files; data may be prepared again into the same folder. With a log, and without."""
    folder = shutil.copytree(runs / "freelb", tmp_path / "freelb")
    shutil.copytree(runs / "data", tmp_path / "data")
    (folder / "train.log").write_text(
        (folder / "train.log").read_text().replace(str(runs / "data"), str(tmp_path / "data"))
    )
    state = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    state["cfg"]["task"]["data"] = str(tmp_path / "data")
    torch.save(state, folder / "checkpoint_best.pt")
    calls: list[str] = []

    def attack(path: str, how: Attack, **_: Any) -> dict[str, float]:
        calls.append(path)
        return {"loss": 0.5, "perturbed_loss": 1.0}

    monkeypatch.setattr("fairseq_adv.evaluation.summaries.attack_checkpoint", attack)

    def measured(touched: str) -> int:
        """How often two calls attack after these files have changed."""
        before = len(calls)
        for path in (tmp_path / "data").rglob(f"{touched}.*"):
            os.utime(path, ns=(before, before))
        for _ in range(2):
            summarise(folder, attacks=[HOW])
        return len(calls) - before

    assert [measured(name) for name in ("train", "train", "valid")] == [1, 0, 1]
    (folder / "train.log").unlink()
    assert [measured(name) for name in ("train", "valid")] == [0, 1]


def test_the_score_beside_an_attack_is_that_of_the_attacked_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the checkpoint is chosen by the loss, the best accuracy may be another epoch's."""
    lines = [valid(10, accuracy=80, loss=1), valid(20, accuracy=90, loss=2)]
    folder = write_log(tmp_path / "a", *lines, best="loss")
    log = (folder / "train.log").read_text()
    (folder / "train.log").write_text(log.replace("checkpoint_metric': True", "checkpoint_metric': False"))
    (folder / "checkpoint_best.pt").write_bytes(b"")
    monkeypatch.setattr(
        "fairseq_adv.evaluation.summaries.attack_checkpoint",
        lambda *_, **__: {"loss": 0.5, "perturbed_loss": 1.0},
    )
    assert summarise(folder).score == 90
    found = summarise(folder, attacks=[HOW])
    assert (found.score, found.epoch, found.metric) == (80, 1, "accuracy")


def test_the_clean_loss_is_the_one_that_fairseq_validated(runs: Path) -> None:
    args = train_args(runs / "data", None, "freelb", "--max-epoch", "1", "--lr", "0")
    restored = ["--finetune-from-model", str(runs / "freelb" / "checkpoint_best.pt")]
    bits = logged(fairseq_train(*args, *restored), "valid")[-1]["valid_loss"]
    assert summarise(runs / "freelb", attacks=[HOW]).loss / math.log(2) == pytest.approx(bits, abs=6e-4)
    assert summarise(runs / "freelb").loss / math.log(2) == pytest.approx(bits, abs=6e-4)


def test_losses_are_in_nats_and_the_lowest_is_the_best(tmp_path: Path) -> None:
    lines = [valid(10, accuracy=80, task_loss=0.5), valid(20, accuracy=70, task_loss=0.9)]
    found = summarise(write_log(tmp_path / "run", *lines), "task_loss")
    assert (found.epoch, found.score) == (1, pytest.approx(0.5 * math.log(2)))
    assert found.dev_scores[1] == (20, pytest.approx(0.9 * math.log(2)))


def test_an_attack_is_on_the_split_that_was_validated(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a log and without; a result of another split is not taken for it."""
    folder = shutil.copytree(runs / "freelb", tmp_path / "freelb")
    log, splits = folder / "train.log", []
    how = Attack(epsilon=0.3, step_size=0.2, steps=2)  # no other test has stored its result

    def attack(path: str, how: Attack, *, split: str, **_: Any) -> dict[str, float]:
        splits.append(split)
        return {"loss": 0.5, "perturbed_loss": 1.0}  # a regression's

    monkeypatch.setattr("fairseq_adv.evaluation.summaries.attack_checkpoint", attack)
    assert math.isnan(summarise(folder, attacks=[how]).attacked[0][1])
    log.write_text(log.read_text().replace("'valid_subset': 'valid'", "'valid_subset': 'dev,valid'"))
    summarise(folder, attacks=[how])
    log.unlink()
    state = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    state["cfg"]["dataset"]["valid_subset"] = "dev2"
    torch.save(state, folder / "checkpoint_best.pt")
    summarise(folder, attacks=[how])
    assert splits == ["valid", "dev", "dev2"]
