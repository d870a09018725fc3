"""The SLURM scripts of examples/, with stand-ins for SLURM's commands, of which only the calls count.

tests/cluster runs them on a real SLURM, where one is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from recipes import EXAMPLES, ROOT, TINY, run_py
from support import environment, run_command, write_encoder

ALUM = EXAMPLES / "alum"
RUN = EXAMPLES / "run.py"


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Its name has a space, as a user's folder may have."""
    folder = tmp_path / "a job"
    folder.mkdir()
    return folder


def stand_ins(folder: Path, **bodies: str) -> dict[str, str]:
    """SLURM's commands, and the environment of a job."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, body in bodies.items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_folder / name).chmod(0o755)
    path = os.pathsep.join([str(bin_folder), environment()["PATH"]])
    return {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "1234567", "SLURM_NNODES": "2",
            "SLURM_JOB_NODELIST": "a[1-2]", "SLURM_GPUS_ON_NODE": "8", "SLURM_NTASKS_PER_NODE": "1",
            "SLURM_CPUS_PER_TASK": "32", "PATH": path}  # fmt: skip


# --- slurm.sbatch


def submitted(
    folder: Path, srun: str, *words: str, **changed: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script as SLURM runs it, and the calls it makes."""
    calls = folder / "calls"
    log = shlex.quote(str(calls))
    slurm = stand_ins(
        folder,
        srun=f'printf "%q " $WORLD_SIZE $MASTER_ADDR $MASTER_PORT "$@" >> {log}; echo >> {log}; {srun}',
        scontrol=f'if [ "$1" = show ]; then echo localhost; else echo "scontrol $*" >> {log}; fi',
    )
    copy = shutil.copy(EXAMPLES / "slurm.sbatch", folder / "slurm_script")
    done = run_command(
        "bash", str(copy), "glue.yaml", "data", "roberta", f"{folder}/out", *words, **{**slurm, **changed}
    )
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_a_process_is_started_for_each_gpu_of_each_node(tmp_path: Path) -> None:
    done, (started,) = submitted(tmp_path, "echo", "glue=qqp")
    assert done.returncode == 0, done.stderr
    words = shlex.split(started)
    assert words[:7] == [
        "16", "localhost", "24567", "--ntasks=16", "--ntasks-per-node=8", "--cpus-per-task=4",
        "--kill-on-bad-exit=1",
    ]  # fmt: skip
    assert words[words.index(str(RUN)) :] == [
        str(RUN), "glue.yaml", "data", "roberta", f"{tmp_path}/out", "--gpus", "16", "glue=qqp",
    ]  # fmt: skip


def test_an_array_is_a_job_a_seed(tmp_path: Path) -> None:
    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "4"}
    done, (started,) = submitted(tmp_path, "echo", "glue=qqp", **array)
    assert done.returncode == 0, done.stderr
    assert shlex.split(started)[-5:] == [
        f"{tmp_path}/out/seed-7456", "--gpus", "4", "common.seed=7456", "glue=qqp",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("srun", "is_queued"),
    [
        ("""echo '{"run": "b", "stopped": "SIGUSR1"}' > OUT/.running; exit 138""", True),
        ("""echo '{"run": "b"}' > OUT/.running; exit 143""", False),
        ("exit 143", False),  # what stands there is of an earlier start
        ("""echo '{"run": "b"}' > OUT/.running; exit 0""", False),
    ],
    ids=["stopped", "failed", "failed before", "done"],
)
@pytest.mark.parametrize("run", ["out", "out/common.seed=2"])  # of a sweep
def test_a_stopped_training_is_queued_again_and_no_other(
    tmp_path: Path, run: str, srun: str, is_queued: bool
) -> None:
    (tmp_path / run).mkdir(parents=True)
    (tmp_path / run / ".running").write_text('{"run": "a", "stopped": "SIGUSR1"}\n')
    done, calls = submitted(tmp_path, srun.replace("OUT", shlex.quote(f"{tmp_path}/{run}")))
    assert done.returncode == int(srun.split()[-1])
    assert ("scontrol requeue 1234567" in calls) == is_queued


# --- alum/prepare_corpus.sbatch


def test_the_array_prepares_the_corpus_and_the_last_step_prints_the_data_argument(tmp_path: Path) -> None:
    """The real script; srun runs what it is given. Then run.py takes what the check printed."""
    slurm = stand_ins(tmp_path, srun='while [[ $1 == --* ]]; do shift; done; exec "$@"')
    slurm["SLURM_CPUS_PER_TASK"] = "1"
    encoder = write_encoder(tmp_path / "encoder")
    (tmp_path / "corpus").mkdir()
    for number in range(3):
        text = "".join(f"w{i % 40} w{(i + number) % 40} w3\n{'' if i % 4 else chr(10)}" for i in range(50))
        (tmp_path / "corpus" / f"part{number}.txt").write_text(text)
    words = [
        "bash", str(ALUM / "prepare_corpus.sbatch"), f"{tmp_path}/corpus/*.txt", str(tmp_path / "bin2"),
        "--shards", "4", "--encoder", str(encoder), "--valid", f"{tmp_path}/corpus/part0.txt",
    ]  # fmt: skip
    array = {"SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "0"}
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


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        ("slurm.sbatch a b c d", {"SLURM_ARRAY_TASK_ID": "5"}, "there are 5 seeds: 0 to 4"),
        ("slurm.sbatch a b c d", {"SLURM_SUBMIT_DIR": "/"}, "call sbatch in the project's folder"),
        ("slurm.sbatch a", {}, "usage: sbatch slurm.sbatch RECIPE"),
        ("alum/prepare_corpus.sbatch a out", {}, "not an array"),
        ("alum/prepare_corpus.sbatch a out", {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MIN": "1"},
         "count the array from 0"),
        ("alum/prepare_corpus.sbatch a out", {"PATH": "/usr/bin:/bin"}, "activate its environment before sb"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, words: str, environment: dict[str, str], message: str) -> None:
    script, *own = words.split()
    slurm = stand_ins(tmp_path, srun="echo srun", scontrol="echo localhost")
    done = run_command("bash", str(EXAMPLES / script), *own, **{**slurm, **environment})
    assert done.returncode == 2 and message in done.stderr and "srun" not in done.stdout
