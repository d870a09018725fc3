"""benchmarks/gpu_day.sh, as far as it goes without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "pass the folder for the results"),
        (["{out}", "--device", "tpu"], "--device tpu: pass cuda or cpu"),
        (["{out}", "--minutes", "ten"], "--minutes ten: pass a whole number"),
        (["{out}", "--minutes", "08"], "--minutes 08: pass a whole number"),  # octal to the shell's $(( ))
        (["{out}", "--minutes", "99999999999999999999"], "--minutes 99999999999999999999: pass a whole n"),
        (["{out}", "--minutes"], "--minutes needs a value"),
        (["{out}", "--huge"], "unknown option '--huge'"),
        (["{out}", "--tiny"], "torch sees no CUDA GPU; --device cpu --tiny"),
    ],
)
def test_a_mistake_is_named(repo: Path, tmp_path: Path, words: list[str], message: str) -> None:
    out = str(tmp_path / "out")
    words = [word.replace("{out}", out) for word in words]
    done = run_command("bash", str(repo / "benchmarks" / "gpu_day.sh"), *words, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr.startswith("error: ")) == (2, True)
    assert message in done.stderr
    assert not Path(out).exists()


def test_what_there_is_no_time_for_is_left_and_a_part_that_is_done_is_not_run_again(
    repo: Path, tmp_path: Path
) -> None:
    script = str(repo / "benchmarks" / "gpu_day.sh")
    words = [script, str(tmp_path), "--device", "cpu", "--tiny"]
    done = run_command("bash", *words, "--minutes", "0")
    assert done.returncode == 1
    assert done.stdout == "not done: modes tests cost-tiny; run the same command again\n"
    for name in ("modes", "tests", "cost-tiny"):
        (tmp_path / f"{name}.done").touch()
    done = run_command("bash", *words)
    assert done.returncode == 0 and done.stdout.startswith("all done")
    done = run_command("bash", *words, "--data", "nowhere")
    assert done.returncode == 1 and done.stdout.endswith("not done: evidence; run the same command again\n")
    assert "nowhere/sentence/rt-polarity.all: no such file" in done.stdout


@pytest.mark.slow  # its parts have tests of their own
def test_every_part_runs_without_a_gpu(repo: Path, tmp_path: Path) -> None:
    script = str(repo / "benchmarks" / "gpu_day.sh")
    done = run_command("bash", script, str(tmp_path), "--device", "cpu", "--tiny")
    assert done.returncode == 0, done.stdout
    assert "| `freelb` / `hf-sdpa` |" in (tmp_path / "cost-tiny.txt").read_text()
