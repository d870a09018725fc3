"""A job of the private cluster, from its submission to its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from private_cluster import Cluster
from recipes import ROOT, TINY

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
SCRIPT = ROOT / "examples" / "slurm.sbatch"
GLUE = "examples/glue/config/glue.yaml"
# What makes a recipe tiny, and fit for nodes without GPUs.
WORDS = [word for word in TINY if "max_update" not in word and "update_freq" not in word]
SMALL = [*WORDS, "task.max_positions=16", "glue=rte"]
NO_GPUS = ["--gpus-per-node=0"]
# legacy_ddp gives unused weights a gradient of 0, so that they decay; without it they have none.
NO_DECAY = ["optimizer.weight_decay=0"]


class Job:
    """Submitted by ``sbatch``."""

    def __init__(self, cluster: Cluster, logs: Path, words: tuple[object, ...]) -> None:
        logs.mkdir(exist_ok=True)
        self.cluster, self.logs = cluster, logs
        done = cluster.run("sbatch", "--parsable", f"--output={logs}/%A_%a.log", *words, cwd=ROOT)
        self.number = done.stdout.strip()

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.logs.glob(f"{self.number}_*.log")))

    def field(self, name: str) -> str:
        """Of ``scontrol show job``; for an array, its tasks' words joined by spaces."""
        with suppress(AssertionError):
            told = self.cluster.run("scontrol", "show", "job", self.number).stdout
            return " ".join(re.findall(rf"\b{name}=(\S+)", told))
        return "UNKNOWN"

    def until(self, condition: Callable[[], bool], seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{self.field('JobState')}\n{self.log()[-3000:]}"
            time.sleep(0.1)

    def until_update(self, number: int) -> None:
        """A worker of the life that goes on has logged an update of that number or a later one."""
        self.until(lambda: any(one >= number for one in self.updates()))

    def updates(self) -> list[int]:
        return [int(n) for n in re.findall(r'\[train_inner\].*"num_updates": "(\d+)"', self.log())]

    def lives(self) -> list[str]:
        """What the log tells of each start."""
        return re.split(r"(?=^fairseq-hydra-train )", self.log(), flags=re.MULTILINE)[1:]

    def end(self, seconds: float = 240) -> str:
        """The state in which it ended; a job that was queued again begins without SLURM's two minutes."""
        self.until(lambda: not self._is_on(), seconds)
        return self.field("JobState")

    def _is_on(self) -> bool:
        if self.field("Reason").startswith("BeginTime"):
            self.cluster.run("scontrol", "update", f"JobId={self.number}", "StartTime=now", check=False)
        return any(state not in OVER for state in self.field("JobState").split())

    def cancel(self) -> None:
        self.cluster.run("scancel", self.number, check=False)

    def environments(self, pattern: str = "fairseq-hydra-train") -> list[dict[str, str]]:
        """Of the processes that train, by rank."""
        found = []
        for pid in self.cluster.processes(pattern):
            with suppress(OSError):
                pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
                if variables.get("SLURM_JOB_ID") and variables.get("SLURM_PROCID"):
                    found.append(variables)
        return sorted(found, key=lambda one: (one["SLURM_JOB_ID"], int(one["SLURM_PROCID"])))
