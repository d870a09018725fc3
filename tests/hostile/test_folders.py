"""Folders of others, a Hugging Face model's or a tokenizer's: nothing in them is run, whatever reads them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import hf_models
import pytest
from commands import refusal
from hf_encoders import save_encoder
from hostile_files import CHECKPOINTS
from readers import built_as_it_is
from safetensors.torch import load_file
from support import CommandMain

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer

Change = Callable[[Path, Path], object]  # of the folder, and the canary that code would make

BIN = ["a call in the weights", "a list"]  # the reader of all checkpoints: test_files.py


def as_bin(name: str) -> Change:
    """In place of the weights, the file of this name in hostile_files.py."""

    def change(folder: Path, canary: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        state = {"model": weights, "cfg": {"task": {}}, "args": None}
        CHECKPOINTS[name](state, folder / "pytorch_model.bin", canary)

    return change


def updated(file: str, **values: object) -> Change:
    """A json file with other values; in texts, CANARY is the canary's path."""

    def change(folder: Path, canary: Path) -> None:
        path = folder / file
        there = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**there, **values}).replace("CANARY", str(canary)))

    return change


def replaced(file: str, content: bytes) -> Change:
    return lambda folder, canary: (folder / file).write_bytes(content)


def linked(file: str, target: str) -> Change:
    def change(folder: Path, canary: Path) -> None:
        (folder / file).unlink()
        (folder / file).symlink_to(target)

    return change


def piped(file: str) -> Change:
    """A file that nobody writes: reading it would never end."""

    def change(folder: Path, canary: Path) -> None:
        (folder / file).unlink()
        os.mkfifo(folder / file)

    return change


