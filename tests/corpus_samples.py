"""Awkward corpora, and fairseq's own two steps on them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Sequence

import numpy as np
from glue_recipe import _answer
from glue_samples import AWKWARD

# fmt: off
ATOMS = [
    "a", "The", "the", "'s", "'ll", "don't", "1", "23", "½", "²", ".", "...", "!?", "_", "<s>", "</s>",
    "<|endoftext|>", "é", "e\u0301", "\u0301", "中文", "か\u3099",
    "[SEP]", "##ing", "ÀÉ", "İ", "ß", "ΑΣ", "ﬁ",
    "\U0001f642", "\U0001fae8", "\U0001d7d9", "\U0001f468\u200d\U0001f469", "\ufeff", "\u200b", "\u00ad",
    "\x00", "\x08", "\x7f", "\u0378", "\U000e0001", "x" * 120,
]
SPACES = [
    *((" ",) * 12), "  ", "   ", "    ", "\t", "\xa0", "\u3000", "\x0b", "\x0c", "\x1c", "\x1f", "\x85",
    "\u2028", "\u180e", "\u2009", " \t", " \xa0 ", "\t ",
]
# fmt: on


def awkward_row(rng: random.Random) -> str:
    """Words and white space of all kinds, in any order; nothing that ends a line."""
    count = rng.choice([0, 1, 2, 3, 5, 8, 13, 30])
    return "".join(rng.choice(ATOMS) if rng.random() < 0.6 else rng.choice(SPACES) for _ in range(count))


def awkward_corpus(path: Path, seed: int = 0, rows: int = 300, ends: Sequence[str] = ("\n",)) -> Path:
    """Documents of awkward rows between blank lines of all kinds."""
    rng = random.Random(seed)
    lines = []
    for _ in range(rows):
        kind = rng.random()
        lines.append(
            rng.choice(AWKWARD) if kind < 0.4
            else rng.choice(["", "", " ", "\u3000\t", "\x1c"]) if kind < 0.6
            else awkward_row(rng)
        )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + rng.choice(ends) for line in lines).encode())
    return path


def fairseq_steps(texts: Sequence[Path], bpe: Path, work: Path, keep_empty: bool = True) -> Path:
    """``multiprocessing_bpe_encoder`` and ``fairseq-preprocess`` on the files joined; returns the folder."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "raw").write_bytes(b"".join(path.read_bytes() for path in texts))
    encode = ["-m", "examples.roberta.multiprocessing_bpe_encoder", "--inputs", str(work / "raw")]
    encode += ["--outputs", str(work / "encoded"), "--workers", "1"]
    encode += ["--encoder-json", str(bpe / "encoder.json")]
    encode += ["--vocab-bpe", str(bpe / "vocab.bpe"), *(["--keep-empty"] if keep_empty else [])]
    _answer("python", encode)
    return fairseq_binarizes(work / "encoded", bpe / "dict.txt", work / "bin")


def fairseq_binarizes(encoded: Path, dictionary: Path, out: Path) -> Path:
    """``fairseq-preprocess --only-source`` on text that is tokenised already."""
    words = ["--only-source", "--srcdict", str(dictionary), "--trainpref", str(encoded)]
    _answer("fairseq-preprocess", [*words, "--destdir", str(out), "--workers", "1"])
    return out


def split_bytes(folders: Sequence[Path], split: str = "train") -> bytes:
    """The ids of the shards one after the other, as stored."""
    return b"".join((folder / f"{split}.bin").read_bytes() for folder in folders)


def row_lengths(folders: Sequence[Path], split: str = "train") -> list[int]:
    """The rows' lengths of the shards one after the other."""
    lengths = []
    for folder in folders:
        index = (folder / f"{split}.idx").read_bytes()
        rows = int.from_bytes(index[18:26], "little")
        lengths += np.frombuffer(index, np.int32, rows, 26).tolist()
    return lengths


def gzipped(path: Path, members: int = 2) -> Path:
    """The file as .gz beside it, in several members, one after the other."""
    data, out = path.read_bytes(), path.with_name(path.name + ".gz")
    size = len(data) // members + 1
    out.write_bytes(b"".join(gzip.compress(data[i : i + size], mtime=0) for i in range(0, len(data), size)))
    return out


def zstandard_file(path: Path, frames: int = 2) -> Path:
    """The file as .zst beside it, in several frames; skips the test where the package is not installed."""
    import pytest

    zstandard = pytest.importorskip("zstandard")
    data, out = path.read_bytes(), path.with_name(path.name + ".zst")
    size = len(data) // frames + 1
    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    out.write_bytes(b"".join(compress(data[i : i + size]) for i in range(0, len(data), size)))
    return out
