"""Vocabularies in fairseq's order: nothing lost, nothing swapped, and what cannot be converted is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import hf_models
import pytest
from fairseq.data import Dictionary

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv.hub.vocabulary import byte_level_vocabulary, spiece_vocabulary, wordpiece_vocabulary

pytestmark = pytest.mark.fast


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    hf_models.save_bert(tmp_path / "hf")
    return tmp_path / "hf"


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    hf_models.save_roberta(tmp_path / "hf")
    return tmp_path / "hf"


def test_dictionary_holds_odd_tokens(bert: Path, tmp_path: Path) -> None:
    convert_hf_checkpoint(bert, tmp_path / "out")
    dictionary = Dictionary.load(str(tmp_path / "out" / "dict.txt"))
    tokens = hf_models.bert_vocabulary()
    rows = wordpiece_vocabulary(bert).rows
    assert sorted(rows) == list(range(len(tokens)))
    for row, token in enumerate(tokens):
        if token in hf_models.BERT_SPECIALS:
            continue
        # White space cannot stand in dict.txt: such a row is kept under its number.
        word = f"[row{row}]" if token in ("\u2028", "\u00a0", "a b", "") else token
        assert rows[dictionary.index(word)] == row


def test_gpt2_dictionary_comes_back(shared_data: Path, tmp_path: Path) -> None:
    """RoBERTa's real dict.txt -> a vocab.json in its order, as Hugging Face's -> the same dict.txt."""
    real = shared_data / "gpt2_bpe"
    encoder = json.loads((real / "encoder.json").read_text(encoding="utf-8"))
    token_of = {str(number): token for token, number in encoder.items()}
    column = [line.rsplit(" ", 1)[0] for line in (real / "dict.txt").read_text().splitlines()]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(token_of.get(word, word) for word in column), "<mask>"]
    assert len(tokens) == 50265
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_bytes((real / "vocab.bpe").read_bytes())
    found = byte_level_vocabulary(tmp_path)
    assert list(found.symbols) == column
    assert found.rows == tuple(range(50265))
    assert json.loads(found.files["encoder.json"]) == encoder
    assert found.files["vocab.bpe"] == (real / "vocab.bpe").read_bytes()


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_fast_tokenizer_file_alone_is_enough(tmp_path: Path, family: str) -> None:
    """Newer programs write tokenizer.json only."""
    from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, normalizers

    folder = tmp_path / "hf"
    if family == "bert":
        hf_models.save_bert(folder)
        expected = wordpiece_vocabulary(folder)
        ranks = {token: row for row, token in enumerate(hf_models.bert_vocabulary())}
        tokenizer = Tokenizer(models.WordPiece(vocab=ranks, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        (folder / "vocab.txt").unlink()
        found = wordpiece_vocabulary(folder)
        assert json.loads(found.files["tokenizer_config.json"])["do_lower_case"] is False
        assert found.files["vocab.txt"] == expected.files["vocab.txt"]
    else:
        hf_models.save_roberta(folder)
        expected = byte_level_vocabulary(folder)
        names = [str(folder / "vocab.json"), str(folder / "merges.txt")]
        ByteLevelBPETokenizer(*names).save(str(folder / "tokenizer.json"))
        for name in names:
            os.unlink(name)
        found = byte_level_vocabulary(folder)
        assert found.files == expected.files
    assert (found.symbols, found.rows) == (expected.symbols, expected.rows)


def test_special_tokens_with_other_names(bert: Path, tmp_path: Path) -> None:
    text = (bert / "vocab.txt").read_text(encoding="utf-8")
    text = text.replace("[CLS]\n", "<s>\n").replace("[SEP]\n", "</s>\n")
    (bert / "vocab.txt").write_text(text, encoding="utf-8")
    names = {"cls_token": "<s>", "sep_token": {"content": "</s>"}}
    (bert / "tokenizer_config.json").write_text(json.dumps({**names, "do_lower_case": False}))
    found = wordpiece_vocabulary(bert)
    tokens = hf_models.bert_vocabulary()
    assert found.rows[:4] == tuple(tokens.index(name) for name in ("[CLS]", "[PAD]", "[SEP]", "[UNK]"))
    assert json.loads(found.files["tokenizer_config.json"])["do_lower_case"] is False


def test_added_tokens_have_rows_too(bert: Path) -> None:
    last, fast = len(hf_models.bert_vocabulary()), {"model": {"type": "WordPiece"}}
    token = {**added("[ENT]"), "id": last, "special": True}
    (bert / "tokenizer.json").write_text(json.dumps({**fast, "added_tokens": [token]}))
    found = wordpiece_vocabulary(bert)
    assert found.symbols[-1] == "[ENT]"
    assert found.rows[-2] == last


@pytest.mark.parametrize("kind", ["bert", "albert"])
def test_an_added_word_that_texts_may_have_is_refused(tmp_path: Path, kind: str) -> None:
    """transformers finds it as a whole, fairseq's tokenizers split it."""
    save, read = {
        "bert": (hf_models.save_bert, wordpiece_vocabulary),
        "albert": (hf_models.save_albert, spiece_vocabulary),
    }[kind]
    rows = save(tmp_path).config.vocab_size
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": rows}))
    with pytest.raises(DataError, match=r"'covid' was added and is found in texts as a whole.*--encoder"):
        read(tmp_path)


