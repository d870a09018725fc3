"""Both tokenizers against their references, on real words and on awkward ones."""

from __future__ import annotations

import json
import sys
import unicodedata
from argparse import Namespace
from pathlib import Path

import pytest
from fairseq.data.encoders.gpt2_bpe_utils import Encoder, get_encoder
from glue_samples import AWKWARD, small_bpe, small_wordpiece, write

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers import gpt2_bpe, registered_bpe
from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Engine, Gpt2Tokenizer
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.wordpiece import WordPieceTokenizer, wordpiece_engine


@pytest.fixture(scope="module")
def bpe_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def wordpiece_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_wordpiece(tmp_path_factory.mktemp("wordpiece"))


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
    monkeypatch.setattr(engine, "_fast", object())  # raises if it is used
    assert_same(engine, reference, ["wave \U0001faea", "\U0001f600"])
    with pytest.raises(AttributeError):
        engine.encode_batch(["plain"])


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


def test_wordpiece_equals_transformers(wordpiece_files: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rows = [*(row for row in AWKWARD if "[" not in row), "a" * 100, "a" * 101]  # the longest word, and [UNK]
    for cased in (False, True):
        reference = transformers.BertTokenizerFast(
            vocab=str(wordpiece_files / "vocab.txt"),
            vocab_file=str(wordpiece_files / "vocab.txt"),
            do_lower_case=not cased,
        )
        engine = wordpiece_engine(wordpiece_files / "vocab.txt", cased)
        assert [engine.encode(row, add_special_tokens=False).tokens for row in rows] == [
            reference.tokenize(row) for row in rows
        ]


def test_wordpiece_reads_control_tokens_as_text(wordpiece_files: Path) -> None:
    engine = wordpiece_engine(wordpiece_files / "vocab.txt")
    tokens = engine.encode("a [SEP] b [PAD]", add_special_tokens=False).tokens
    assert not {"[SEP]", "[PAD]"} & set(tokens) and tokens[:2] == ["a", "["]


def test_wordpiece_ids_are_those_of_the_dictionary(wordpiece_files: Path) -> None:
    tokenizer = WordPieceTokenizer(wordpiece_files / "vocab.txt", wordpiece_files / "dict.txt")
    engine = wordpiece_engine(wordpiece_files / "vocab.txt")
    ids, lengths = tokenizer.encode([*AWKWARD, "\u0e01\u0e02"])
    expected = []
    for row in [*AWKWARD, "\u0e01\u0e02"]:
        tokens = engine.encode(row, add_special_tokens=False).tokens
        expected.append([tokenizer.dictionary.index(token) for token in tokens] + [2])
    assert ids.tolist() == [i for row in expected for i in row]
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids[-2:].tolist() == [tokenizer.dictionary.unk(), tokenizer.dictionary.eos()]  # [UNK] is <unk>
    # Not one of fairseq's other control symbols comes from text.
    assert not {0, 1} & set(ids.tolist())


def test_case_comes_from_the_tokenizer_config_unless_said(wordpiece_files: Path, tmp_path: Path) -> None:
    vocab = tmp_path / "vocab.txt"
    vocab.write_bytes((wordpiece_files / "vocab.txt").read_bytes())

    def tokens(cased: bool | None) -> list[str]:
        found: list[str] = wordpiece_engine(vocab, cased).encode("THE", add_special_tokens=False).tokens
        return found

    lower, upper = tokens(False), tokens(True)
    assert lower != upper and tokens(None) == lower
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert tokens(None) == upper and tokens(False) == lower
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case"')
    with pytest.raises(DataError, match=r"tokenizer_config.json: not JSON"):
        tokens(None)
    for key in ("do_lower_case", "tokenize_chinese_chars"):  # strip_accents may be null: as do_lower_case
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: None, "strip_accents": None}))
        with pytest.raises(DataError, match=f"tokenizer_config.json: {key} must be true or false, not None"):
            tokens(None)


def test_options_that_change_the_tokens_change_the_fingerprint(wordpiece_files: Path) -> None:
    files = wordpiece_files / "vocab.txt", wordpiece_files / "dict.txt"
    lower, cased = WordPieceTokenizer(*files, cased=False), WordPieceTokenizer(*files, cased=True)
    assert lower.fingerprint() != cased.fingerprint()
    assert lower.fingerprint() == WordPieceTokenizer(*files).fingerprint()


