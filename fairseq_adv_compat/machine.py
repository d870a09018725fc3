"""What this machine offers: bf16 instructions, and huge pages. Imports neither torch nor fairseq."""

from __future__ import annotations

import os
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")  # of Linux, x86 and ARM
# Its line that lists what the processor can do -> the words there that stand for bf16 instructions.
_BF16 = {"flags": ("avx512_bf16", "amx_bf16"), "Features": ("bf16",)}
_HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # torch: c10/core/impl/alloc_cpu.cpp


def bf16_products() -> str:
    """The flag of a processor that multiplies matrices in bf16, such as ``avx512_bf16``; else ""."""
    try:
        with CPUINFO.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, words = line.partition(":")
                known = _BF16.get(name.strip())
                if known is not None:  # the first processor; Linux shows the same for all
                    return next((flag for flag in known if flag in words.split()), "")
    except OSError:
        pass
    return ""


def ask_for_huge_pages() -> None:
    """Lets torch's CPU allocator ask Linux for huge pages for tensors of 2 MiB and more.

    The gradient of a table of 30,522 words × 384 is made anew in each update. Taken in pages of 4 KiB it
    costs 20 ms, in huge pages 4 ms: a tenth of an update of a small encoder. torch reads the variable when it
    first asks for memory, so a process that has made tensors before stays as it is. A value that the user has
    set stays, too.
    """
    os.environ.setdefault(_HUGE_PAGES, "1")
