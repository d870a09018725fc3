"""Ids and offsets of odd strings: the same from the source's tokenizer to the exported one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hf_models
import numpy as np
import pytest
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from hf_encoders import save_encoder
from hf_encoders import save_tokenizer as save_tokenizer_of
from odd_strings import SPECIAL, odd_strings
from support import slow

from fairseq_adv.data.tokenizers.gpt2_bpe import Gpt2Tokenizer, is_settled
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, encode_aligned
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv.hub.export_tokenizer import exported_tokenizer
from fairseq_adv.hub.trained_checkpoint import CLASSES, MASKED_LM, Trained

transformers = pytest.importorskip("transformers", minversion="5", reason="compares with its tokenizers")
COUNTS = [2000, slow(100_000)]


def rows_of(tokenizer: TokenToIds, strings: list[str]) -> list[list[int]]:
    """Dictionary ids of each, without ``</s>``."""
    ids, lengths = tokenizer.encode(strings)
    return [row[:-1].tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]


def without_names(strings: list[str]) -> list[str]:
    """Without those that have a control token's name, in any case: transformers takes it for the token."""
    names = [name.lower() for name in SPECIAL[:11]]
    return [string for string in strings if not any(name in string.lower() for name in names)]


def exported(tokenizer: TokenToIds, kind: str, folder: Path) -> tuple[Any, tuple[int, ...]]:
    """The exported tokenizer as transformers reads it, and its rows of the dictionary's ids."""
    trained = Trained(kind, None, 0, {"_name": "roberta_base"}, 0, None, 512)
    symbols = tokenizer.dictionary.symbols
    made = exported_tokenizer(tokenizer, trained, len(symbols) + ("<mask>" not in symbols))
    folder.mkdir()
    for name, content in made.files.items():
        (folder / name).write_bytes(content)
    return transformers.AutoTokenizer.from_pretrained(folder), made.rows


@pytest.mark.parametrize("count", COUNTS)
def test_gpt2_equals_fairseq_and_the_offsets_of_the_library(shared_data: Path, count: int) -> None:
    """The library's Unicode tables lack the newest characters; for all others its ids are the same too."""
    from tokenizers import ByteLevelBPETokenizer

    files = [str(shared_data / "gpt2_bpe" / name) for name in ("encoder.json", "vocab.bpe")]
    reference, library = get_encoder(*files), ByteLevelBPETokenizer(*files, trim_offsets=True)
    tokenizer = Gpt2Tokenizer(Path(files[0]), Path(files[1]), shared_data / "gpt2_bpe" / "dict.txt")
    strings = odd_strings(count)
    index = tokenizer.dictionary.index
    expected = [[index(str(number)) for number in reference.encode(string.strip())] for string in strings]
    assert rows_of(tokenizer, strings) == expected
    settled = [string.strip() for string in strings if is_settled(string)]
    assert len(settled) > count // 2
    aligned = encode_aligned(tokenizer, settled)
    for number, (string, encoding) in enumerate(zip(settled, library.encode_batch(settled))):
        assert encoding.ids == reference.encode(string)
        _, starts, ends = aligned.of(number)
        assert list(zip(starts.tolist(), ends.tolist())) == encoding.offsets, string


@pytest.mark.parametrize("count", COUNTS)
def test_from_the_source_to_the_export(tmp_path: Path, count: int) -> None:
    hf_models.save_roberta(tmp_path / "hf")
    convert_hf_checkpoint(tmp_path / "hf", tmp_path / "fairseq")
    tokenizer = tokenizer_for_encoder(tmp_path / "fairseq")
    source = transformers.RobertaTokenizer.from_pretrained(tmp_path / "hf")
    check_source(source, tokenizer, count, tmp_path / "lm")
    check_trained(tokenizer, count, tmp_path / "classes")


@pytest.mark.parametrize("count", COUNTS)
def test_minilm_s_own_tokenizer_and_the_exported_one(minilm_hf: Path, tmp_path: Path, count: int) -> None:
    tokenizer = tokenizer_for_encoder(minilm_hf)
    check_source(transformers.AutoTokenizer.from_pretrained(minilm_hf), tokenizer, count, tmp_path / "lm")
    check_trained(tokenizer, count, tmp_path / "classes")


@pytest.mark.parametrize("kind", ["albert", "xlm-roberta"])
def test_special_tokens_among_a_unigram_models_pieces(tmp_path: Path, kind: str) -> None:
    save_encoder(tmp_path / "hf", kind)
    tokenizer = tokenizer_for_encoder(tmp_path / "hf")
    check_trained(tokenizer, 2000, tmp_path / "classes")
    source, (engine, _) = (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "hf"),
        exported(tokenizer, MASKED_LM, tmp_path / "lm"),
    )
    pairs = [one.convert_ids_to_tokens(one("a film", "b")["input_ids"]) for one in (engine, source)]
    assert pairs[0] == pairs[1]  # two tokens between two texts, or one


def check_source(source: Any, tokenizer: TokenToIds, count: int, folder: Path) -> None:
    """A masked LM's export has the tokens and offsets of the source, also of white space around a text."""
    engine, _ = exported(tokenizer, MASKED_LM, folder)
    strings = without_names(odd_strings(count))
    options = {"add_special_tokens": False, "return_offsets_mapping": True}
    ours, theirs = engine(strings, **options), source(strings, **options)
    for string, *pair in zip(strings, ours["input_ids"], theirs["input_ids"]):
        assert engine.convert_ids_to_tokens(pair[0]) == source.convert_ids_to_tokens(pair[1]), string
    if tokenizer.kind != "gpt2":  # transformers trims the offsets of its own RoBERTa
        assert ours["offset_mapping"] == theirs["offset_mapping"]


def check_trained(tokenizer: TokenToIds, count: int, folder: Path) -> None:
    """A classifier's export has the ids that training, and so ``predict``, gives any string."""
    engine, rows = exported(tokenizer, CLASSES, folder)
    strings = odd_strings(count)
    ours = [[rows[index] for index in row] for row in rows_of(tokenizer, strings)]
    assert engine(strings, add_special_tokens=False)["input_ids"] == ours


def test_spaces_around_an_added_word_are_kept(tmp_path: Path) -> None:
    """The library normalises the texts before and after it one by one."""
    from tokenizers import AddedToken, Tokenizer

    save_tokenizer_of(tmp_path, "roberta")
    engine = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    engine.add_tokens([AddedToken("<url>", normalized=False)])
    engine.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": engine.get_vocab_size()}))
    tokenizer, text = tokenizer_for_encoder(tmp_path), "see <url> again"
    theirs, rows = exported(tokenizer, CLASSES, tmp_path / "out")
    ours = [rows[number] for number in rows_of(tokenizer, [text])[0]]
    assert theirs(text, add_special_tokens=False)["input_ids"] == ours
