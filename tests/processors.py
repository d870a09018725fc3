"""Machines with and without bf16 instructions, whatever this one has."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from support import PLUGIN

X86 = "processor\t: {number}\nflags\t\t: fpu sse2 avx512f {more}\nbugs\t\t: spectre_v1\n\n"
ARM = "processor\t: {number}\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd {more}\n\n"
BF16, NONE = X86.format(number=0, more="avx512_bf16"), X86.format(number=0, more="avx512_vnni")

# mutate.py runs the tests in a copy of the checkout, and the last --user-dir is the one that counts.
_MODULE = f"""
import os
import sys
from pathlib import Path

sys.path.insert(0, {str(Path(PLUGIN).parent)!r})

import fairseq_adv.plugin
from fairseq_adv_compat import machine

names = os.environ["PROCESSORS"].split(",")
machine.CPUINFO = Path(__file__).with_name(names[int(os.environ.get("RANK", "0"))])
"""


def write_machines(folder: Path) -> Path:
    """A ``--user-dir``. In the variable PROCESSORS, each worker's machine: bf16 or none."""
    folder.mkdir()
    (folder / "__init__.py").write_text(_MODULE)
    (folder / "bf16").write_text(BF16)
    (folder / "none").write_text(NONE)
    return folder


def write_cpuinfo(path: Path, text: str, flags: Sequence[str] = ()) -> Path:
    """Two processors with these flags."""
    path.write_text("".join(text.format(number=i, more=" ".join(flags)) for i in range(2)))
    return path