def edit_vocab(folder: Path, old: str, new: str) -> None:
    text = (folder / "vocab.txt").read_text(encoding="utf-8")
    assert old in text
    (folder / "vocab.txt").write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[MASK]\n", "[KSAM]\n", r"vocab.txt: no token '\[MASK\]', which fairseq needs as <mask>"),
        ("film\n", "the\n", r"vocab.txt:\d+: token 'the' is also on line \d+"),
        ("film\n", "<s>\n",
         r"vocab.txt: row \d+ would be '<s>' in dict.txt, which is already one of fairseq's"),
        ("film\n", "[row0]\n[row1]\n", None),
    ],
)  # fmt: skip
def test_wordpiece_refusals(bert: Path, old: str, new: str, message: str | None) -> None:
    edit_vocab(bert, old, new)
    if message is None:
        assert "[row0]" in wordpiece_vocabulary(bert).symbols
        return
    with pytest.raises(DataError, match=message):
        wordpiece_vocabulary(bert)


def test_wordpiece_not_utf8(bert: Path) -> None:
    (bert / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(DataError, match=r"vocab.txt:2: not UTF-8"):
        wordpiece_vocabulary(bert)


@pytest.mark.parametrize("reader", [wordpiece_vocabulary, byte_level_vocabulary])
def test_no_vocabulary(tmp_path: Path, reader: object) -> None:
    assert callable(reader)
    with pytest.raises(DataError, match="needs vocab"):
        reader(tmp_path)


def test_merges_of_another_model(roberta: Path) -> None:
    with (roberta / "merges.txt").open("a", encoding="utf-8") as stream:
        stream.write("the zzz\n")
    with pytest.raises(
        DataError, match=r"no row for 1 of the tokens that the merges produce, such as 'thezzz'"
    ):
        byte_level_vocabulary(roberta)


def test_bad_merge_line(roberta: Path) -> None:
    lines = (roberta / "merges.txt").read_text(encoding="utf-8").split("\n")
    lines[3] = "one two three"
    (roberta / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=r"merges.txt:4: 'one two three' is not a pair"):
        byte_level_vocabulary(roberta)


def test_rows_with_a_gap(roberta: Path) -> None:
    vocabulary = json.loads((roberta / "vocab.json").read_text(encoding="utf-8"))
    vocabulary["<mask>"] += 1
    (roberta / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    with pytest.raises(DataError, match=r"rows of the \d+ tokens are not 0"):
        byte_level_vocabulary(roberta)


def test_literal_that_looks_like_a_number(roberta: Path) -> None:
    """A filler token named "5" would be taken for the fifth byte."""
    text = (roberta / "vocab.json").read_text(encoding="utf-8")
    (roberta / "vocab.json").write_text(text.replace("madeupword0000", "300"), encoding="utf-8")
    with pytest.raises(DataError, match=r"would be '300' in dict.txt, which is already the word of row \d+"):
        byte_level_vocabulary(roberta)


def fast_tokenizer(folder: Path, change: Any) -> None:
    """A tokenizer.json as transformers writes it for a RoBERTa, changed in place as a dict."""
    from tokenizers import ByteLevelBPETokenizer

    engine = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    engine.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    content = json.loads(engine._tokenizer.to_str())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def added(content: str) -> dict[str, Any]:
    return {
        "id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": True, "special": False,
    }  # fmt: skip


def in_splitter(**values: Any) -> Any:
    return lambda content: content["pre_tokenizer"].update(values)


SPLITS = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: None, None),
        (lambda content: content["added_tokens"].append(added("madeupword0000")), None),
        (lambda content: content.update(normalizer={"type": "Lowercase"}), "it has a normalizer"),
        (in_splitter(add_prefix_space=True), "its pre_tokenizer is not ByteLevel without a space"),
        (in_splitter(use_regex=False), "its pre_tokenizer is not"),
        (lambda content: content.update(pre_tokenizer=SPLITS), "its pre_tokenizer is not"),
        (lambda content: content.update(pre_tokenizer=None), "its pre_tokenizer is not"),
        (lambda content: content["model"].update(ignore_merges=True), "its model has ignore_merges"),
        (lambda content: content["added_tokens"].append(added("@user")), "'@user' was added and is found"),
    ],
)
def test_a_byte_level_tokenizer_that_fairseq_lacks(roberta: Path, change: Any, message: str | None) -> None:
    fast_tokenizer(roberta, change)
    if message is None:
        assert byte_level_vocabulary(roberta).bpe == "gpt2"
        return
    with pytest.raises(DataError, match=rf"tokenizer\.json: {message}.*Train the folder as it is: --encoder"):
        byte_level_vocabulary(roberta)


