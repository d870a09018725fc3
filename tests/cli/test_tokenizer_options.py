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
    "words",
    ["", "--encoder-json a --srcdict b", "--sentencepiece a", "--encoder a --srcdict b",
     "--sentencepiece a --srcdict b --vocab-bpe c"],
)  # fmt: skip
def test_what_is_missing_or_does_not_fit(words: str) -> None:
    told = "pass --encoder alone; or --encoder-json, --vocab-bpe and --srcdict; or --sentencepiece and"
    with pytest.raises(DataError, match=told):
        tokenizer_of(options(words.split()))
