#!/usr/bin/env python3
"""The time to turn SQuAD's JSON into windows of tokens with targets: this project against Hugging Face.

Both sides read the same file, tokenise with GPT-2's BPE in Rust on one thread, cut windows of the same length
and overlap, and locate the answers. Theirs does what run_qa.py's prepare_train_features does: it runs the
fast tokenizer on (question, context) with overflow and offsets, 1000 questions at a time, and so tokenises a
context once for each of its questions. Both must find the same windows and the same targets.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fairseq_adv.cli.script import count

ROOT = Path(__file__).resolve().parents[1]
LENGTH, OVERLAP = 384, 128  # run_qa.py's


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    data = ROOT.parent / "shared/data"
    options.add_argument(
        "--squad",
        type=Path,
        default=data / "squad/train-v1.1.answerable-of-v2-slice.json",
        help="SQuAD's JSON file",
    )
    options.add_argument(
        "--bpe", type=Path, default=data / "gpt2_bpe", help="folder with encoder.json, vocab.bpe, dict.txt"
    )
    options.add_argument("--runs", type=count, default=5, help="turns of each side")
    return options


def ours(path: Path, tokenizer: Any) -> Any:
    from fairseq_adv.data.spans.spans_dataset import cut_into_windows, targets_of
    from fairseq_adv.data.spans.squad import read_squad

    squad = read_squad(path)
    windows = cut_into_windows(squad, tokenizer, LENGTH, OVERLAP)
    return windows.question.tolist(), targets_of(squad, windows).tolist()


def theirs(path: Path, tokenizer: Any) -> Any:
    rows = [
        (row["question"], paragraph["context"], row["answers"][0])
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]
        for paragraph in article["paragraphs"] for row in paragraph["qas"]
    ]  # fmt: skip
    questions: list[int] = []
    targets: list[list[int]] = []
    for begin in range(0, len(rows), 1000):
        part = rows[begin : begin + 1000]
        found = tokenizer(
            [question.strip() for question, _, _ in part], [context for _, context, _ in part],
            truncation="only_second", max_length=LENGTH, stride=OVERLAP, return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )  # fmt: skip
        for k, number in enumerate(found["overflow_to_sample_mapping"]):
            questions.append(begin + number)
            targets.append(target_of(found.sequence_ids(k), found["offset_mapping"][k], part[number][2]))
    return questions, targets


def target_of(sequence: list[Any], offsets: list[Any], answer: dict[str, Any]) -> list[int]:
    """As in run_qa.py: the first and last token of the answer, 0 0 if the window lacks part of it."""
    start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    first, last = sequence.index(1), len(sequence) - 1
    while sequence[last] != 1:
        last -= 1
    if not (offsets[first][0] <= start and offsets[last][1] >= end):
        return [0, 0]
    begin = first
    while begin < len(offsets) and offsets[begin][0] <= start and begin <= last:
        begin += 1
    stop = last
    while offsets[stop][1] >= end and stop >= first:
        stop -= 1
    return [begin - 1, stop + 1]


def seconds(work: Any, *words: Any) -> tuple[float, Any]:
    begin = time.process_time()
    found = work(*words)
    return time.process_time() - begin, found


def main() -> int:
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    sys.modules["torchaudio"] = None  # type: ignore[assignment]
    args = parser().parse_args()
    from transformers import PreTrainedTokenizerFast

    from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer

    files = [args.bpe / name for name in ("encoder.json", "vocab.bpe", "dict.txt")]
    mine = Gpt2Tokenizer(*files)
    with tempfile.TemporaryDirectory() as folder:
        fast = PreTrainedTokenizerFast(tokenizer_file=str(as_fast(files, Path(folder))))
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(args.runs):
        spent, one = seconds(ours, args.squad, mine)
        times["ours"].append(spent)
        spent, other = seconds(theirs, args.squad, fast)
        times["theirs"].append(spent)
    same = sum(a == b for a, b in zip(one[1], other[1]))
    print(f"windows: {len(one[0])} and {len(other[0])}; of the same questions: {one[0] == other[0]}")
    print(f"targets alike: {same} of {len(one[1])}")
    middle = {side: statistics.median(spent) for side, spent in times.items()}
    print(f"CPU seconds, median of {args.runs}: ours {middle['ours']:.2f}, theirs {middle['theirs']:.2f}")
    print(f"theirs / ours: {middle['theirs'] / middle['ours']:.1f}")
    return 0


def as_fast(files: list[Path], folder: Path) -> Path:
    """A tokenizer.json of GPT-2's BPE with RoBERTa's special tokens around a pair."""
    from tokenizers import ByteLevelBPETokenizer, processors

    engine = ByteLevelBPETokenizer(str(files[0]), str(files[1]))
    engine.add_special_tokens(["<s>", "</s>"])
    numbers = [(token, engine.token_to_id(token)) for token in ("</s>", "<s>")]
    engine._tokenizer.post_processor = processors.RobertaProcessing(
        *numbers, trim_offsets=True, add_prefix_space=False
    )
    engine.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


if __name__ == "__main__":
    sys.exit(main())
