"""The options that choose a tokenizer."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from glue_samples import small_bpe

from fairseq_adv.cli.shared_options import add_tokenizer, tokenizer_of
from fairseq_adv.data.errors import DataError

pytestmark = pytest.mark.fast


def options(words: list[str], sentencepiece: bool = True) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_tokenizer(parser, sentencepiece)
    return parser.parse_args(words)


def test_the_files_of_an_encoder_and_its_folder_give_the_same_tokenizer(tmp_path: Path) -> None:
    encoder, rows = small_bpe(tmp_path / "encoder"), ["He said no", "w1"]
    files = {"--encoder-json": "encoder.json", "--vocab-bpe": "vocab.bpe", "--srcdict": "dict.txt"}
    words = [word for option, name in files.items() for word in (option, str(encoder / name))]
    expected = tokenizer_of(options(["--encoder", str(encoder)])).pieces(rows)
    assert tokenizer_of(options(words, sentencepiece=False)).pieces(rows) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "--encoder-json is missing: the tokenizer gpt2 needs it. Or pass --encoder."),
        ("--encoder-json a --srcdict b", "--vocab-bpe is missing: the tokenizer gpt2 needs it"),
        ("--encoder-json a --vocab-bpe b", "--srcdict is missing: the tokenizer gpt2 needs it"),
        ("--sentencepiece a", "--srcdict is missing: the tokenizer sentencepiece needs it"),
        ("--encoder a --srcdict b", "--srcdict and --encoder: pass only one of them"),
        ("--sentencepiece a --srcdict b --vocab-bpe c", "--vocab-bpe is not for the tokenizer sentencepiece"),
        ("--encoder nowhere", "nowhere: no such folder. Pass an encoder's; names on a hub are not "),
    ],
)
def test_what_is_missing_or_does_not_fit(words: str, message: str) -> None:
    with pytest.raises(DataError) as told:
        tokenizer_of(options(words.split()))
    assert message in str(told.value)
