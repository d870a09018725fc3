"""The SLURM scripts of examples/, with stand-ins for SLURM's commands, of which only the calls count."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from recipes import EXAMPLES, ROOT, TINY, run_py
from support import environment, run_command, write_encoder

ALUM = EXAMPLES / "alum"
RUN = EXAMPLES / "run.py"


def stand_ins(folder: Path, **bodies: str) -> dict[str, str]:
    """SLURM's commands, and the environment of a job."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, body in bodies.items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_folder / name).chmod(0o755)
    path = os.pathsep.join([str(bin_folder), environment()["PATH"]])
    return {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "1234567", "SLURM_NNODES": "2",
            "SLURM_GPUS_ON_NODE": "8", "CHECKPOINT_POLL": "1", "CHECKPOINT_SETTLE": "3",
            "PATH": path}  # fmt: skip


# --- slurm.sbatch: a recipe, one job a seed


def test_a_seed_is_run_and_queued_again_when_time_runs_out(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    slurm = stand_ins(
        tmp_path,
        srun=f'echo "srun $*" >> {calls}; kill -USR1 $PPID; sleep 0.5; exit 3',
        scontrol=f'echo "scontrol $*" >> {calls}',
    )
    slurm.update(SLURM_NNODES="1", SLURM_GPUS_ON_NODE="4")
    copy = shutil.copy(EXAMPLES / "slurm.sbatch", tmp_path / "slurm_script")  # as SLURM does
    words = ["bash", str(copy), "glue.yaml", "data", "roberta", "out", "glue=qqp", "common.fp16=true"]
    done = run_command(*words, SLURM_ARRAY_TASK_ID="1", **slurm)
    assert done.returncode == 3, "the job ends as srun does"
    started, queued = calls.read_text().splitlines()
    assert started == (
        f"srun {RUN} glue.yaml data roberta out/seed-7456 --gpus 4 "
        "distributed_training.distributed_port=34567 common.seed=7456 glue=qqp common.fp16=true"
    )
    assert queued == "scontrol requeue 1234567"
    done = run_command(*words, SLURM_ARRAY_TASK_ID="5", **slurm)
    assert done.returncode == 2 and "there are 5 seeds: 0 to 4" in done.stderr
    done = run_command(*words[:5], **slurm)
    assert done.returncode == 2 and "usage: sbatch slurm.sbatch RECIPE" in done.stderr


# --- alum/slurm.sbatch: two nodes; alum/prepare_corpus.sbatch


def submitted(folder: Path, srun: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """alum/slurm.sbatch with a checkpoint there already, and an srun that is told how to go on."""
    slurm = stand_ins(
        folder,
        srun=f'echo "srun $*" >> {folder}/calls; trap "exit 7" TERM; {srun}',
        scontrol=f'echo "scontrol $*" >> {folder}/calls; ls {folder}/out >> {folder}/calls; '
        f'kill "$(cat {folder}/pid)"',
    )
    (folder / "out").mkdir()
    (folder / "out" / "checkpoint_last.pt").write_text("old")
    script = shutil.copy(ALUM / "slurm.sbatch", folder / "slurm_script")  # as SLURM does
    words = ["roberta_base", "a:b", "roberta.base", f"{folder}/out", "method=alum_vat"]
    return run_command("bash", str(script), *words, **{**slurm, **environment})


def test_a_signal_waits_for_the_next_checkpoint_and_queues_again(tmp_path: Path) -> None:
    """The checkpoint grows while fairseq copies it: the job isn't stopped before it is whole."""
    last = tmp_path / "out" / "checkpoint_last.pt"
    done = submitted(
        tmp_path,
        f"echo $$ > {tmp_path}/pid; sleep 0.3; kill -USR1 $PPID; sleep 2; for part in 1 2 3 4; do echo part "
        f">> {last}; sleep 0.5; done; echo whole >> {last}; touch {tmp_path}/out/whole; sleep 60 > "
        "/dev/null 2>&1 & wait",
    )
    assert done.returncode == 7, f"the job ends as srun does\n{done.stdout}{done.stderr}"
    started, queued, *files = (tmp_path / "calls").read_text().splitlines()
    assert started == (
        f"srun --kill-on-bad-exit=1 --cpus-per-task=32 {RUN} roberta_base a:b roberta.base "
        f"{tmp_path}/out --gpus 16 distributed_training.distributed_port="
        "24567 method=alum_vat"
    )
    assert queued == "scontrol requeue 1234567" and "whole" in files
    assert "queued again once the next checkpoint is there" in done.stdout
    assert not list((tmp_path / "out").glob(".signalled*"))


def test_without_a_checkpoint_in_time_it_is_queued_all_the_same(tmp_path: Path) -> None:
    done = submitted(
        tmp_path,
        f"echo $$ > {tmp_path}/pid; sleep 0.5; kill -USR1 $PPID; sleep 60 > /dev/null 2>&1 & wait",
        CHECKPOINT_WAIT="2",
    )
    assert done.returncode == 7 and "scontrol requeue 1234567" in (tmp_path / "calls").read_text()
    assert "no checkpoint came in time" in done.stdout


@pytest.mark.parametrize("signal", ["", "kill -USR1 $PPID; sleep 0.5;"], ids=["unsignalled", "signalled"])
@pytest.mark.parametrize("status", [0, 3])
def test_a_job_that_ends_by_itself_is_not_queued_again(tmp_path: Path, signal: str, status: int) -> None:
    done = submitted(tmp_path, f"{signal} exit {status}")
    assert done.returncode == status and "scontrol" not in (tmp_path / "calls").read_text()


def test_slurm_scripts_want_to_be_called_in_the_projects_folder(tmp_path: Path) -> None:
    for script in (EXAMPLES / "slurm.sbatch", ALUM / "slurm.sbatch"):
        words = ["a", "b", "c", "d"]
        done = run_command("bash", str(script), *words, SLURM_SUBMIT_DIR=str(tmp_path))
        assert done.returncode == 2 and "call sbatch in the project's folder" in done.stderr
    done = run_command("bash", str(ALUM / "slurm.sbatch"), "a", **stand_ins(tmp_path))
    assert done.returncode == 2 and "usage: sbatch slurm.sbatch RECIPE" in done.stderr


def test_the_array_prepares_the_corpus_and_the_last_step_prints_the_data_argument(tmp_path: Path) -> None:
    """The real script; srun runs what it is given. Then run.py takes what the check printed."""
    slurm = stand_ins(tmp_path, srun='while [[ $1 == --* ]]; do shift; done; exec "$@"')
    encoder = write_encoder(tmp_path / "encoder")
    (tmp_path / "corpus").mkdir()
    for number in range(3):
        text = "".join(f"w{i % 40} w{(i + number) % 40} w3\n{'' if i % 4 else chr(10)}" for i in range(50))
        (tmp_path / "corpus" / f"part{number}.txt").write_text(text)
    words = [
        "bash", str(ALUM / "prepare_corpus.sbatch"), f"{tmp_path}/corpus/*.txt", str(tmp_path / "bin2"),
        "--shards", "4", "--encoder", str(encoder), "--valid", f"{tmp_path}/corpus/part0.txt",
    ]  # fmt: skip
    array = {"SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "0"}
    first = run_command(*words, **slurm, **array, SLURM_ARRAY_TASK_ID="0")
    assert first.returncode == 0, first.stderr
    early = run_command(*words, "--check", **slurm, **array, SLURM_ARRAY_TASK_ID="0")
    assert early.returncode == 1 and "shard" in early.stderr
    assert run_command(*words, **slurm, **array, SLURM_ARRAY_TASK_ID="1").returncode == 0
    check = run_command(*words, "--check", **slurm, **array, SLURM_ARRAY_TASK_ID="0")
    assert check.returncode == 0, check.stderr
    data = check.stdout.splitlines()[-1]
    assert data == ":".join(f"{tmp_path}/bin2/shard{number}" for number in range(4))
    line = run_py("bert_base", data, "-", tmp_path / "save", *TINY, "optimization.max_epoch=8", "--dry-run")
    assert line.returncode == 0 and data in line.stdout, line.stderr


def test_prepare_corpus_sbatch_names_mistakes(tmp_path: Path) -> None:
    slurm = stand_ins(tmp_path)
    words = ["bash", str(ALUM / "prepare_corpus.sbatch"), f"{tmp_path}/*.txt", "out"]
    done = run_command(*words, **slurm)
    assert done.returncode == 2 and f"{tmp_path}/*.txt: no such files" in done.stderr
    (tmp_path / "a.txt").touch()
    assert "not an array" in run_command(*words, **slurm).stderr
    slurm.update(SLURM_ARRAY_TASK_ID="1", SLURM_ARRAY_TASK_MIN="1")
    assert "count the array from 0" in run_command(*words, **slurm).stderr
    elsewhere = run_command(*words, PATH="/usr/bin:/bin")
    assert elsewhere.returncode == 2 and "activate its environment before sbatch" in elsewhere.stderr
