"""--precision in whole runs, on machines with and without bf16 instructions."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from emulated_gpu import POSSIBLE
from processors import write_machines
from support import (
    ADVERSARIAL,
    fairseq_train,
    fork_command,
    slow,
    start_command,
    train_args,
    write_task,
)

from integration.test_training_under_fire import assert_same, end

TESTS = Path(__file__).resolve().parents[1]
TOLD = {
    "bf16": "bf16 autocast: this processor has avx512_bf16; --precision fp32 turns it off",
    "none": "fp32: this processor has no bf16 instructions",
}
# With dropout and Adam: whatever a restart forgets shows. Two epochs of four updates.
WORDS = [*ADVERSARIAL, "--dropout", "0.1", "--no-epoch-checkpoints", "--precision", "auto"]
WORDS += ["--save-interval-updates", "2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("data") / "bin", train=16)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return ["--user-dir", str(write_machines(tmp_path_factory.mktemp("machines") / "machines"))]


def is_amp(save: Path) -> bool:
    return bool(torch.load(save / "checkpoint_last.pt")["cfg"]["common"]["amp"])


def args(data: Path, save: Path, machines: list[str], *more: str) -> list[str]:
    return train_args(data, save, "freelb", *WORDS, *machines, *more)


@pytest.mark.parametrize("machine", ["bf16,none", slow("none,bf16")])
def test_rank_0_decides_for_all_workers(
    data: Path, machines: list[str], tmp_path: Path, machine: str
) -> None:
    """And so it ends as two workers on machines like its own do; also when it is restarted."""
    first = machine.split(",")[0]
    alike = fairseq_train(*args(data, tmp_path / "alike", machines), workers=2, PROCESSORS=f"{first},{first}")
    mixed = tmp_path / "mixed"
    parts = fairseq_train(*args(data, mixed, machines, "--max-update", "2"), workers=2, PROCESSORS=machine)
    turned = ",".join(reversed(machine.split(",")))
    rest = fairseq_train(*args(data, mixed, machines), workers=2, PROCESSORS=turned)
    for done in (alike, parts):
        assert (done.stdout + done.stderr).count(TOLD[first]) == 1
    assert f"as in {mixed}/checkpoint_last.pt" in rest.stdout
    ours, theirs = end(mixed), end(tmp_path / "alike")
    assert is_amp(mixed) == (first == "bf16")
    if (
        first == "bf16"
    ):  # machines of two kinds sum the products in different orders: Adam's first steps show it
        for name, weight in ours["weights"].items():
            torch.testing.assert_close(weight, theirs["weights"][name], rtol=0, atol=0.02)
        ours, theirs = ({part: run[part] for part in ("updates", "extra")} for run in (ours, theirs))
    assert_same(ours, theirs, "")


def test_a_checkpoint_without_the_option_is_followed_too(
    data: Path, machines: list[str], tmp_path: Path
) -> None:
    """One of an earlier version, or of --amp."""
    words = args(data, tmp_path, machines)
    words.remove("--precision")
    words.remove("auto")
    fairseq_train(*words, "--amp", "--max-update", "2", PROCESSORS="none")
    fairseq_train(*words, "--precision", "auto", "--max-update", "4", PROCESSORS="none")
    assert is_amp(tmp_path)


SIZES = [
    "--arch", "roberta_base", "--encoder-layers", "1", "--encoder-embed-dim", "16",
    "--encoder-ffn-embed-dim", "32", "--encoder-attention-heads", "2", "--max-positions", "16",
    "--num-workers", "0", "--max-update", "2",
]  # fmt: skip


def adv_train(*words: object, **changed: str) -> subprocess.CompletedProcess[str]:
    return fork_command("fairseq-adv", "train", *map(str, words), **changed)


@pytest.mark.parametrize(
    ("machine", "more", "amp"),
    [
        ("bf16", [], True),
        ("none", [], False),
        ("bf16", ["--cpu", "--precision", "fp32"], False),
        slow("bf16", ["--criterion", "sentence_prediction"], False),  # not for fairseq's own criterions
        slow("none", ["--cpu", "--amp"], True),
    ],
)
def test_fairseq_adv_train_turns_it_on_by_itself(
    data: Path, machines: list[str], tmp_path: Path, machine: str, more: list[str], amp: bool
) -> None:
    done = adv_train(data, *SIZES, *machines, "--save-dir", tmp_path, *more, PROCESSORS=machine)
    assert done.returncode == 0, done.stderr[-2000:]
    assert is_amp(tmp_path) == amp
    is_auto = more in ([], ["--cpu"])
    log = (tmp_path / "train.log").read_text()
    assert ("--precision auto" in log.splitlines()[0]) == is_auto
    assert (TOLD[machine] in log) == is_auto
    assert f"; CPU, {'bf16 autocast' if amp else 'fp32'}" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not POSSIBLE, reason="there is a GPU")
def test_two_workers_on_a_gpu_train_as_with_bf16(data: Path, tmp_path: Path) -> None:
    """From a checkpoint, for which fairseq wraps the model before the precision is decided; also in parts."""
    start = tmp_path / "start"
    fairseq_train(*train_args(data, start, "freelb", *ADVERSARIAL, "--seed", "9", "--max-update", "1"))
    words = [
        *WORDS,
        "--ddp-backend",
        "pytorch_ddp",
        "--find-unused-parameters",
        "--distributed-backend",
        "gloo",
    ]
    words += ["--finetune-from-model", str(start / "checkpoint_last.pt")]
    given = {"auto": [], "bf16": ["--precision", "bf16"], "parts": []}
    for name, more in [*given.items(), ("parts", [])]:
        stop = ["--max-update", "2"] * (name == "parts" and not (tmp_path / name).exists())
        args = train_args(data, tmp_path / name, "freelb", *words, *more, *stop)
        args.remove("--cpu")
        two_workers(args)
    expected = end(tmp_path / "bf16")
    assert expected["updates"] == 4
    for name in ("auto", "parts"):
        assert_same(end(tmp_path / name), expected, name)


def two_workers(args: list[str]) -> None:
    """``fairseq-train`` in two processes on the emulated GPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, str(TESTS / "emulated_command.py"), "fairseq-train", *args]
    words += ["--distributed-world-size", "2", "--distributed-no-spawn", "--device-id", "0"]
    words += ["--distributed-init-method", f"tcp://127.0.0.1:{port}", "--distributed-rank"]
    both = [start_command([*words, rank], text=True) for rank in ("0", "1")]
    for process in both:
        output = process.communicate(timeout=300)
        assert process.returncode == 0, output[1][-3000:]
