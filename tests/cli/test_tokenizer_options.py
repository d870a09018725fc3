"""The options that choose a tokenizer."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from support import write_encoder

from fairseq_adv.cli.shared_options import add_tokenizer, tokenizer_of
from fairseq_adv.data.errors import DataError

pytestmark = pytest.mark.fast


def options(words: list[str], sentencepiece: bool = True, choice: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_tokenizer(parser, sentencepiece, choice)
    return parser.parse_args(words)


@pytest.mark.parametrize("words", [["--sentencepiece", "a"], ["--tokenizer", "gpt2"]])
def test_options_that_a_script_does_not_take(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(words, sentencepiece=False)
    assert f"unrecognized arguments: {' '.join(words)}" in capsys.readouterr().err


def test_the_files_of_an_encoder_and_its_folder_give_the_same_tokenizer(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    files = ["--wordpiece-vocab", str(encoder / "vocab.txt"), "--srcdict", str(encoder / "dict.txt")]
    rows = ["w3 W7 nothing", "w1"]
    expected = tokenizer_of(options(["--encoder", str(encoder)])).pieces(rows)
    for words in (files, ["--tokenizer", "wordpiece", *files]):
        assert tokenizer_of(options(words, sentencepiece=False, choice=True)).pieces(rows) == expected
    assert tokenizer_of(options([*files, "--cased"])).pieces(rows) != expected


def test_a_sentencepiece_model_goes_to_its_own_reader(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"no model")
    words = ["--sentencepiece", str(tmp_path / "model")]
    dictionary = str(write_encoder(tmp_path / "encoder") / "dict.txt")
    with pytest.raises(DataError, match="model: not a SentencePiece model"):
        tokenizer_of(options([*words, "--srcdict", dictionary]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "--encoder-json is missing: the tokenizer gpt2 needs it. Or pass --encoder."),
        ("--encoder-json a --srcdict b", "--vocab-bpe is missing: the tokenizer gpt2 needs it"),
        ("--encoder-json a --vocab-bpe b", "--srcdict is missing: the tokenizer gpt2 needs it"),
        ("--wordpiece-vocab a", "--srcdict is missing: the tokenizer wordpiece needs it"),
        ("--sentencepiece a", "--srcdict is missing: the tokenizer sentencepiece needs it"),
        ("--tokenizer wordpiece --srcdict a", "--wordpiece-vocab is missing: the tokenizer wordpiece"),
        ("--tokenizer gpt2 --wordpiece-vocab a --srcdict b", "--encoder-json is missing: the tokenizer gpt2"),
        ("--encoder a --srcdict b", "--srcdict and --encoder: pass only one of them"),
        ("--encoder a --tokenizer gpt2", "--tokenizer and --encoder: pass only one of them"),
        ("--wordpiece-vocab a --srcdict b --vocab-bpe c", "--vocab-bpe is not for the tokenizer wordpiece"),
        ("--sentencepiece a --srcdict b --vocab-bpe c", "--vocab-bpe is not for the tokenizer sentencepiece"),
        ("--sentencepiece a --srcdict b --cased", "--cased is for WordPiece"),
        ("--encoder-json a --vocab-bpe b --srcdict c --cased", "--cased is for WordPiece"),
        ("--encoder nowhere", "nowhere: no such folder. Pass an encoder's; names on a hub are not "),
        ("--encoder-json a --vocab-bpe b --srcdict c", "a: no such file"),
    ],
)
def test_what_is_missing_or_does_not_fit(words: str, message: str) -> None:
    with pytest.raises(DataError) as told:
        tokenizer_of(options(words.split(), choice=True))
    assert message in str(told.value)
