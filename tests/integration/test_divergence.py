"""Runs that diverge: real trainings, whose last line tells what happened, and what to change."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.logging import metrics
from support import (
    ADVERSARIAL,
    PLUGIN,
    batch,
    build,
    command,
    fairseq_train,
    fork_command,
    run_command,
    train_args,
    write_questions,
    write_task,
)
from token_data import write_tags

from fairseq_adv.data.errors import DataError

HIGH = ["--lr", "1e20"]
RATE = r"Try a lower --lr than 1e\+20, or --clip-norm 1 .*"
LOSS = rf"update 2: the loss is not finite\. {RATE}"
NOISED = ["--r3f-lambda", "3", "--r3f-epsilon", "1e38"]
HALF = ["--memory-efficient-fp16", "--fp16-init-scale", "4", "--min-loss-scale", "3"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data"), train=48)


def mistakes(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines that tell it; torchrun puts the rank before them."""
    return [
        line for line in (done.stdout + done.stderr).splitlines() if re.match(r"(\[rank\d\]: )?error: ", line)
    ]


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.rstrip("\n").splitlines()[-1]


@pytest.mark.parametrize(
    ("method", "extra", "told"),
    [
        ("freelb", [*ADVERSARIAL, *HIGH, "--update-freq", "2", "--amp"], LOSS),
        ("freelb", [*ADVERSARIAL, *HIGH, "--adv-start-update", "9"], LOSS),
        ("standard", [*HIGH, "--clip-norm", "1"], r"update 2: the loss .* lower --lr than 1e\+20\. Earlier"),
        ("freelb", ["--adv-lr", "1e38"], r"update 1: adv_loss_last is not finite, but adv_loss_first is\. "
         r"Try a smaller perturbation \(now --adv-lr 1e\+38\)\. "),
        ("r3f", NOISED, r"update 1: r3f_divergence is not finite, but task_loss is\. Try a smaller "
         r"perturbation \(now --r3f-lambda 3, --r3f-epsilon 1e\+38\)\. "),
        ("standard", [*HALF, *HIGH], r"update 2: the loss is not finite, even at the smallest loss scale "
         r"\(--min-loss-scale 3\)\. .*lower --lr .*, or fp32 or --bf16"),
    ],
)  # fmt: skip
def test_it_ends_with_one_line_and_no_dump(
    data: Path, tmp_path: Path, method: str, extra: list[str], told: str
) -> None:
    done = fork_command("fairseq-train", *train_args(data, tmp_path, method, *extra))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == len(mistakes(done)) == 1, done.stderr
    assert re.match(f"error: {told}", done.stderr), done.stderr
    assert "Earlier losses are in the log above." in done.stderr
    assert not list(tmp_path.glob("*.pt")) and "nan_detector" not in done.stdout


def test_a_loss_scale_that_may_not_fall_does_not_keep_it_alive(data: Path, tmp_path: Path) -> None:
    """fairseq skips every update, for ever; so do its recipes, which pass --threshold-loss-scale 1."""
    words = [*HALF[:3], "--threshold-loss-scale", "1", "--max-epoch", "9", *HIGH]
    done = fork_command("fairseq-train", *train_args(data, tmp_path, "standard", *words))
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("gradient overflow detected") == 50
    told = r"error: update 2: the loss is not finite, even at .* scale \(--threshold-loss-scale 1\)\. "
    assert re.match(told, done.stderr), done.stderr


def test_what_was_saved_stays_and_resumes(data: Path, tmp_path: Path) -> None:
    """The second epoch's rate is too high: its second update finds out, again and again."""
    args = train_args(data, tmp_path, "standard", "--lr", "0.01,1e20", "--log-file", str(tmp_path / "a.log"))
    last, first = tmp_path / "checkpoint_last.pt", b""
    for _ in range(2):
        done = fork_command("fairseq-train", *args)
        assert done.returncode == 1
        (line,) = mistakes(done)
        assert line.startswith("error: update 14: the loss is not finite. Try a lower --lr than 0.01,1e+20")
        assert line.endswith(
            f"Earlier losses are in {tmp_path}/a.log. {last} was written before that: the same command would "
            "resume from it."
        )
        assert last.read_bytes() == (first or last.read_bytes())
        first = last.read_bytes()
    assert "@ 12 updates)" in done.stdout and 'num_updates": "12"' not in done.stdout


def test_the_other_commands(data: Path, tmp_path: Path) -> None:
    """fairseq-adv train has a log file of its own; hydra's run is in bf16."""
    args = train_args(data, tmp_path / "a", "standard", *HIGH)
    done = run_command(command("fairseq-adv"), "train", *args)
    assert done.returncode == 2
    (line,) = mistakes(done)
    assert re.match(
        r"error: update 3: the loss .* lower --lr .* Earlier losses are in .*/a/train\.log\.", line
    )
    (tmp_path / "run.yaml").write_text(YAML.format(user_dir=PLUGIN, data=data, save=tmp_path / "b"))
    done = run_command(
        command("fairseq-hydra-train"), "--config-dir", str(tmp_path), "--config-name", "run",
        f"hydra.run.dir={tmp_path / 'out'}",
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = mistakes(done)
    assert re.match(rf"error: {LOSS}", line) and "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.pt"))