@pytest.mark.parametrize("prefix", [False, True])
def test_a_space_before_each_text(roberta: Path, prefix: bool) -> None:
    (roberta / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix}))
    if not prefix:
        assert byte_level_vocabulary(roberta).bpe == "gpt2"
        return
    with pytest.raises(DataError, match=r"tokenizer_config.json: add_prefix_space is true"):
        byte_level_vocabulary(roberta)


def test_case_is_kept_as_transformers_does(bert: Path) -> None:
    """Its BERT follows tokenizer_config.json, or its default; PreTrainedTokenizerFast the other file."""
    fast = json.loads(wordpiece_vocabulary(bert).files["tokenizer.json"])
    fast["normalizer"].update(lowercase=False, strip_accents=False)
    (bert / "tokenizer.json").write_text(json.dumps(fast))
    for kind, told, cased in (
        ("BertTokenizer", {}, None),
        ("BertTokenizer", {"do_lower_case": False}, True),  # and leaves accents, told or not
        ("BertTokenizer", {"do_lower_case": True}, False),
        ("PreTrainedTokenizerFast", {}, True),
        ("PreTrainedTokenizerFast", {"do_lower_case": True}, True),
    ):
        (bert / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **told}))
        if cased is None:
            with pytest.raises(DataError, match="do_lower_case is True by default, but lowercase in"):
                wordpiece_vocabulary(bert)
        else:
            made = json.loads(wordpiece_vocabulary(bert).files["tokenizer.json"])
            assert made["normalizer"]["lowercase"] is not cased, (kind, told)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [
        ("BertTokenizer", False),
        ("DistilBertTokenizerFast", False),
        ("PreTrainedTokenizerFast", False),
        ("TokenizersBackend", False),  # transformers 5's name of that
        ("BertJapaneseTokenizer", True),
        ("BertweetTokenizer", True),
        (["BertTokenizer"], True),
    ],
)
def test_the_class_of_a_berts_tokenizer(bert: Path, file: str, kind: Any, is_refused: bool) -> None:
    settings = json.loads((bert / file).read_text()) if (bert / file).is_file() else {}
    (bert / file).write_text(json.dumps({**settings, "tokenizer_class": kind}))
    if not is_refused:
        assert wordpiece_vocabulary(bert).bpe == "wordpiece"
        return
    with pytest.raises(DataError, match=rf"{file}: tokenizer_class is .*Tokenizer'.*--encoder"):
        wordpiece_vocabulary(bert)
