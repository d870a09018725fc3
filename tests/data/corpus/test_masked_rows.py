"""The rows of a masked language model are fairseq's own, and read from the file in any break mode."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from corpus_shards import pretraining_args, write_shards
from fairseq.tasks.masked_lm import MaskedLMTask
from support import build, slow
from torch.utils.data import DataLoader

from fairseq_adv.data.corpus.masked_rows import _begins_word
from fairseq_adv.data.errors import DataError

SEEDS = (1, 2, 30)
NUMBERS = [str(number) for number in range(300)]  # as in GPT-2's dictionary
MASKS = {
    "BERT's": "",
    "other shares": "--mask-prob 0.4 --leave-unmasked-prob 0.3 --random-token-prob 0.5",
    "always <mask>": "--leave-unmasked-prob 0 --random-token-prob 0",
    "never left": "--leave-unmasked-prob 0 --random-token-prob 0.5",
    "never random": "--leave-unmasked-prob 0.5 --random-token-prob 0",
    "frequent words": "--freq-weighted-replacement --random-token-prob 0.9",
    "whole words": "--mask-whole-words",
    "spans": "--mask-multiple-length 3",
    "spans of several lengths": "--mask-multiple-length 3 --mask-stdev 1.5",
    "spans of whole words": "--mask-whole-words --mask-multiple-length 2 --mask-stdev 1",
    "targets as inputs": "--include-target-tokens",
}
SHORTENED = "--shorten-method truncate --tokens-per-sample 16"  # rows that are not in the file


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of a GPT-2 BPE in which every third token begins a word."""
    folder = tmp_path_factory.mktemp("bpe")
    letters = {("" if number % 3 else "Ġ") + f"a{number}": number for number in range(300)}
    (folder / "encoder.json").write_text(json.dumps(letters))
    (folder / "vocab.bpe").write_text("#version: 0.2\na 1\n")
    return {"gpt2_encoder_json": f"{folder}/encoder.json", "gpt2_vocab_bpe": f"{folder}/vocab.bpe"}


def both(data: Path, bpe: dict[str, str], *words: str) -> tuple[Any, Any]:
    """Our training split, and that of fairseq 0.12.2."""
    if "--mask-whole-words" in words:
        files = [f"--{name.replace('_', '-')}={path}" for name, path in bpe.items()]
        words = (*words, "--bpe", "gpt2", *files)
    task = build(pretraining_args(data, data.parent, "masked_lm", "--no-save", *words)).task
    ours = task.dataset("train")
    task.args = Namespace(bpe="gpt2", **bpe)  # without it fairseq can't mask whole words
    fairseqs: Any = MaskedLMTask.load_dataset
    fairseqs.__wrapped__(task, "train")
    return ours, task.dataset("train")


def flat(batch: dict[str, Any], before: str = "") -> dict[str, Any]:
    found = {}
    for name, value in batch.items():
        found.update(flat(value, f"{name}.") if isinstance(value, dict) else {before + name: value})
    return found


def assert_equal_batches(ours: Any, fairseqs: Any, epoch: int, size: int) -> None:
    """In the same order, with the same fields."""
    options = {"max_tokens": None, "max_sentences": size}
    batches = [list(data.batch_by_size(data.ordered_indices(), **options)) for data in (ours, fairseqs)]
    assert len(batches[0]) == len(batches[1]) > 1
    for data in (ours, fairseqs):
        data.set_epoch(epoch)
    for mine, theirs in zip(*batches):
        assert mine.tolist() == theirs.tolist()
        found = flat(ours.collater([ours[i] for i in mine]))
        for name, expected in flat(fairseqs.collater([fairseqs[i] for i in theirs])).items():
            value = found.pop(name)
            assert type(value) is type(expected), name
            if torch.is_tensor(expected):
                assert value.dtype == expected.dtype and torch.equal(value, expected), name
            else:
                assert value == expected, name
        assert not found


@pytest.mark.parametrize(
    ("masks", "rows"), [*((name, 30) for name in MASKS), *(slow(name, 10_000) for name in MASKS)]
)
def test_the_masks_are_those_of_fairseq(masks: str, rows: int, tmp_path: Path, bpe: dict[str, str]) -> None:
    data = write_shards(tmp_path, 1, rows=rows, longest=23, words=NUMBERS)
    (data / "dict.txt").write_text("".join(f"{word} {word}\n" for word in NUMBERS))  # each with its frequency
    more = ["--sample-break-mode", "eos", *MASKS[masks].split()]
    for epoch, seed in enumerate(SEEDS, 1):
        ours, fairseqs = both(data, bpe, *more, "--seed", str(seed))
        assert len(ours) == rows
        assert_equal_batches(ours, fairseqs, epoch, 16)


@pytest.mark.parametrize("more", ["none", "complete", "complete_doc", "eos", f"complete {SHORTENED}"])
def test_the_rows_are_those_of_fairseq(more: str, tmp_path: Path, bpe: dict[str, str]) -> None:
    data = write_shards(tmp_path, 1, rows=150, longest=20, words=NUMBERS)
    ours, fairseqs = both(data, bpe, "--sample-break-mode", *more.split())
    assert_equal_batches(ours, fairseqs, 1, 4)


def test_a_row_that_training_does_not_mask_has_no_mask(tmp_path: Path, bpe: dict[str, str]) -> None:
    ours, _ = both(write_shards(tmp_path, 1, words=["a", "<mask>", "b"]), bpe)
    with pytest.raises(DataError, match="has a <mask>"):
        [ours[i] for i in range(len(ours))]
    loaded = DataLoader(ours, collate_fn=ours.collater, num_workers=1)
    with pytest.raises(
        DataError, match=r"^row \d of the corpus has a <mask>, which only the training may set$"
    ):
        list(loaded)


@pytest.mark.parametrize(
    ("words", "told"),
    [("--mask-prob 1", "--mask-prob 1.0: pass"), ("--mask-prob 0", "--mask-prob 0.0: pass"),
     ("--random-token-prob 0.6 --leave-unmasked-prob 0.5", "together are at most 1"),
     ("--random-token-prob -0.1", "together are at most 1"), ("--mask-multiple-length 0", "a length of 1 or"),
     ("--mask-stdev -1", "a deviation of 0 or more"), ("--mask-whole-words", "pass --bpe too")],
)  # fmt: skip
def test_what_is_refused(words: str, told: str, tmp_path: Path) -> None:
    args = pretraining_args(write_shards(tmp_path, 1), tmp_path, "masked_lm", "--no-save", *words.split())
    with pytest.raises(DataError, match=told):
        build(args)


def test_what_the_dictionary_does_not_say_is_refused(tmp_path: Path) -> None:
    words = ["masked_lm", "--no-save", "--freq-weighted-replacement"]
    args = pretraining_args(write_shards(tmp_path, 1), tmp_path, *words)
    path = tmp_path / "shard0" / "dict.txt"
    path.write_text("".join(f"{line.split()[0]} 1\n" for line in path.read_text().splitlines()))
    with pytest.raises(DataError, match="doesn't say how frequent words are"):
        build(args)
    run = {"bpe": {"_name": "bert"}, "model": Namespace(arch="hf_encoder")}
    task: Any = SimpleNamespace(cfg=SimpleNamespace(_get_parent=lambda: run))
    with pytest.raises(DataError, match="--mask-whole-words: needs the dictionary of a converted RoBERTa"):
        _begins_word(task)
