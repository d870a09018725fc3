"""A real SLURM of two nodes on this machine, for the tests of this folder; nothing of it outlives them.

Its daemons live in namespaces of their own, for which root is needed: one of processes, so that the kernel
ends them together with all that they started; a view of /etc/hosts; and for each node a host name, an address
and a disk (DIR/local) that the other one does not see. Client commands find it through the environment.

    python private_cluster.py DIR   starts one and waits for the end of standard input
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

DAEMONS = ("slurmctld", "slurmd", "munged")

SLURM_CONF = """\
ClusterName=test
SlurmctldHost=ctl(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=30
SlurmdTimeout=10
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=n1 NodeAddr=127.0.0.1 Port={n1} CPUs=64 RealMemory=1000000 Gres=gpu:8
NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.2 Port={n2} CPUs=64 RealMemory=1000000 Gres=gpu:8
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""
GRES_CONF = "NodeName=n1,n2 Name=gpu File={dir}/gpu[0-7]\n"


def missing() -> str:
    """Why no cluster can be started here; "" if one can."""
    absent = [name for name in (*DAEMONS, "sbatch", "unshare") if not shutil.which(name, path=search_path())]
    if absent:
        packages = "slurmctld slurmd slurm-client munge"
        return f"{', '.join(absent)} not installed (Debian, Ubuntu: apt-get install {packages})"
    if os.geteuid():
        return "namespaces of their own want root"
    return ""


def search_path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/local/sbin", "/usr/sbin", "/sbin"])


class Cluster:
    """Two nodes, n1 and n2, of 64 cores and 8 GPUs each, as they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = dict(zip(("port", "n1", "n2"), free_ports(3)))
        names = {"dir": self.folder, "user": getpass.getuser(), **ports}
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**names))
        (self.folder / "gres.conf").write_text(GRES_CONF.format(**names))
        for name in ("state", "local"):
            (self.folder / name).mkdir(exist_ok=True)
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": search_path(),
        }
        # Nothing that a test's own environment says of workers may reach the jobs.
        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
            self.environment.pop(name, None)

    def __enter__(self) -> Cluster:
        apart = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]
        with open(self.folder / "init.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*apart, "bash", "-euc", INIT], stdout=log, stderr=log, cwd=self.folder, env=self.environment
            )
        self.wait_until_idle()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def idle(self) -> int:
        """How many nodes could take a job."""
        done = self.run("sinfo", "-h", "-N", "-t", "idle", "-p", "main", "-o", "%n", check=False)
        return len(done.stdout.split())

    def run(self, *words: object, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
        """A client command to its end."""
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, env=self.environment, **options
        )  # type: ignore[call-overload]
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done  # type: ignore[no-any-return]

    def processes(self, pattern: str, node: str | None = None) -> list[int]:
        """What jobs, of one node or of both, have started whose command line holds ``pattern``.

        As seen from outside the namespaces.
        """
        found, conf = [], f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environ = (process / "environ").read_bytes().split(b"\0")
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                there = node is None or f"SLURMD_NODENAME={node}".encode() in environ
                if conf in environ and there and pattern in line:
                    found.append(int(process.name))
        return found

    def wait_until_idle(self) -> None:
        """No job is left on a node."""
        deadline = time.monotonic() + 90
        while self.idle() < 2:
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)

    def kill_slurmd(self, node: str) -> None:
        """As where a node is cut off: its jobs' processes go on."""
        for pid in self.processes(f"slurmd -N {node}"):
            os.kill(pid, signal.SIGKILL)

    def cut_power(self, node: str) -> None:
        """Nothing of the node goes on; its host name tells what is on it."""
        (slurmd,) = self.processes(f"slurmd -N {node}")
        host = os.readlink(f"/proc/{slurmd}/ns/uts")
        os.kill(slurmd, signal.SIGKILL)
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(process / "ns" / "uts") == host:
                    os.kill(int(process.name), signal.SIGKILL)

    def start_slurmd(self, node: str) -> None:
        (self.folder / "start-node").write_text(f"{node}\n")

    def logs(self) -> str:
        names = ("init.log", "slurmctld.log", "slurmd-n1.log", "slurmd-n2.log")
        return "\n".join(
            f"--- {name}\n{(self.folder / name).read_text()[-3000:]}"
            for name in names
            if (self.folder / name).is_file()
        )


# The process that all others in the namespace end with. A node is started anew by: echo n1 > start
INIT = """
mount --make-rprivate /
printf '127.0.0.1 localhost ctl n1\\n127.0.0.2 n2\\n' > hosts
mount --bind hosts /etc/hosts
for number in $(seq 0 7); do mknod gpu$number c 1 3; done  # as /dev/null; what SLURM believes to be GPUs
head -c 1024 /dev/urandom > munge.key; chmod 600 munge.key
munged --force --key-file=$PWD/munge.key --socket=$PWD/munge.socket --pid-file=$PWD/munged.pid \\
    --log-file=$PWD/munged.log --seed-file=$PWD/munge.seed
unshare --uts bash -c 'hostname ctl; exec slurmctld'
start() {
    unshare --uts --mount bash -euc 'hostname $1; mount -t tmpfs none local; exec slurmd -N $1' - "$1"
}
start n1; start n2
mkfifo start-node; exec 3<> start-node
while read -r node <&3; do start "$node"; done
"""


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held_one.getsockname()[1] for held_one in held]
    for held_one in held:
        held_one.close()
    return ports


if __name__ == "__main__":
    with Cluster(Path(sys.argv[1])) as cluster:
        print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}", flush=True)
        sys.stdin.read()
