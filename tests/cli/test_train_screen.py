"""What fairseq-adv train shows: on a terminal, without one, with several workers, and at the end."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import pickle
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq.logging import metrics
from support import build, run_command, start_command, train_args, write_corpus, write_task

from fairseq_adv.accordance import flood_level
from fairseq_adv.cli.train import _save_tokenizer
from fairseq_adv.cli.train_run import ShownRun, _is_not_there
from fairseq_adv.cli.train_screen import TrainScreen
from fairseq_adv.cli.train_text import count_all_updates, score_of, shown_time
from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.fairseq_patches.progress import Line

SIZES = [
    "--arch", "roberta_base", "--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim",
    "32", "--encoder-attention-heads", "2", "--max-positions", "16", "--cpu", "--num-workers", "0",
    "--precision", "fp32", "--max-epoch", "3", "--batch-size", "16", "--log-interval", "1",
    "--lr", "0.01",
]  # fmt: skip
FIRST = (
    r"training with freelb \(steps 3, lr 0.006667, max-norm 0.02, init-mag 0.01, relative\) on {data}: "
    r"200 rows, 2 classes \(1, 0\); encoder roberta_base; 39 updates, learning rate 0.01; "
    r"CPU(, 2 workers)?, fp32"
)


def words(data: Path, save: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "fairseq_adv", "train", str(data), *SIZES, "--save-dir", str(save)]
    return [*command, *more]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    process = start_command(command, text=True)
    out, err = process.communicate(timeout=600)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", train=200, valid=20)


def test_without_a_terminal(data: Path, tmp_path: Path) -> None:
    done = run(*words(data, tmp_path))
    assert done.returncode == 0 and not done.stderr, done.stderr[-3000:]
    first, log, one, _, three, best, checkpoint, after = done.stdout.splitlines()
    assert re.fullmatch(FIRST.format(data=data), first) and log == f"log: {tmp_path}/train.log"
    assert re.fullmatch(
        r"epoch 1 of 3, update 13 of 39: loss 0\.\d{4}, dev accuracy [\d.]+ \(best so far\)", one
    )
    assert re.fullmatch(r"epoch 3 of 3, update 39 of 39: loss .*", three)
    run_lines = read_metrics(tmp_path)
    scores = {line.epoch: line.values["accuracy"] for line in run_lines.of("valid")}
    top = max(scores, key=lambda epoch: (scores[epoch], epoch))  # of equal ones the last
    assert best == f"best dev accuracy {scores[top]:.2f} in epoch {top}"
    assert checkpoint == f"checkpoint: {tmp_path}/checkpoint_best.pt"
    assert after == f"next: echo 'a text' | fairseq-adv predict {tmp_path}/checkpoint_best.pt --stdin"
    assert [line.update for line in run_lines.of("train_inner")] == [*range(1, 40)]
    text = (tmp_path / "train.log").read_text()
    logged = re.findall(r"\| train_inner \| .*\"num_updates\": \"(\d+)\"", text)
    assert logged == [str(update) for update in range(1, 40)]  # once each
    assert "RobertaModel(" in text and "{'_name': None, 'common'" in text and "Saved checkpoint" in text
    assert text.count("done training in") == 1


def test_no_number_is_no_best_score(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as pearson's of equal predictions; fairseq keeps no best checkpoint of it."""
    options = ["--maximize-best-checkpoint-metric", "--best-checkpoint-metric", "accuracy"]
    screen = TrainScreen("train.log", "roberta_base", lambda: None)
    screen._trainer = build(train_args(data, tmp_path, "standard", *options)).trainer
    assert score_of({"nll_loss": 1.0}, "nll_loss") == score_of({"loss": 1.0}, "loss") == math.log(2)
    with metrics.aggregate("train"):
        metrics.log_scalar("loss", 1.0, 1)
    for update, score in enumerate([math.nan, 0.25, math.nan, 0.5], 1):
        screen.log(Line(update, 1, "valid", 1.0, {"accuracy": score}, {"accuracy": score}))
    told = capsys.readouterr().out.splitlines()
    assert ["(best so far)" in line for line in told] == [False, True, False, True]


def test_what_flooding_tells_is_shown_and_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In fairseq's log it has a logger below that of fairseq_cli.train, which has a file of its own."""
    record = flood_level.logger.makeRecord(
        flood_level.logger.name, logging.INFO, "", 1, "it starts", (), None
    )
    TrainScreen("train.log", "roberta_base", lambda: None).emit(record)
    assert capsys.readouterr().out == "it starts\n"
    own, handler = logging.getLogger("fairseq_cli.train"), logging.FileHandler(tmp_path / "train.log")
    assert _is_not_there(record)
    own.addHandler(handler)
    assert not _is_not_there(record)
    own.removeHandler(handler)