AS_BIN = {f"pytorch_model.bin: {name}": as_bin(name) for name in BIN}
HUGE = struct.pack("<Q", 1 << 60)
MODELS: dict[str, Change] = {
    **AS_BIN,
    "a header of an exabyte": replaced("model.safetensors", HUGE + b"{}"),
    "a tensor of an exabyte": replaced("model.safetensors", struct.pack("<Q", 79) + json.dumps(
        {"a": {"dtype": "F32", "shape": [1 << 58], "data_offsets": [0, 1 << 60]}}).encode().ljust(79)),
    "shards that lead out": lambda folder, canary: (
        (folder / "model.safetensors").unlink(),
        updated("model.safetensors.index.json", weight_map={"a": "../../etc/passwd"})(folder, canary)),
    "a billion words": updated("config.json", vocab_size=10**9),
    "settings nested too deep": replaced("config.json", b'{"a":' * 100_000),
    "words without an end": linked("vocab.json", "/dev/zero"),
    "words from a pipe": piped("vocab.json"),
    "settings from a pipe": piped("config.json"),
}  # fmt: skip
TOKENIZERS: dict[str, Change] = {
    "tokens without an end": linked("tokenizer.json", "/dev/zero"),
    "tokens from a pipe": piped("tokenizer.json"),
    "a pickle as tokens": replaced("tokenizer.json", b"\x80\x02cposix\nsystem\nX\x02\0\0\0id\x85R."),
    "a vocabulary from a pipe": piped("hf_vocabulary.json"),
    "a vocabulary of another kind": updated("hf_vocabulary.json", words="{0.__class__}"),
    "a vocabulary nested too deep": replaced("hf_vocabulary.json", b'{"a":' * 100_000),
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("", capsys)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roberta")
    hf_models.save_roberta(folder)
    return folder


def with_code(folder: Path, canary: Path) -> None:
    """A module beside the model that makes the canary when it is imported."""
    (folder / "modeling.py").write_text(f"open({str(canary)!r}, 'w')\nclass Evil: pass\n")


@pytest.mark.usefixtures("two_gigabytes_more")
@pytest.mark.parametrize("name", [*AS_BIN, "words without an end", "words from a pipe"])  # below: the others
def test_a_model_is_refused(name: str, roberta: Path, tmp_path: Path, run: CommandMain) -> None:
    folder = shutil.copytree(roberta, tmp_path / "hf")
    MODELS[name](folder, tmp_path / "canary")
    with_code(folder, tmp_path / "canary")
    assert str(folder) in refusal(run, tmp_path, "convert", folder, tmp_path / "out")


def steps(normalizer: object = None, pre_tokenizer: object = None) -> Change:
    """A tokenizer.json with other steps before its model."""
    return updated("tokenizer.json", normalizer=normalizer, pre_tokenizer=pre_tokenizer)


DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
# A trie of one unit, and a text that stands for a character.
TABLE = struct.pack("<II", 4, 0) + b"b" * 20_000
FAR_LONGER: dict[str, Change] = {
    "each letter by thousands": steps({**DOUBLED, "content": "a" * 20_000}),
    "a letter doubled, twenty times": steps({"type": "Sequence", "normalizers": [DOUBLED] * 20}),
    "something where nothing is, twenty times": steps({"type": "Sequence", "normalizers": [
        {**DOUBLED, "pattern": {"Regex": "(?=a)"}, "content": "b"}] * 20}),
    "bytes of bytes": steps(None, {"type": "Sequence", "pretokenizers": [BYTES] * 20}),
    "thousands in front": steps({"type": "Prepend", "prepend": "a" * 20_000}),
    "a table without texts": steps({"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(TABLE[:8]).decode()},
        {**DOUBLED, "content": "a" * 20_000}]}),
    "a table": steps({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(TABLE).decode()}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAR_LONGER)
def test_a_tokenizer_that_makes_texts_far_longer_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    save_encoder(folder, "bert")
    FAR_LONGER[name](folder, tmp_path / "canary")
    with pytest.raises(
        DataError, match=r"tokenizer\.json: its norm.* makes texts more than 10000 times longer"
    ):
        built_as_it_is(folder)


def test_an_error_of_the_tokenizers_library_names_the_file(tmp_path: Path) -> None:
    """A panic of its Rust code is no Exception: it would end in a traceback."""
    save_encoder(tmp_path / "hf", "bert")
    endless = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
    steps(endless)(tmp_path / "hf", tmp_path / "canary")
    tokenizer = HFTokenizer(tmp_path / "hf")
    assert tokenizer.pieces(["a b"])
    for encode in (tokenizer.pieces, lambda rows: list(tokenizer.encode_spans(rows))):
        with pytest.raises(
            DataError, match=r"tokenizer\.json: the library tokenizers can't use it \(Onig: .*\)$"
        ):
            encode(["a" * 40 + "!"])
    steps(None, {"type": "FixedLength", "length": 0})(tmp_path / "hf", tmp_path / "canary")
    with pytest.raises(DataError, match=r"tokenizer\.json: the library tokenizers can't use it"):
        HFTokenizer(tmp_path / "hf").pieces(["a"])


AS_IT_IS: dict[str, Change] = {
    **{name: change for name, change in MODELS.items() if not name.startswith("words")},
    "tokens without an end": linked("tokenizer.json", "/dev/zero"),
    "tokens from a pipe": piped("tokenizer.json"),
    "tokens nested too deep": replaced("tokenizer.json", b'{"a":' * 100_000),
}


@pytest.mark.usefixtures("two_gigabytes_more")
@pytest.mark.parametrize("name", AS_IT_IS)
def test_a_model_is_refused_as_it_is(name: str, tmp_path: Path) -> None:
    """By ``--arch hf_encoder``, which reads it in this process."""
    folder = tmp_path / "hf"
    save_encoder(folder, "bert")
    AS_IT_IS[name](folder, tmp_path / "canary")
    with_code(folder, tmp_path / "canary")
    begun = time.process_time()
    with pytest.raises(DataError) as refused:
        built_as_it_is(folder)
    assert time.process_time() - begun < 10 and not (tmp_path / "canary").exists()
    assert str(folder) in str(refused.value) and len(str(refused.value)) < 1000


@pytest.mark.parametrize("width", [16, 0])
def test_a_model_of_a_billion_parts_is_not_built(width: int, tmp_path: Path) -> None:
    """Of some memory or none: their building would not end."""
    folder = tmp_path / "hf"
    save_encoder(folder, "mobilebert")
    changes = {"num_feedforward_networks": 10**9, "hidden_size": width, "intermediate_size": width}
    updated("config.json", **changes)(folder, tmp_path / "canary")
    begun = time.process_time()
    with pytest.raises(DataError, match=r"config\.json: num_feedforward_networks is 1000000000, more than"):
        built_as_it_is(folder)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("kind", ["modernvbert", "ultravbert"])
def test_a_model_within_a_model_asks_no_host(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers reads the configuration of a backbone from the repository that names it."""
    folder = tmp_path / "hf"
    save_encoder(folder, "bert")
    within = {"model_type": "rf_detr", "backbone": "somebody/repository"}
    changes = {"model_type": kind, "vision_config": within, "classifier_dropout": 0.1}
    updated("config.json", **changes)(folder, tmp_path / "canary")
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("a host was looked up"))
    with pytest.raises(DataError, match=f"{folder}.*: model_type is '{kind}', (which contains other|no enc)"):
        built_as_it_is(folder)


@pytest.mark.usefixtures("two_gigabytes_more")
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_is_refused(name: str, films: Path, tmp_path: Path, run: CommandMain) -> None:
    save = shutil.copytree(films / "save", tmp_path / "save")
    TOKENIZERS[name](save / "tokenizer", tmp_path / "canary")
    line = refusal(run, tmp_path, "predict", save / "checkpoint_best.pt", "--stdin")
    assert str(save / "tokenizer") in line
