"""A job that is stopped in mid-epoch, and goes on: to the weights of one that is not stopped, to the bit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.test_training_under_fire import assert_same, end
from jobs import GLUE, NO_GPUS, SCRIPT, SMALL, Job
from private_cluster import Cluster
from support import weights

Submit = Callable[..., Job]
UPDATES = 150
# An update of 16 rows, one at a time: tenths of a second, so that it can be met in the middle of an epoch.
SLOW = [
    *SMALL, f"optimization.max_update={UPDATES}", "optimization.max_epoch=0", "dataset.batch_size=1",
    "dataset.num_workers=1", "lr_scheduler.total_num_update=200", "optimization.update_freq=[4]",
]  # fmt: skip


@pytest.fixture(scope="module")
def straight(cluster: Cluster, rows: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing stops, on two nodes."""
    folder = tmp_path_factory.mktemp("straight")
    words = ("--nodes=2", *NO_GPUS, SCRIPT, GLUE, *rows, folder / "save", *SLOW)
    assert Job(cluster, folder / "logs", words).end() == "COMPLETED"
    return folder / "save"


def submitted(submit: Submit, rows: tuple[str, Path], save: Path, *options: str) -> Job:
    job = submit("--nodes=2", *NO_GPUS, *options, SCRIPT, GLUE, *rows, save, *SLOW)
    job.until_update(10)
    return job


def assert_goes_on(job: Job, save: Path, straight: Path, lives: int = 2) -> None:
    """In as many starts, each from where the one before it was stopped."""
    assert job.end() == "COMPLETED"
    found = job.lives()
    assert len(found) == lives and job.field("Restarts") == str(lives - 1)
    for before, after in zip(found, found[1:]):
        saved = re.search(r"stopped by SIG\w+ after update (\d+)", before)
        assert saved and f"@ {saved[1]} updates)" in after
    assert_same(end(save), end(straight), "")


def come_back(cluster: Cluster, node: str) -> None:
    """As a machine does, after a while, and before SLURM starts the job again, two minutes after the failure.

    What SLURM 22.05 could not tell the node about the job's first start reaches it then, and would end the
    second one.
    """
    time.sleep(45)
    cluster.start_slurmd(node)
    cluster.wait_until_idle()
    time.sleep(10)


def test_the_signal_before_the_time_limit(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], straight: Path, tmp_path: Path
) -> None:
    job = submitted(submit, rows, tmp_path / "save", "--time=60", "--signal=USR1@120")
    cluster.run("scontrol", "update", f"JobId={job.number}", "TimeLimit=2")  # less than 120 seconds are left
    job.until(lambda: "queued again" in job.log())
    assert "stopped by SIGUSR1" in job.log()
    cluster.run("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    assert_goes_on(job, tmp_path / "save", straight)


def test_scontrol_requeue(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], straight: Path, tmp_path: Path
) -> None:
    job = submitted(submit, rows, tmp_path / "save")
    cluster.run("scontrol", "requeue", job.number)
    assert_goes_on(job, tmp_path / "save", straight)


def test_preemption(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], straight: Path, tmp_path: Path
) -> None:
    job = submitted(submit, rows, tmp_path / "save")
    urgent = submit("--partition=urgent", "--nodes=2", "--exclusive", "--wrap=sleep 1")
    assert urgent.end() == "COMPLETED"
    assert_goes_on(job, tmp_path / "save", straight)


@pytest.mark.parametrize("node", ["n1", "n2"])  # n1 runs the script, and rank 0
def test_a_node_that_loses_its_power(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], straight: Path, tmp_path: Path, node: str
) -> None:
    """What has been trained since the last checkpoint is lost, and nothing else."""
    job = submitted(submit, rows, tmp_path / "save")
    cluster.cut_power(node)
    job.until(lambda: job.field("Restarts") == "1")
    come_back(cluster, node)
    assert job.end() == "COMPLETED"
    first, second = job.lives()
    assert "stopped by" not in first and re.search(r"checkpoint_last.pt \(epoch \d+ @ \d+ updates\)", second)
    assert_same(end(tmp_path / "save"), end(straight), "")


def test_a_node_that_is_cut_off(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], straight: Path, tmp_path: Path
) -> None:
    """Its processes go on, and take part in the last update of the others."""
    job = submitted(submit, rows, tmp_path / "save")
    cluster.kill_slurmd("n2")
    job.until(lambda: job.field("Restarts") == "1")
    come_back(cluster, "n2")
    assert_goes_on(job, tmp_path / "save", straight)


def test_a_run_that_its_scheduler_has_lost_is_waited_for(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path
) -> None:
    """On one node: what the other one begins again must not write beside it."""
    words = [*SLOW, "optimization.max_update=600"]
    job = submit(*NO_GPUS, SCRIPT, GLUE, *rows, tmp_path / "save", *words)
    job.until_update(10)
    assert job.field("NodeList").endswith("n1")
    cluster.kill_slurmd("n1")
    job.until(lambda: job.field("Restarts") == "1")
    cluster.run("scontrol", "update", f"JobId={job.number}", "StartTime=now")
    job.until(lambda: job.field("NodeList").endswith("n2"))
    assert "done training" not in job.log()
    assert job.end() == "COMPLETED"
    cluster.start_slurmd("n1")
    _, second = job.lives()
    assert "@ 600 updates)" in second and weights(tmp_path / "save" / "checkpoint_last.pt")


def test_scancel_ends_it_for_good(
    cluster: Cluster, submit: Submit, rows: tuple[str, Path], tmp_path: Path
) -> None:
    """With a checkpoint, and without a process that stays."""
    job = submitted(submit, rows, tmp_path / "save")
    job.cancel()
    assert job.end() == "CANCELLED"
    cluster.wait_until_idle()
    time.sleep(1)
    assert job.field("JobState") == "CANCELLED" and "queued again" not in job.log()
    assert not cluster.processes("fairseq")
    assert "stopped by SIGTERM" in job.log()
