"""Starts Python without the current folder on its path; how many processes load a run's rows.

``python -m`` and ``python -c`` look for modules in the current folder first: in a folder of others, its
``torch.py`` would run. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import List

# Python has -P only from 3.11 on. An empty name stands for the current folder, from which nothing was
# imported yet.
LEAVE_OUT = "import sys; sys.path[:1] = filter(None, sys.path[:1])\n"
"""Begins the code of ``python -c``."""


def python_code(code: str, *words: str) -> List[str]:
    """The command that runs ``code`` with this Python.

    Args:
        words: its arguments.
    """
    return [sys.executable, "-c", LEAVE_OUT + code, *words]


def python_module(name: str, *words: str) -> List[str]:
    """The command that runs a module as ``python -m`` does.

    Args:
        words: its arguments.
    """
    code = f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    return python_code(code, *words)


def own_cores() -> int:
    """The cores that this process is bound to, as by SLURM, taskset or a cpuset; otherwise the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def loaders(workers: int, environment: Mapping[str, str] = os.environ) -> int:
    """How many processes load rows for each GPU: one for each core that it has beside its own, at most 4.

    Args:
        workers: of the whole run, one a GPU.
        environment: of torchrun or SLURM, which tell how many of them are on this machine.
    """
    nodes = int(environment.get("SLURM_NNODES") or 1)
    here = max(int(environment.get("LOCAL_WORLD_SIZE") or -(-workers // nodes)), 1)
    # SLURM may bind each of its tasks to cores of its own.
    if own_cores() <= int(environment.get("SLURM_CPUS_PER_TASK") or 0):
        tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", "1").partition("(")[0].partition(",")[0]
        here = -(-here // int(tasks))
    return max(1, min(4, own_cores() // here - 1))
