#!/usr/bin/env python3
"""Whether the library ``tokenizers`` could do the work of ``tiktoken``: ids, and speed.

Compares ids on odd strings and on each line of a text, and takes the CPU time of one thread for the lines.
The reference for GPT-2's BPE is fairseq's own encoder, which is too slow to be used on more than odd text.

Example: benchmarks/tokenizer_library.py ../shared/data/gpt2_bpe ../shared/data/science_text/sentences.txt
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from odd_strings import odd_strings  # noqa: E402

from fairseq_adv.cli.script import HelpFormatter, count  # noqa: E402

Encode = Callable[[Sequence[str]], list[list[int]]]


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("bpe", type=Path, help="folder with GPT-2's encoder.json and vocab.bpe")
    options.add_argument("text", type=Path, help="a text, line by line")
    options.add_argument("--strings", type=count, default=100_000, help="odd strings")
    options.add_argument("--lines", type=count, default=20_000, help="lines of the text")
    options.add_argument("--turns", type=count, default=7, help="of the measurement of time")
    return options


def gpt2(folder: Path) -> tuple[Encode, Encode, Encode]:
    """Ours, the library's and the reference's."""
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from tokenizers import ByteLevelBPETokenizer

    from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Engine

    files = folder / "encoder.json", folder / "vocab.bpe"
    engine, library, reference = (
        Gpt2Engine(*files),
        ByteLevelBPETokenizer(*map(str, files)),
        get_encoder(*files),
    )
    return (
        lambda rows: [[engine.numbers[i] for i in ids] for ids in engine.encode_batch(rows)],
        lambda rows: [encoding.ids for encoding in library._tokenizer.encode_batch_fast(list(rows))],
        lambda rows: [reference.encode(row) for row in rows],
    )


def differing(one: Encode, other: Encode, rows: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(one(rows), other(rows)))


def main() -> None:
    options = parser().parse_args()
    text = options.text.read_text(encoding="utf-8").splitlines()
    strings, lines = odd_strings(options.strings), text[: options.lines]
    print("| | ours differs | the library differs, odd strings | lines | speed of the library/ours |")
    print("|---|---|---|---|---|")
    sides = {"GPT-2's BPE": gpt2(options.bpe)}
    for name, (ours, library, reference) in sides.items():
        ratios = []
        for _ in range(options.turns):
            times = []
            for side in (ours, library):
                start = time.process_time()
                side(lines)
                times.append(time.process_time() - start)
            ratios.append(times[0] / times[1])
        speed = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        wrong = [differing(side, reference, strings) for side in (ours, library)]
        print(f"| {name} | {wrong[0]} | {wrong[1]} | {differing(library, reference, lines)} | {speed} |")


if __name__ == "__main__":
    main()
