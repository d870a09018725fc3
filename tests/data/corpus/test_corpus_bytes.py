"""Shards against fairseq's own two steps, byte for byte, and as fairseq's masked_lm task reads them."""

from __future__ import annotations

import dataclasses
import multiprocessing
import resource
from pathlib import Path
from typing import Any

import pytest
from corpus_samples import (
    awkward_corpus,
    fairseq_steps,
    gzipped,
    row_lengths,
    split_bytes,
    zstandard_file,
)
from glue_samples import AWKWARD, small_bpe

from fairseq_adv.data.corpus import reader
from fairseq_adv.data.corpus.corpus import Corpus
from fairseq_adv.data.corpus.reader import Reading
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text import indexed
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer

FILES = ("train.bin", "train.idx", "dict.txt")


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def tokenizer(bpe: Path) -> Gpt2Tokenizer:
    return gpt2(bpe)


def gpt2(bpe: Path) -> Gpt2Tokenizer:
    return Gpt2Tokenizer(bpe / "encoder.json", bpe / "vocab.bpe", bpe / "dict.txt")


def made(*words: Any, **options: Any) -> tuple[Corpus, list[Path]]:
    """Makes all shards in this process."""
    corpus = Corpus(*words, **options)
    for number in range(corpus.shards):
        corpus.write(number, Reading(corpus.replace_invalid, corpus.max_line))
    assert corpus.faults() == []
    return corpus, [corpus.folder(number) for number in range(corpus.shards)]


def test_invalid_bytes_stop_or_equal_fairseq_on_the_replaced_text(
    bpe: Path, tokenizer: Gpt2Tokenizer, tmp_path: Path
) -> None:
    text = awkward_corpus(tmp_path / "text", 2, 200)
    lines = text.read_bytes().split(b"\n")
    lines[50] += b" \xff\xfe wor\xe4d"
    lines[120] = b"\xe4\xbd"
    text.write_bytes(b"\n".join(lines))
    with pytest.raises(UnicodeDecodeError):  # what fairseq does
        fairseq_steps([text], bpe, tmp_path / "dies")
    with pytest.raises(DataError, match=r"text:51: not UTF-8 at byte"):
        made(tokenizer, [text], tmp_path / "out", 1)
    assert not (tmp_path / "out" / "shard0").exists()
    (tmp_path / "replaced").write_bytes(text.read_bytes().decode(errors="replace").encode())
    expected = fairseq_steps([tmp_path / "replaced"], bpe, tmp_path / "fairseq")
    corpus, (folder,) = made(tokenizer, [text], tmp_path / "out", 1, replace_invalid=True)
    assert split_bytes([folder]) == split_bytes([expected])
    assert corpus.counts([0])["train"].replaced == 4
    with pytest.raises(DataError, match=r"was made with --encoding-errors replace, and bytes were replaced"):
        Corpus(tokenizer, [text], tmp_path / "out", 1).done(0)


@pytest.mark.slow
def test_real_text_with_the_real_bpe(shared_data: Path, tmp_path: Path) -> None:
    text, bpe = shared_data / "text" / "valid.txt", shared_data / "gpt2_bpe"
    expected = fairseq_steps([text], bpe, tmp_path / "fairseq")
    corpus, folders = made(gpt2(bpe), [text], tmp_path / "out", 4, valid=[text])
    assert split_bytes(folders) == split_bytes([expected])
    assert row_lengths(folders) == row_lengths([expected])
    for ending in ("bin", "idx"):
        valid = (folders[0] / f"valid.{ending}").read_bytes()
        assert valid == (expected / f"train.{ending}").read_bytes()
    counts = corpus.counts(range(4))
    assert counts["train"] == counts["valid"] and counts["train"].rows == 3760


