"""Large tensors on the CPU lie in huge pages: a tensor costs few page faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SIZE = 64 * 2**20
PROGRAM = f"""
import resource
import fairseq_adv.plugin, torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
tensor = torch.zeros({SIZE // 4})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> int:
    clean = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**clean, **environment}
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(
    not KERNEL.is_file() or "[madvise]" not in KERNEL.read_text(),
    reason="this system gives huge pages to all that ask, or to none",
)
@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 2),
    reason="torch's allocator doesn't ask before 2.2",
)
def test_the_plugin_asks_for_them_unless_the_user_does_not() -> None:
    small = SIZE // os.sysconf("SC_PAGE_SIZE")
    assert faults(THP_MEM_ALLOC_ENABLE="0") >= small
    assert faults() < small / 2