def test_bad_vocabularies_are_refused(wordpiece_files: Path, tmp_path: Path) -> None:
    vocab = tmp_path / "vocab.txt"
    with pytest.raises(DataError, match=r"vocab.txt: no such file. It must be a WordPiece vocabulary"):
        wordpiece_engine(vocab)
    write(vocab, ["[UNK]", "the", "a", "the"])
    with pytest.raises(DataError, match=r"vocab.txt:4: token 'the' is also on line 2"):
        wordpiece_engine(vocab)
    write(vocab, ["the", "a"])
    with pytest.raises(DataError, match=r"vocab.txt: no line \[UNK\]"):
        wordpiece_engine(vocab)
    vocab.write_bytes(b"[UNK]\nthe\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"vocab.txt:3: not UTF-8"):
        wordpiece_engine(vocab)


def test_bad_dictionaries_are_refused(wordpiece_files: Path, bpe_files: Path, tmp_path: Path) -> None:
    vocab, dictionary = wordpiece_files / "vocab.txt", tmp_path / "dict.txt"
    with pytest.raises(DataError, match=r"dict.txt: no such file.* pass it as --srcdict"):
        WordPieceTokenizer(vocab, dictionary)
    write(dictionary, ["the 1", "a"])
    with pytest.raises(DataError, match=r"dict.txt: not a fairseq dictionary"):
        WordPieceTokenizer(vocab, dictionary)
    write(dictionary, ["the 1", "the 1"])
    with pytest.raises(DataError, match=r"dict.txt: not a fairseq dictionary .*Duplicate"):
        WordPieceTokenizer(vocab, dictionary)
    dictionary.write_bytes(b"caf\xe9 1\n")
    with pytest.raises(DataError, match=r"dict.txt: not a fairseq dictionary"):
        WordPieceTokenizer(vocab, dictionary)
    with pytest.raises(DataError, match=r"dict.txt: has only .* tokens, so it belongs to another tokenizer"):
        WordPieceTokenizer(vocab, bpe_files / "dict.txt")


def test_bad_bpe_files_are_refused(bpe_files: Path, tmp_path: Path) -> None:
    encoder, merges = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    with pytest.raises(DataError, match=r"encoder.json: no such file"):
        Gpt2Engine(encoder, merges)
    encoder.write_text('{"a": 1}')
    with pytest.raises(DataError, match=r"vocab.bpe: no such file"):
        Gpt2Engine(encoder, merges)
    write(merges, ["#version: 0.2", "a b"])
    with pytest.raises(DataError, match=r"encoder.json: the token '!' of .*vocab.bpe is missing"):
        Gpt2Engine(encoder, merges)
    write(merges, ["#version: 0.2", "a b c"])
    with pytest.raises(DataError, match=r"vocab.bpe: a line is not a merge"):
        Gpt2Engine(bpe_files / "encoder.json", merges)
    for text in ("{", "[1]"):
        encoder.write_text(text)
        with pytest.raises(DataError, match=r"encoder.json"):
            Gpt2Engine(encoder, bpe_files / "vocab.bpe")
    for number in ([], "7", None, True, 1.0):
        encoder.write_text(json.dumps({"!": 0, '"': number}))
        with pytest.raises(DataError, match=r"encoder.json: the token '\"' must have a number, not "):
            Gpt2Engine(encoder, bpe_files / "vocab.bpe")


def test_an_encoders_folder_says_which_tokenizer(
    bpe_files: Path, wordpiece_files: Path, tmp_path: Path
) -> None:
    assert tokenizer_for_encoder(bpe_files).kind == "gpt2"
    assert tokenizer_for_encoder(wordpiece_files).kind == "wordpiece"
    with pytest.raises(DataError, match=r"neither vocab.txt .* nor encoder.json and vocab.bpe"):
        tokenizer_for_encoder(tmp_path)
    with pytest.raises(DataError, match=r"--cased is for WordPiece"):
        tokenizer_for_encoder(bpe_files, cased=True)


def test_the_wordpiece_bpe_can_be_built_as_fairseq_does(wordpiece_files: Path) -> None:
    from fairseq import options
    from fairseq.data import encoders
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    vocab = str(wordpiece_files / "vocab.txt")
    bpe = encoders.build_bpe(Namespace(bpe="wordpiece", bpe_wordpiece_vocab=vocab))
    assert isinstance(bpe, registered_bpe.WordPieceBPE)
    text = "The committee, which had met twice before, agreed."
    tokens = bpe.encode(text)
    assert " ##" in tokens and bpe.decode(tokens) == text.lower()
    assert [bpe.is_beginning_of_word(token) for token in ("the", "##ing", "<mask>")] == [True, False, True]
    with pytest.raises(DataError, match=r"needs --bpe-wordpiece-vocab"):
        encoders.build_bpe(Namespace(bpe="wordpiece"))

    parser = options.get_interactive_generation_parser()
    args = options.parse_args_and_arch(
        parser,
        [
            "DATA",
            "--path",
            "model.pt",
            "--bpe",
            "wordpiece",
            "--bpe-wordpiece-vocab",
            vocab,
            "--bpe-wordpiece-cased",
        ],
    )
    built = encoders.build_bpe(convert_namespace_to_omegaconf(args).bpe)
    assert built.encode("THE") != bpe.encode("THE") == "the"


def test_the_hub_interface_reads_text_with_it(tmp_path: Path) -> None:
    from fairseq.models.roberta import RobertaModel
    from support import VOCABULARY, build, train_args, write_task

    vocab = write(tmp_path / "vocab.txt", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *VOCABULARY])
    data = write_task(tmp_path / "data")
    trainer = build(train_args(data, tmp_path / "save")).trainer
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(tmp_path / "model.pt"), {"train_iterator": {}, "val_loss": None})
    hub = RobertaModel.from_pretrained(
        str(tmp_path), "model.pt", str(data), bpe="wordpiece", bpe_wordpiece_vocab=str(vocab)
    )
    words = hub.task.source_dictionary
    expected = [0, words.index("w3"), words.index("w17"), 3, 2, 2, words.index("w5"), 2]
    assert hub.encode("W3  w17 never", "w5").tolist() == expected
    assert hub.decode(hub.encode("W3 w17")) == "w3 w17"
    assert hub.extract_features(hub.encode("w3 w17")).shape == (1, 4, 16)
