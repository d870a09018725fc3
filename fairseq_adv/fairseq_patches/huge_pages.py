"""Lets torch's CPU allocator ask Linux for huge pages for tensors of 2 MiB and more.

The gradient of a table of 30,522 words × 384 is made anew in each update. Taken in pages of 4 KiB it costs
20 ms, in huge pages 4 ms: a tenth of an update of a small encoder. torch reads the variable when it first
asks for memory, so a process that has made tensors before stays as it is.
"""

from __future__ import annotations

import os

VARIABLE = "THP_MEM_ALLOC_ENABLE"  # c10/core/impl/alloc_cpu.cpp


def ask_for_huge_pages() -> None:
    """Sets torch's variable, unless the user has set it."""
    os.environ.setdefault(VARIABLE, "1")