YAML = """
common: {{cpu: true, bf16: true, user_dir: {user_dir}}}
task: {{_name: sentence_prediction, data: {data}, num_classes: 2, init_token: 0, max_positions: 16}}
criterion: {{_name: standard}}
model: {{_name: roberta, encoder_layers: 1, encoder_embed_dim: 16, encoder_ffn_embed_dim: 16,
  encoder_attention_heads: 2, max_positions: 16}}
dataset: {{batch_size: 4, num_workers: 0}}
optimizer: {{_name: adam, lr: [1.0e+20]}}
optimization: {{max_update: 20, lr: [1.0e+20]}}
lr_scheduler: {{_name: fixed}}
checkpoint: {{save_dir: {save}}}
"""


@pytest.mark.parametrize(
    ("criterion", "words", "changed"),
    [("sentence_prediction", [], {}), ("standard", [], {"LOGLEVEL": "debug"})],
)
def test_fairseqs_own_dump(
    data: Path, tmp_path: Path, criterion: str, words: list[str], changed: dict[str, str]
) -> None:
    """For fairseq's own criterions, and where it is asked for."""
    args = train_args(data, tmp_path, criterion, *HIGH, *words)
    done = fork_command("fairseq-train", *args, **changed)
    assert done.returncode == 1 and "gradients are Nan/Inf" in done.stderr
    assert (tmp_path / "crash.pt").is_file() and not mistakes(done)


def test_targets_whose_squares_are_outside_float32(tmp_path: Path) -> None:
    """The gradient of this one is finite: fairseq would go on."""
    data = write_task(tmp_path / "data", train=64, classes=1)
    labels = data / "label" / "train.label"
    labels.write_text("\n".join(["1.9e19", *labels.read_text().splitlines()[1:]]) + "\n")
    words = ["--batch-size", "64"]
    done = fork_command("fairseq-train", *train_args(data, None, "standard", *words, classes=1))
    assert done.returncode == 1
    (line,) = mistakes(done)
    assert (
        "update 1: the loss is not finite. Try smaller targets: the square of one is outside float32." in line
    )


def test_amp_stops_at_the_smallest_loss_scale(data: Path) -> None:
    """fairseq asks torch for a scaler of a GPU. After the first overflow it repeats the mini-batch."""
    words = [*HIGH, "--amp", "--fp16-init-scale", "4", "--min-loss-scale", "1.5"]
    runs = [build(train_args(data, None, "standard", *words)) for _ in range(2)]
    for run, scale in zip(runs, (4.0, 2.0**127)):
        run.trainer.optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        samples = [batch(run, [0, 1, 2])]
        run.trainer.train_step(samples)
        assert run.trainer.get_num_updates() == 1
    assert run.trainer.optimizer.scaler.get_scale() < scale  # it has overflowed, and recovered
    run = runs[0]
    with pytest.raises(
        DataError, match=r"^update 2: the loss is not finite, even at .*--min-loss-scale 1\.5"
    ):
        run.trainer.train_step(samples)
    assert run.trainer.optimizer.scaler.get_scale() == 2


# --- runs that end ----------------------------------------------------------------------------------


def test_a_run_that_has_learned_nothing_says_so_last(data: Path, tmp_path: Path) -> None:
    words = ["--lr", "50", "--log-file", str(tmp_path / "train.log")]
    done = fairseq_train(*train_args(data, tmp_path, "standard", *words), workers=2)
    told = (
        r"done training in .* seconds\. The training loss ended above that of the best constant prediction: "
        r"loss is (\S+) nats, not below 0\.(\d+)\. Try a lower --lr than 50, or --clip-norm 1 \(now 0: "
    )
    ((loss, limit),) = re.findall(told, last_line(done))
    bits = float(re.findall(r'"train_loss": "([\d.]+)"', done.stdout)[-1])
    assert float(loss) == pytest.approx(bits * math.log(2), rel=1e-3) and float(loss) > 10
    assert float(f"0.{limit}") <= math.log(2)  # of two classes
    assert re.findall(told, (tmp_path / "train.log").read_text().splitlines()[-1]) == [(loss, limit)]
    assert len(re.findall(told, done.stdout + done.stderr)) == 1


@pytest.mark.parametrize(
    ("task", "classes"),
    [("sentence_prediction", 2), ("sentence_prediction", 1), ("commonsense_qa", 2), ("tagging", 2)],
    ids=["classes", "numbers", "choices", "tags"],
)  # fmt: skip
def test_the_best_constant(tmp_path: Path, task: str, classes: int) -> None:
    """Summed over the mini-batches of an epoch, of different sizes, some in one update."""
    if task == "sentence_prediction":
        data = write_task(tmp_path / "data", train=16, classes=classes)
    else:
        data = {"commonsense_qa": write_questions, "tagging": write_tags}[task](tmp_path / "data", train=16)
    run = build(train_args(data, None, "standard", task=task, classes=classes))
    target = batch(run, list(range(16)))["target"].view(-1)
    if task == "commonsense_qa":
        expected = float(np.mean([math.log((3, 5, 4)[k % 3]) for k in range(16)]))
    elif classes == 1:
        expected = float(target.var(unbiased=False))
    else:
        shares = target.bincount() / len(target)
        expected = -float(torch.special.xlogy(shares, shares).sum())
    assert run.criterion.objective.constant_loss(metrics.get_meters("default")) is None
    run.trainer.begin_epoch(1)
    for update in ([range(5)], [range(5, 7), range(7, 15)], [range(15, 16)]):
        run.trainer.train_step([batch(run, list(rows)) for rows in update])
    found = run.criterion.objective.constant_loss(metrics.get_meters("train"))
    assert found == pytest.approx(expected, rel=1e-5)