def test_a_document_a_line_also_to_validate_on(bpe: Path, tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    text, apart = awkward_corpus(tmp_path / "text", 7, 300), tmp_path / "apart"
    apart.write_bytes(text.read_bytes().replace(b"\n", b"\n\n"))
    expected = fairseq_steps([apart], bpe, tmp_path / "fairseq")
    _, folders = made(tokenizer, [text], tmp_path / "out", 3, "line", valid=[text])
    assert split_bytes(folders) == split_bytes([expected]) and row_lengths(folders) == row_lengths([expected])
    for ending in ("bin", "idx"):
        assert (folders[0] / f"valid.{ending}").read_bytes() == (expected / f"train.{ending}").read_bytes()


def peak_of_a_worker(corpus: Corpus) -> float:
    """MiB by which a process grows, at its largest, while it makes the first shard."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        corpus.write(0, Reading())
        sender.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before / 2**20)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
    return float(receiver.recv())


def test_memory_does_not_grow_with_the_corpus(tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    words = [word for row in AWKWARD if row.isascii() for word in row.split()]
    rows = [" ".join(words[(i * 7 + k) % len(words)] for k in range(40)) + f" {i}\n" for i in range(2000)]
    peaks = []
    for megabytes in (2, 32):
        text = tmp_path / f"{megabytes}"
        data = "".join(rows).encode()
        text.write_bytes(data * (megabytes * 1_000_000 // len(data)))
        peaks.append(peak_of_a_worker(Corpus(tokenizer, [text], tmp_path / f"out{megabytes}", 1)))
    # The ids of the larger one alone would be 24 MB.
    assert 1 < peaks[1] < peaks[0] + 16, f"{peaks} MiB for 2 and 32 MB"


@pytest.mark.parametrize("ends", [("\n",), ("\n", "\r", "\r\n")], ids=["LF", "all"])
@pytest.mark.parametrize("drop_empty", [False, True])
def test_shards_equal_fairseqs_two_steps(
    drop_empty: bool, ends: tuple[str, ...], bpe: Path, tokenizer: Gpt2Tokenizer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever the number of shards, also from compressed files."""
    monkeypatch.setattr(reader, "BLOCK", 1 << 10)
    monkeypatch.setattr(indexed, "_TOGETHER", 16)
    texts = [awkward_corpus(tmp_path / name, seed, 200, ends) for seed, name in enumerate("abc")]
    expected = fairseq_steps(texts, bpe, tmp_path / "fairseq", keep_empty=not drop_empty)
    _, (one,) = made(tokenizer, texts, tmp_path / "one", 1, drop_empty=drop_empty)
    for name in FILES:
        assert (one / name).read_bytes() == (expected / name).read_bytes(), name
    packed = [texts[0], gzipped(texts[1]), zstandard_file(texts[2])]
    for count, files in ((2, texts), (5, texts), (3, packed)):
        _, folders = made(tokenizer, files, tmp_path / f"{count}", count, drop_empty=drop_empty)
        assert split_bytes(folders) == split_bytes([expected])
        assert row_lengths(folders) == row_lengths([expected])
        assert all(row_lengths([folder]) for folder in folders)


def test_what_was_made_from_something_else_or_is_damaged(tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    text = awkward_corpus(tmp_path / "text", 4)
    corpus, folders = made(tokenizer, [text], tmp_path / "out", 2)
    for change, word in (
        ({"documents": "line"}, "documents"),
        ({"drop_empty": True}, "drop-empty"),
        ({"valid": [text]}, "valid"),
    ):
        other = dataclasses.replace(corpus, **change)
        with pytest.raises(DataError, match=rf"shard0: was made from other files or options \({word}\)"):
            other.done(0)
        assert not other.done(0, overwrite=True)
    whole = (folders[0] / "train.idx").read_bytes()
    (folders[0] / "train.idx").write_bytes(whole[:26] + bytes([whole[26] ^ 1]) + whole[27:])
    (folders[1] / "train.bin").unlink()
    first, second = corpus.faults()
    assert "does not begin where" in first and "shard1/train.bin: missing" in second
    # More shards than are asked for now would be trained on by nobody, or by mistake.
    (tmp_path / "out" / "shard1").rename(tmp_path / "out" / "shard2")
    with pytest.raises(DataError, match=r"shard2: is not one of the 2 requested shards"):
        corpus.check_out()
    text.write_bytes(text.read_bytes()[:-5] + b"more\n")
    with pytest.raises(DataError, match=r"\(input files\)"):
        dataclasses.replace(corpus).done(0)
