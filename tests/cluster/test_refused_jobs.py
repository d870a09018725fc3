"""What goes wrong on a cluster ends the job soon, says why in its log, and leaves no process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import GLUE, NO_GPUS, SCRIPT, SMALL, Job
from private_cluster import Cluster

Submit = Callable[..., Job]
MINUTE = 60.0
LONG = [*SMALL, "optimization.max_update=4000", "optimization.max_epoch=0"]


def assert_failed(cluster: Cluster, job: Job, message: str, within: float = MINUTE) -> None:
    """Soon, with this line, not queued again, and with no process left on either node."""
    begun = time.monotonic()
    assert job.end() == "FAILED"
    assert time.monotonic() - begun < within
    assert message in job.log() and job.field("Restarts") == "0" and job.field("ExitCode") != "0:0"
    cluster.wait_until_idle()
    assert not cluster.processes("fairseq") and not cluster.processes("run.py")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({4: "criterion.adv_step=3"}, "error: criterion.adv_step: no such key"),
        ({4: "criterion.adv_steps=0"}, "error: --adv-steps 0: pass 1 or more"),
    ],
    ids=["run.py", "training"],
)
def test_a_mistake_fails_the_job(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path, changed: dict[int, str],
    message: str,
) -> None:  # fmt: skip
    words = [GLUE, *rows, tmp_path / "save", "criterion.adv_lr=0.1", *LONG]
    for place, word in changed.items():
        words[place] = word
    assert_failed(cluster, submit("--nodes=2", *NO_GPUS, SCRIPT, *words), message)


def test_a_rank_that_dies_ends_the_job(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path
) -> None:
    job = submit("--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, tmp_path / "save", *LONG)
    job.until_update(3)
    for pid in cluster.processes("fairseq-hydra-train", "n2"):
        if b"SLURM_PROCID=1" in Path(f"/proc/{pid}/environ").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert_failed(cluster, job, "task 1: Killed")


def test_data_that_one_node_lacks(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path
) -> None:
    """A disk of the node's own: rank 1 says what it misses, and rank 0 does not wait for it."""
    local = cluster.folder / "local" / "data"
    cluster.run("srun", "--nodelist=n1", "cp", "-r", rows[0], local)
    words = [GLUE, local, rows[1], tmp_path / "save", *LONG]
    job = submit("--nodes=2", *NO_GPUS, SCRIPT, *words)
    assert_failed(cluster, job, f"error: {local}: no such folder")


def test_a_save_dir_that_the_nodes_do_not_share(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path]
) -> None:
    save = cluster.folder / "local" / "save"
    job = submit("--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, save, *LONG)
    message = f"error: {save}: files that rank 0 on n1 writes there are not visible on n2. Pass a --save-dir"
    assert_failed(cluster, job, message, within=2 * MINUTE)


def test_two_jobs_with_one_save_dir(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path
) -> None:
    words = ["--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, tmp_path / "save", *LONG]
    first = submit(*words)
    first.until_update(1)
    second = submit(*words)
    second.end()
    first.cancel()
    first.end()
    message = f"{tmp_path}/save: another run is writing its checkpoints there, process "
    assert f"(SLURM job {first.number})" in second.log()
    assert_failed(cluster, second, message)


def test_a_signal_before_the_first_update_does_not_queue_it_for_ever(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path
) -> None:
    job = submit("--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, tmp_path / "save", *LONG)
    job.until(lambda: bool(job.environments()))
    cluster.run("scancel", "--signal=USR1", job.number)
    assert_failed(cluster, job, "User defined signal 1")
