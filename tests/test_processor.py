"""What /proc/cpuinfo says of products of bf16 numbers, and what fairseq-adv doctor makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processors import ARM, X86, write_cpuinfo

from fairseq_adv.cli import doctor
from fairseq_adv_compat import processor

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
    path = write_cpuinfo(tmp_path / "cpuinfo", layout, flags)
    monkeypatch.setattr(processor, "CPUINFO", path)
    assert processor.bf16_products() == found
    assert doctor._processor().value.startswith(f"{found}: " if found else "no products of bf16 numbers")


def test_a_system_without_that_file_or_with_an_odd_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path / "none", tmp_path):
        monkeypatch.setattr(processor, "CPUINFO", path)
        assert processor.bf16_products() == ""
    (tmp_path / "odd").write_bytes(b"\xff\xfe\nflags\nFeatures:\n")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "odd")
    assert processor.bf16_products() == ""


def test_it_needs_no_torch() -> None:
    code = "import sys; from fairseq_adv_compat import processor; processor.bf16_products()"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True
    )
    assert done.stdout.strip() == b"False", done.stderr
