"""Vocabularies in fairseq's order: nothing lost, nothing swapped, and what cannot be converted is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hf_models
import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.vocabulary import byte_level_vocabulary

pytestmark = pytest.mark.fast


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    hf_models.save_roberta(tmp_path / "hf")
    return tmp_path / "hf"


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


def test_fast_tokenizer_file_alone_is_enough(roberta: Path) -> None:
    """Newer programs write tokenizer.json only."""
    from tokenizers import ByteLevelBPETokenizer

    expected, names = byte_level_vocabulary(roberta), [roberta / "vocab.json", roberta / "merges.txt"]
    ByteLevelBPETokenizer(*map(str, names)).save(str(roberta / "tokenizer.json"))
    for name in names:
        name.unlink()
    assert byte_level_vocabulary(roberta) == expected
    (roberta / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="needs vocab"):
        byte_level_vocabulary(roberta)


def edited(roberta: Path, *pairs: tuple[str, str]) -> Path:
    """The folder with other tokens."""
    text = (roberta / "vocab.json").read_text(encoding="utf-8")
    for old, new in pairs:
        assert json.dumps(old) in text
        text = text.replace(json.dumps(old), json.dumps(new), 1)
    (roberta / "vocab.json").write_text(text, encoding="utf-8")
    return roberta


def test_special_tokens_with_other_names(roberta: Path) -> None:
    edited(roberta, ("<s>", "[CLS]"), ("</s>", "[SEP]"))
    names = {"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}}
    (roberta / "tokenizer_config.json").write_text(json.dumps(names))
    found = byte_level_vocabulary(roberta)
    assert found.rows[:4] == (0, 1, 2, 3)
    assert json.loads(found.files["tokenizer_config.json"]) == {"cls_token": "[CLS]", "sep_token": "[SEP]"}


def test_added_tokens_have_rows_too(roberta: Path) -> None:
    last = len(json.loads((roberta / "vocab.json").read_text(encoding="utf-8")))
    token = {**added("[ENT]"), "id": last, "special": True}
    fast_tokenizer(roberta, lambda content: content["added_tokens"].append(token))
    found = byte_level_vocabulary(roberta)
    assert found.symbols[-1] == "[ENT]" and found.rows[-2] == last


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("<other>", r"vocab.json: no token '<mask>', which fairseq needs as <mask>"),
        ("300", r"would be '300' in dict.txt, which is already the word of row \d+"),  # taken for a byte's
    ],
)
def test_tokens_that_are_refused(roberta: Path, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        byte_level_vocabulary(edited(roberta, ("madeupword0000" if new.isdigit() else "<mask>", new)))


def test_a_token_with_a_space_is_kept_under_its_row(roberta: Path) -> None:
    row = json.loads((roberta / "vocab.json").read_text(encoding="utf-8"))["madeupword0000"]
    assert f"[row{row}]" in byte_level_vocabulary(edited(roberta, ("madeupword0000", "a b"))).symbols


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
        assert byte_level_vocabulary(roberta)
        return
    with pytest.raises(DataError, match=rf"tokenizer\.json: {message}.*Train the folder as it is: --encoder"):
        byte_level_vocabulary(roberta)


@pytest.mark.parametrize("prefix", [False, True])
def test_a_space_before_each_text(roberta: Path, prefix: bool) -> None:
    (roberta / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix}))
    if not prefix:
        assert byte_level_vocabulary(roberta)
        return
    with pytest.raises(DataError, match=r"tokenizer_config.json: add_prefix_space is true"):
        byte_level_vocabulary(roberta)
