"""GPT-2's BPE against fairseq's, on real words and on awkward ones."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

import pytest
from fairseq.data.encoders.gpt2_bpe_utils import Encoder, get_encoder
from glue_samples import AWKWARD, small_bpe, small_wordpiece, write

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers import gpt2_bpe
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Engine, Gpt2Tokenizer
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder


@pytest.fixture(scope="module")
def bpe_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bpe(tmp_path_factory.mktemp("bpe"))


def engine_and_reference(folder: Path) -> tuple[Gpt2Engine, Encoder]:
    files = folder / "encoder.json", folder / "vocab.bpe"
    return Gpt2Engine(*files), get_encoder(*map(str, files))


def assert_same(engine: Gpt2Engine, reference: Encoder, rows: list[str]) -> None:
    for row, ids in zip(rows, engine.encode_batch(rows)):
        assert [engine.numbers[i] for i in ids] == reference.encode(row), row


def test_gpt2_equals_fairseq_at_every_settled_character(bpe_files: Path) -> None:
    engine, reference = engine_and_reference(bpe_files)
    assert engine._fast is not None
    characters = [chr(c) for c in range(sys.maxunicode + 1)]
    # Of the ideographs and syllables, which fill whole blocks with one kind of letter, every 50th.
    settled = [
        c
        for c in characters
        if gpt2_bpe.is_settled(c)
        and unicodedata.category(c) not in ("Cs", "Co")
        and (not unicodedata.name(c, "").startswith(("CJK", "HANGUL")) or ord(c) % 50 == 0)
    ]
    assert len(settled) > 12000
    # A character decides where words are split by being a letter, a numeral, white space or none of these.
    assert_same(engine, reference, [f"ab{c}1{c}{c} .{c}  {c}" for c in settled])


def test_gpt2_leaves_newer_characters_to_fairseq(bpe_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, reference = engine_and_reference(bpe_files)
    assert [gpt2_bpe.is_settled(text) for text in ("abc", "café — 你", "\U0001faea", "ok \U0001f600")] == [
        True, True, False, False,
    ]  # fmt: skip
    fast = engine._fast
    monkeypatch.setattr(engine, "_fast", object())  # raises if it is used
    monkeypatch.setattr(gpt2_bpe, "_GAP", 8)  # a million would overflow tiktoken's stack
    assert_same(engine, reference, ["wave \U0001faea", "\U0001f600", "a" + " " * 9 + "b", "\n" * 9])
    with pytest.raises(AttributeError):
        engine.encode_batch(["plain"])
    monkeypatch.setattr(engine, "_fast", fast)
    assert_same(engine, reference, ["a" + " " * 7 + "b \n" * 9])


def test_gpt2_equals_fairseq_on_awkward_rows(bpe_files: Path) -> None:
    engine, reference = engine_and_reference(bpe_files)
    assert_same(engine, reference, [*AWKWARD, *(a + b for a in AWKWARD for b in AWKWARD)])


def test_gpt2_equals_fairseq_with_the_real_files(shared_data: Path) -> None:
    engine, reference = engine_and_reference(shared_data / "gpt2_bpe")
    rows = (shared_data / "science_text" / "sentences.txt").read_text(encoding="utf-8").split("\n")[::60]
    tokens = [reference.decode([number]) for number in engine.numbers[::5]]
    assert_same(engine, reference, [*AWKWARD, *rows, *tokens])


def test_the_known_merges_are_gpt2s_and_regular(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, reference = engine_and_reference(shared_data / "gpt2_bpe")
    monkeypatch.setattr(gpt2_bpe, "GPT2_MERGES", "")
    assert gpt2_bpe.merges_are_regular(reference)  # by looking at each
    monkeypatch.undo()
    monkeypatch.setattr(reference, "bpe", None)  # would raise if it looked
    assert gpt2_bpe.merges_are_regular(reference)


@pytest.mark.parametrize(
    "merges",
    [
        ["b c", "a b", "ab c"],  # no training makes "ab c": in "abc", b and c are merged first
        ["a b", "b c", "ab c", "a bc"],  # two ways to one token
        ["ab c", "a b"],  # a part that comes later
    ],
)
def test_irregular_merges_are_left_to_fairseq(merges: list[str], tmp_path: Path) -> None:
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    tokens = dict.fromkeys([*bytes_to_unicode().values(), *(merge.replace(" ", "") for merge in merges)])
    (tmp_path / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    write(tmp_path / "vocab.bpe", ["#version: 0.2", *merges])
    engine, reference = engine_and_reference(tmp_path)
    assert engine._fast is None
    assert_same(engine, reference, ["abc", "aabbcc abcabc", "abcab c"])


def test_gpt2_ids_are_those_of_the_dictionary(bpe_files: Path) -> None:
    tokenizer = Gpt2Tokenizer(bpe_files / "encoder.json", bpe_files / "vocab.bpe", bpe_files / "dict.txt")
    _, reference = engine_and_reference(bpe_files)
    rows = ["  He said  no \u00a0", "", "<|endoftext|>", *AWKWARD]
    ids, lengths = tokenizer.encode(rows)
    expected = [
        [tokenizer.dictionary.index(str(number)) for number in reference.encode(row.strip())] + [2]
        for row in rows
    ]
    assert ids.tolist() == [i for row in expected for i in row]
    assert lengths.tolist() == [len(row) for row in expected]
    assert tokenizer.dictionary.unk() in ids and lengths[1] == 1


def test_bad_dictionaries_are_refused(bpe_files: Path, tmp_path: Path) -> None:
    files, dictionary = (bpe_files / "encoder.json", bpe_files / "vocab.bpe"), tmp_path / "dict.txt"
    with pytest.raises(DataError, match=r"dict.txt: no such file.* pass it as --srcdict"):
        Gpt2Tokenizer(*files, dictionary)
    for content in (b"the 1\na\n", b"the 1\nthe 1\n", b"caf\xe9 1\n"):
        dictionary.write_bytes(content)
        with pytest.raises(DataError, match=r"dict.txt: not a fairseq dictionary"):
            Gpt2Tokenizer(*files, dictionary)
    dictionary.write_bytes(b"the 1\n")
    with pytest.raises(DataError, match=r"dict.txt: has only .* tokens, so it belongs to another tokenizer"):
        Gpt2Tokenizer(*files, dictionary)


def test_bad_bpe_files_are_refused(bpe_files: Path, tmp_path: Path) -> None:
    encoder, merges = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    good = (bpe_files / "encoder.json").read_text()
    for text, rules, message in (
        ('{"a": 1}', ["a b"], r"encoder.json: the token '!' of .*vocab.bpe is missing"),
        (good, ["a b c"], "vocab.bpe: a line is not a merge"), ("{", ["a b"], "encoder.json"),
        *((json.dumps({"!": 0, '"': number}), ["a b"], r"encoder.json: the token '\"' must have a number")
          for number in ([], "7", True)),
    ):  # fmt: skip
        encoder.write_text(text)
        write(merges, ["#version: 0.2", *rules])
        with pytest.raises(DataError, match=message):
            Gpt2Engine(encoder, merges)
    encoder.unlink()
    with pytest.raises(DataError, match=r"encoder.json: no such file"):
        Gpt2Engine(encoder, merges)


def test_an_encoders_folder_says_which_tokenizer(bpe_files: Path, tmp_path: Path) -> None:
    assert tokenizer_for_encoder(bpe_files).kind == "gpt2"
    assert tokenizer_for_encoder(small_wordpiece(tmp_path / "bert")).kind == "hf"
    with pytest.raises(DataError, match=r"neither a Hugging Face folder nor one with encoder.json"):
        tokenizer_for_encoder(tmp_path)
