"""What is read whole, or copied next to the checkpoints, from a folder of others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from glue_samples import small_bpe
from support import CommandMain, write_task

import fairseq_adv.registration  # noqa: F401
from fairseq_adv.cli.train_folders import model_args, read_symbols
from fairseq_adv.data.corpus.shard import _words
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Engine
from fairseq_adv.data.tokenizers.hf_tokenizer import load_engine
from fairseq_adv.data.tokenizers.saved_tokenizer import check_same_words
from fairseq_adv.data.tokenizers.spiece import SentencePieceTokenizer
from fairseq_adv.data.tokenizers.text_to_ids import load_dictionary

READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("tokenizer.json", lambda path: load_engine(path.parent)),
    ("dict.txt", load_dictionary),
    ("dict.txt", lambda path: Dictionary.load(str(path))),
    ("dict.txt", read_symbols),
    ("dict.txt", _words),
    ("tokenizer/dict.txt", lambda path: check_same_words(path.parents[1] / "a.pt", "", path.parents[1])),
    ("model_args.txt", lambda path: model_args(path.parent)),
    ("metrics.jsonl", lambda path: read_metrics(path.parent)),
    ("merges.txt", text_lines),
    ("vocab.bpe", lambda path: Gpt2Engine(path.with_name("encoder.json"), path)),
    ("spiece.model", lambda path: SentencePieceTokenizer(path, path.with_name("dict.txt"))),
]


@pytest.mark.usefixtures("two_gigabytes_more")
@pytest.mark.parametrize(("name", "read"), READERS)
def test_gigabytes_are_refused_before_they_are_read(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    small_bpe(tmp_path)
    (tmp_path / "input0").mkdir()
    shutil.copy(tmp_path / "dict.txt", tmp_path / "input0")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 8 << 30)  # which takes no room on the disk
    with pytest.raises(DataError, match=f"{name}: has 8192 MiB, and no file of this kind has more than 512"):
        read(tmp_path / name)


def linked(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(path.parents[2] / target)


A_LINK = "a link. What it names would be copied next to the checkpoints"
IN_THE_WAY: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to a file": (linked("secret"), f"/tokenizer/tokenizer.json: {A_LINK}"),
    "a link to a device": (linked("/dev/zero"), f"/tokenizer/tokenizer.json: {A_LINK}"),
    "a link to nothing": (linked("none"), f"/tokenizer/tokenizer.json: {A_LINK}"),
    "a pipe": (os.mkfifo, "/tokenizer/tokenizer.json: no such file"),
    "gigabytes": (lambda path: (path.touch(), os.truncate(path, 8 << 30)), "/tokenizer.json: has 8192 MiB"),
    "a folder that is a link": (
        lambda path: (path.parent.rmdir(), path.parent.symlink_to(path.parents[2] / "own")),
        f"/tokenizer: {A_LINK}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_nothing_outside_the_data_is_copied(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    for own in (tmp_path / "own" / "tokenizer.json", tmp_path / "secret"):
        own.write_text("secret")
    data = write_task(tmp_path / "data")
    (data / "tokenizer").mkdir()
    make, message = IN_THE_WAY[name]
    make(data / "tokenizer" / "tokenizer.json")
    words = [data, "--arch", "roberta_base", "--cpu", "--save-dir", tmp_path / "save"]
    done = CommandMain("train", capsys)(*words)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {data}"), done.stderr
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "save").exists()