def test_on_a_terminal(data: Path, tmp_path: Path) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = start_command(words(data, tmp_path), stdout=its, stderr=its)
    os.close(its)
    said = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    text = said.decode()
    assert re.search(r"0 %\|.*\| update 0 of 39, \S+ left", text)
    lines = [line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n")]
    assert [line for line in lines if line][-1].startswith("next: echo")
    assert sum("dev accuracy" in line and line.startswith("epoch") for line in lines) == 3


def test_of_equal_scores_the_last_is_best_and_no_checkpoint_is_named_that_the_run_did_not_save(
    data: Path, tmp_path: Path
) -> None:
    still = ["--criterion", "standard", "--lr", "0", "--batch-size", "200"]
    saved = run(*words(data, tmp_path, *still, "--max-epoch", "2"))
    assert saved.returncode == 0 and re.search("best dev accuracy .* in epoch 2\n", saved.stdout)
    done = run(*words(data, tmp_path, *still, "--no-save"))
    assert "resuming after update 2" in done.stdout and "in epoch 3" in done.stdout
    assert done.stdout.splitlines()[-1] == "no checkpoint was saved"


def test_the_best_score_is_that_of_a_saved_model(data: Path, tmp_path: Path) -> None:
    """fairseq validates at --validate-interval-updates, but saves at the end of epochs."""
    still = ["--criterion", "standard", "--lr", "1", "--max-update", "2", "--validate-interval-updates", "1"]
    done = run(*words(data, tmp_path, *still))
    assert done.returncode == 0, done.stderr
    told = re.findall(r"update (\d+) of .*dev accuracy ([\d.]+)", done.stdout)
    (best,) = re.findall("^best dev accuracy (.*)$", done.stdout, re.MULTILINE)
    assert [update for update, _ in told] == [str(update) for update in range(1, 3)]
    scores = [float(score) for _, score in told]
    assert scores[-1] < max(scores) and best == f"{scores[-1]:.2f} (best of the saved models)"


def test_it_trains_on_when_nobody_reads_it(data: Path, tmp_path: Path) -> None:
    """As in front of head, or under nohup in a terminal that is closed."""
    line = f'{shlex.join(words(data, tmp_path))} | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = run_command("bash", "-c", line)
    assert done.stdout.splitlines()[-1] == "0", done.stderr[-3000:]
    assert torch.load(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] > 1
    assert "the screen can't be written any more" in (tmp_path / "train.log").read_text()


def test_a_diverged_run_says_so_last(data: Path, tmp_path: Path) -> None:
    done = run(*words(data, tmp_path, "--criterion", "standard", "--lr", "50", "--clip-norm", "0"))
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: The training loss ended above that of the best constant prediction")


def test_only_the_first_worker_speaks(data: Path, tmp_path: Path) -> None:
    done = run(*words(data, tmp_path, "--workers", "2", "--batch-size", "8"))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert re.fullmatch(FIRST.format(data=data), lines[0]) and len(lines) == 8
    updates = [line.update for line in read_metrics(tmp_path).of("train_inner")]
    assert updates == [*range(1, 40)]  # and only the first writes
    assert "warning" not in done.stderr


def test_a_worker_of_fairseqs_own_logs_to_the_file(tmp_path: Path) -> None:
    """Each is a new process, which unpickles what it runs."""
    path = tmp_path / "a" / "train.log"
    when_loaded = partial(_save_tokenizer, tmp_path, TrainOptions([]))
    told = pickle.dumps(ShownRun(shown_time, str(path), "minilm", when_loaded))
    code = (
        "import logging, pickle, sys; logging.basicConfig(stream=sys.stdout, level='INFO'); "
        f"run = pickle.loads({told!r}); logging.info('hello'); print(run.encoder, run.main(60))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "minilm 1 min\n" and "| hello\n" in path.read_text()


def test_the_updates_of_shards_of_which_each_has_an_epoch_are_not_told(tmp_path: Path) -> None:
    first, second = write_corpus(tmp_path / "a", train=8), write_corpus(tmp_path / "b", train=40)
    for data, total in ((f"{first}", 2), (f"{first}:{second}", None)):
        words = train_args(Path(data), None, "standard", "--max-epoch", "2", task="masked_lm")
        trainer = build([*words, "--batch-size", "8"]).trainer
        assert count_all_updates(trainer, trainer.get_train_iterator(1).next_epoch_itr()) == total
