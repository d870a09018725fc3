"""What this machine's processor can do. Imports neither torch nor fairseq."""

from __future__ import annotations

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")  # of Linux, x86 and ARM
# Its line that lists what the processor can do -> the words there that stand for products of bf16 numbers.
_BF16 = {"flags": ("avx512_bf16", "amx_bf16"), "Features": ("bf16",)}


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
