"""What /proc/cpuinfo says of bf16 instructions, and huge pages for large tensors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processors import ARM, X86, write_cpuinfo
from support import run_command

from fairseq_adv.cli import doctor
from fairseq_adv_compat import machine

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("layout", "flags", "found"),
    [
        (X86, ["avx512_bf16"], "avx512_bf16"),
        (X86, ["amx_bf16", "amx_tile"], "amx_bf16"),
        (X86, ["amx_bf16", "avx512_bf16"], "avx512_bf16"),
        (X86, ["avx512_vnni", "bf16"], ""),  # ARM's word
        (X86, [], ""),
        (ARM, ["i8mm", "bf16", "sve"], "bf16"),
        (ARM, ["sve", "svebf16", "avx512_bf16"], ""),
    ],
    ids=str,
)
def test_the_flags_of_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, flags: list[str], found: str
) -> None:
    monkeypatch.setattr(machine, "CPUINFO", write_cpuinfo(tmp_path / "cpuinfo", layout, flags))
    assert machine.bf16_products() == found
    assert doctor._processor().value.startswith(f"{found}: " if found else "no bf16 instructions")


def test_a_system_without_that_file_or_with_an_odd_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd").write_bytes(b"\xff\xfe\nflags\nFeatures:\n")
    for path in (tmp_path / "none", tmp_path, tmp_path / "odd"):
        monkeypatch.setattr(machine, "CPUINFO", path)
        assert machine.bf16_products() == ""


KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SIZE = 64 * 2**20
PAGE_FAULTS = f"""
import resource
from fairseq_adv_compat.machine import ask_for_huge_pages
ask_for_huge_pages()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
tensor = torch.zeros({SIZE // 4})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not KERNEL.is_file() or "[madvise]" not in KERNEL.read_text(),
    reason="this system gives huge pages to all that ask, or to none",
)
@pytest.mark.slow
def test_torch_asks_for_huge_pages_unless_the_user_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    faults = []
    for chosen in ({"THP_MEM_ALLOC_ENABLE": "0"}, {}):
        done = run_command(sys.executable, "-c", PAGE_FAULTS, **chosen)
        assert done.returncode == 0, done.stderr
        faults.append(int(done.stdout))
    small = SIZE // os.sysconf("SC_PAGE_SIZE")
    assert faults[0] >= small and faults[1] < small / 2
