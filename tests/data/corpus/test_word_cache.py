"""The look-up of words against the tokenizers that it stands for, on random rows of nasty characters."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from corpus_samples import awkward_row, fairseq_binarizes, row_lengths, split_bytes
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from glue_samples import AWKWARD, small_bpe, small_wordpiece, write

from fairseq_adv.data.corpus.word_cache import WHITE_SPACE, WordCache
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer
from fairseq_adv.data.tokenizers.spiece import SentencePieceTokenizer

pytestmark = pytest.mark.fast


def batches(seed: int, count: int = 40) -> list[list[str]]:
    rng = random.Random(seed)
    rows = [[awkward_row(rng).strip() for _ in range(rng.choice([1, 2, 40]))] for _ in range(count)]
    return [
        *rows,
        [row.strip() for row in AWKWARD],
        [""],
        ["", "", "a"],
        ["a  b   c    d", "a b", "\t".join("abc")],
    ]


def check(cache: WordCache, rows: list[str], expected: list[list[int]]) -> None:
    ids, lengths = cache.encode(rows)
    assert lengths.tolist() == [len(row) for row in expected], rows
    assert ids.tolist() == [i for row in expected for i in row], rows


def check_gpt2(folder: Path, seed: int, limit: int) -> None:
    files = folder / "encoder.json", folder / "vocab.bpe"
    tokenizer, reference = Gpt2Tokenizer(*files, folder / "dict.txt"), get_encoder(*map(str, files))
    index, cache = tokenizer.dictionary.index, WordCache(tokenizer, limit)
    for rows in batches(seed):
        expected = [[*(index(str(number)) for number in reference.encode(row)), 2] for row in rows]
        check(cache, rows, expected)


@pytest.mark.parametrize("limit", [50, 100_000])  # forgets all the time, or never
def test_gpt2_words_equal_fairseqs_encoder(limit: int, tmp_path: Path) -> None:
    check_gpt2(small_bpe(tmp_path), 1, limit)


def test_gpt2_words_equal_fairseqs_encoder_with_the_real_files(shared_data: Path) -> None:
    check_gpt2(shared_data / "gpt2_bpe", 2, 100_000)


@pytest.mark.parametrize("limit", [50, 100_000])
def test_a_hugging_face_tokenizer_reads_whole_rows(limit: int, tmp_path: Path) -> None:
    tokenizer = HFTokenizer(small_wordpiece(tmp_path))
    cache = WordCache(tokenizer, limit)
    for rows in batches(3):
        check(cache, rows, [tokenizer.encode([row])[0].tolist() for row in rows])


def test_each_word_is_tokenised_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_bpe(tmp_path)
    tokenizer = Gpt2Tokenizer(folder / "encoder.json", folder / "vocab.bpe", folder / "dict.txt")
    cache, seen = WordCache(tokenizer), []
    pieces = tokenizer.pieces
    monkeypatch.setattr(tokenizer, "pieces", lambda rows: seen.extend(rows) or pieces(rows))
    for rows in (["the whole report", "the report"], ["report the whole"], ["a tab\there"]):
        cache.encode(rows)
    # A row's first word has no space before it; a row with other white space goes whole.
    assert seen == ["the", " whole", " report", "report", " the", "a", "", "a tab\there"]


def test_white_space_is_all_that_python_strips() -> None:
    assert {chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace()} <= WHITE_SPACE


@pytest.fixture(scope="module")
def sentencepiece_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import sentencepiece

    folder = tmp_path_factory.mktemp("sentencepiece")
    text = write(folder / "text", [row for row in AWKWARD * 2 if row.strip() and "\x00" not in row])
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spm"), vocab_size=200, character_coverage=0.98,
        normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2, num_threads=1,
        user_defined_symbols=["in\u2028two"],
    )  # fmt: skip
    pieces = [
        line.split("\t")[0] for line in (folder / "spm.vocab").read_text(encoding="utf-8").split("\n") if line
    ]
    # The dictionary has a word that the model lacks, and lacks some that it has.
    words = [piece for number, piece in enumerate(pieces[3:]) if number % 9 and piece.split() == [piece]]
    write(folder / "dict.txt", [f"{word} 1" for word in [*words, "two", "中文"]])
    return folder


def test_sentencepiece_equals_fairseqs_steps(sentencepiece_files: Path, tmp_path: Path) -> None:
    model, dictionary = sentencepiece_files / "spm.model", sentencepiece_files / "dict.txt"
    bpe = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(model)))
    rows = [row for batch in batches(4) for row in batch]
    rows += ["in\u2028two words", "a中文b", "中文"]
    write(tmp_path / "encoded", [" ".join(bpe.sp.encode(row, out_type=str)) for row in rows])
    expected = fairseq_binarizes(tmp_path / "encoded", dictionary, tmp_path / "bin")
    ids, lengths = WordCache(SentencePieceTokenizer(model, dictionary)).encode(rows)
    assert lengths.tolist() == row_lengths([expected])
    assert ids.tobytes() == split_bytes([expected])
    assert {
        3,
        *(SentencePieceTokenizer(model, dictionary).dictionary.index(w) for w in ("two", "中文")),
    } < set(ids)
