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

from fairseq_adv.data.corpus import reader, shard
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


@pytest.mark.parametrize("ends", [("\n",), ("\r\n",), ("\n", "\r", "\r\n")], ids=["LF", "CRLF", "all"])
@pytest.mark.parametrize("drop_empty", [False, True])
def test_shards_equal_fairseqs_two_steps(
    drop_empty: bool, ends: tuple[str, ...], bpe: Path, tokenizer: Gpt2Tokenizer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(reader, "BLOCK", 1 << 10)
    monkeypatch.setattr(indexed, "_TOGETHER", 16)
    texts = [awkward_corpus(tmp_path / name, seed, 300, ends) for seed, name in enumerate("ab")]
    expected = fairseq_steps(texts, bpe, tmp_path / "fairseq", keep_empty=not drop_empty)
    _, (one,) = made(tokenizer, texts, tmp_path / "one", 1, drop_empty=drop_empty)
    for name in FILES:
        assert (one / name).read_bytes() == (expected / name).read_bytes(), name
    for count in (2, 5):
        _, folders = made(tokenizer, texts, tmp_path / f"{count}", count, drop_empty=drop_empty)
        assert split_bytes(folders) == split_bytes([expected])
        assert row_lengths(folders) == row_lengths([expected])
        assert all(row_lengths([folder]) for folder in folders)


@pytest.mark.parametrize("drop_empty", [False, True])
def test_a_document_a_line(drop_empty: bool, bpe: Path, tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    text = awkward_corpus(tmp_path / "text", 5)
    lines = text.read_bytes().split(b"\n")[:-1]
    if drop_empty:
        lines = [line for line in lines if line.decode().strip()]
    (tmp_path / "spaced").write_bytes(b"".join(line + b"\n\n" for line in lines))
    expected = fairseq_steps([tmp_path / "spaced"], bpe, tmp_path / "fairseq")
    _, folders = made(tokenizer, [text], tmp_path / "out", 3, documents="line", drop_empty=drop_empty)
    assert split_bytes(folders) == split_bytes([expected])
    assert row_lengths(folders) == row_lengths([expected])


def test_compressed_files_give_the_same_bytes(bpe: Path, tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    plain = [awkward_corpus(tmp_path / name, seed, 100) for seed, name in enumerate("abc")]
    texts = [plain[0], gzipped(plain[1]), zstandard_file(plain[2])]
    expected = fairseq_steps(plain, bpe, tmp_path / "fairseq")
    for count in (1, 3):
        _, folders = made(tokenizer, texts, tmp_path / f"{count}", count)
        assert split_bytes(folders) == split_bytes([expected])


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


def test_a_shard_that_another_run_has_made_meanwhile_is_not_replaced(
    tokenizer: Gpt2Tokenizer, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"one\n\ntwo\n")
    planned, same = (Corpus(tokenizer, [text], tmp_path / "out", 1) for _ in range(2))
    other = Corpus(tokenizer, [text], tmp_path / "out", 1, drop_empty=True)
    assert not planned.done(0) and not same.done(0)
    other.write(0, Reading())
    with pytest.raises(DataError, match=r"shard0: was made from other files or options \(drop-empty\)"):
        planned.write(0, Reading())
    planned.write(0, Reading(), overwrite=True)
    before = (tmp_path / "out" / "shard0" / "train.bin").stat()
    same.write(0, Reading())
    assert (tmp_path / "out" / "shard0" / "train.bin").stat().st_ino == before.st_ino


def test_a_split_with_replaced_bytes_is_not_kept_by_a_run_that_replaces_none(
    tokenizer: Gpt2Tokenizer, tmp_path: Path
) -> None:
    """The first run stops in its second split."""
    text, valid = tmp_path / "text", tmp_path / "valid"
    text.write_bytes(b"one \xff two\n")
    valid.write_bytes(b"\n")
    with pytest.raises(DataError, match="valid has no rows"):
        made(tokenizer, [text], tmp_path / "out", 1, valid=[valid], drop_empty=True, replace_invalid=True)
    for _ in range(2):
        with pytest.raises(DataError, match=r"text:1: not UTF-8 at byte"):
            made(tokenizer, [text], tmp_path / "out", 1, valid=[valid], drop_empty=True)


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


def test_fairseq_trains_on_the_shards(tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    from support import fairseq_train, logged

    texts = [awkward_corpus(tmp_path / "text", 7, 300)]
    valid = [awkward_corpus(tmp_path / "valid", 8, 60)]
    corpus, _ = made(tokenizer, texts, tmp_path / "out", 3, "line", True, valid)
    done = fairseq_train(
        corpus.data_argument(), "--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base",
        "--encoder-layers", "1", "--encoder-embed-dim", "8", "--encoder-ffn-embed-dim", "8",
        "--encoder-attention-heads", "1", "--max-positions", "40", "--tokens-per-sample", "32",
        "--sample-break-mode", "complete_doc", "--skip-invalid-size-inputs-valid-test", "--batch-size", "8",
        "--optimizer", "adam", "--lr", "0.001", "--max-epoch", "4", "--cpu", "--no-save",
        "--log-format", "json", "--save-dir", str(tmp_path / "save"),
    )  # fmt: skip
    assert len(logged(done, "train")) == 4 and len(logged(done, "valid")) == 4
    updates = [epoch["train_num_updates"] for epoch in logged(done, "train")]
    assert updates[3] - updates[2] == updates[0]  # the fourth epoch is the first shard again


def test_damage_is_found(tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    texts = [awkward_corpus(tmp_path / "text", 3)]
    corpus, folders = made(tokenizer, texts, tmp_path / "out", 3)
    index = folders[1] / "train.idx"
    whole = index.read_bytes()
    rows = int.from_bytes(whole[18:26], "little")
    for place, message in (
        (3, "truncated, or not a fairseq index"),
        (17, "truncated or stale"),  # the type of the ids: uint32 instead of uint16
        (18, "truncated, or not a fairseq index"),
        (26, "does not begin where"),  # the first row's length
        (26 + 4 * rows + 8, "does not begin where"),  # where the second row begins
        (26 + 4 * (rows - 1), "truncated or stale"),  # the last row's length
    ):
        index.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert [message in fault for fault in corpus.faults()] == [True], message
    for wrong in (whole[:20], whole[:17] + b"\xff" + whole[18:]):  # cut off in its head; no such type
        index.write_bytes(wrong)
        (fault,) = shard.faults(folders[1], "train", 100)
        assert f"{index}: truncated, or not a fairseq index" in fault
    index.write_bytes(whole)
    data = folders[2] / "train.bin"
    data.write_bytes(data.read_bytes()[:-2])
    (folders[0] / "train.json").unlink()
    first, second = corpus.faults()
    assert "shard0/train.json: missing" in first
    assert "shard2/train.bin: missing, or its size has changed" in second


def test_what_was_made_from_something_else_is_refused(tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    text = awkward_corpus(tmp_path / "text", 4)
    corpus, _ = made(tokenizer, [text], tmp_path / "out", 2)
    for change, word in (
        ({"documents": "line"}, "documents"),
        ({"drop_empty": True}, "drop-empty"),
        ({"valid": [text]}, "valid"),
    ):
        other = dataclasses.replace(corpus, **change)
        with pytest.raises(DataError, match=rf"shard0: was made from other files or options \({word}\)"):
            other.done(0)
        assert not other.done(0, overwrite=True)
    # More shards than are asked for now would be trained on by nobody, or by mistake.
    (tmp_path / "out" / "shard1").rename(tmp_path / "out" / "shard2")
    with pytest.raises(DataError, match=r"shard2: is not one of the 2 requested shards"):
        corpus.check_out()
    text.write_bytes(text.read_bytes()[:-5] + b"more\n")
    with pytest.raises(DataError, match=r"\(input files\)"):
        dataclasses.replace(corpus).done(0)
    (tmp_path / "out" / "shard1").mkdir()
    (tmp_path / "out" / "shard1" / "precious").write_text("")
    with pytest.raises(DataError, match=r"shard1: exists and was not made by this program"):
        corpus.done(1, overwrite=True)


def test_a_failed_write_leaves_nothing_behind(
    tokenizer: Gpt2Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(tokenizer, [awkward_corpus(tmp_path / "text", 6)], tmp_path / "out", 1)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shard.IndexedWriter, "finish", fails)
    with pytest.raises(OSError, match="No space left"):
        corpus.write(0, Reading())
    assert not corpus.folder(0).exists()
    names = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert names == {"manifest.json", "dict.txt"}  # in shard0.partial; the data went


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shards": 0}, r"--shards 0: pass 1 or more"),
        ({"max_line": 0}, r"--max-line-mb: pass 1 or more"),
        ({"out": Path("a:b")}, r"a:b: contains a colon"),
        ({"out": Path(__file__)}, r"test_corpus_bytes.py: not a directory"),
        ({"valid": [Path("no-such-file")]}, r"no-such-file: no such file"),
    ],
)
def test_bad_corpus_options(
    change: dict[str, object], message: str, tokenizer: Gpt2Tokenizer, tmp_path: Path
) -> None:
    corpus = Corpus(tokenizer, [awkward_corpus(tmp_path / "text")], tmp_path / "out", 2)
    with pytest.raises(DataError, match=message):
        dataclasses.replace(corpus, **change)


def test_a_split_of_blank_lines_is_refused(tokenizer: Gpt2Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\n  \n\n")
    with pytest.raises(DataError, match=r"shard0: train has no rows: .*text has only blank lines"):
        made(tokenizer, [tmp_path / "text"], tmp_path / "out", 1, drop_empty=True)
