"""What cannot be converted is refused; the message names the file and what is wrong; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hf_models
import pytest
import torch
from safetensors.torch import load_file, save_file

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.convert import convert_hf_checkpoint

pytestmark = pytest.mark.fast
BYTE_LEVEL = {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    hf_models.save_roberta(tmp_path / "hf")
    return tmp_path / "hf"


def refused(folder: Path, message: str) -> None:
    out = folder.parent / "out"
    with pytest.raises(DataError, match=message):
        convert_hf_checkpoint(folder, out)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"},
         r"is 'bert', and only a RoBERTa can be converted. Train it as it is: pass --encoder .*/hf to "),
        ({"model_type": None}, "model_type is None"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'.*supported: gelu, relu"),
        ({"num_attention_heads": 5}, "hidden_size 24 is not a multiple of num_attention_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, expected a whole number from 1"),
        ({"hidden_size": "24"}, "hidden_size is '24', expected a whole number"),
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]"),
        ({"num_hidden_layers": 1001}, "num_hidden_layers is 1001, expected a whole number from 1 to 1000"),
        ({"hidden_dropout_prob": "much"}, "hidden_dropout_prob is 'much', expected a number of at least 0"),
        ({"hidden_dropout_prob": float("nan")},
         "hidden_dropout_prob is nan, expected a number of at least 0"),
        ({"is_decoder": True}, "is_decoder or add_cross_attention is set"),
        ({"vocab_size": 7}, r"the tokenizer has \d+ tokens but config.json has vocab_size 7"),
        ({"max_position_embeddings": 12},
         r"position_embeddings.weight has the shape \(160, 24\).*needs \(12, 24\)"),
        ({"pad_token_id": 3},
         "the padding token is row 1 in the vocabulary, but pad_token_id in config.json is 3"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu', but the masked-LM head .* always uses gelu"),
        ({"num_hidden_layers": 1}, r"unknown: encoder.layer.1.attention.output.LayerNorm.bias \(24,\)"),
        ({"num_hidden_layers": 3}, r"missing: encoder.layer.2.attention.self.query.weight \(24, 24\)"),
        ({"num_hidden_layers": 4}, r"(?s)missing: (?:[^\n]*\n){5} *and 27 more$"),
        ({"tie_word_embeddings": False}, "missing: lm_head.decoder.weight"),
    ],
)  # fmt: skip
def test_config(roberta: Path, change: dict[str, Any], message: str) -> None:
    config = json.loads((roberta / "config.json").read_text())
    (roberta / "config.json").write_text(json.dumps({**config, **change}))
    refused(roberta, message)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", {"added_tokens": 5, **BYTE_LEVEL},
         "not in transformers' format"),
        ("tokenizer.json", {"added_tokens": [[]], **BYTE_LEVEL},
         "not in transformers' format"),
        ("tokenizer.json", {"normalizer": 5, "model": {"type": "BPE"}}, "not in transformers' format"),
        ("added_tokens.json", {"madeupword": "y"}, "rows of the"),
        ("added_tokens.json", {"madeupword": [1]}, "not in transformers' format"),
        ("tokenizer_config.json", {"cls_token": {"content": {}}}, None),
    ],
)  # fmt: skip
def test_tokenizer_files(roberta: Path, name: str, content: Any, message: str | None) -> None:
    (roberta / name).write_text(json.dumps(content))
    if message is None:  # what has no name is called as in RoBERTa
        assert convert_hf_checkpoint(roberta, roberta.parent / "out")
    else:
        refused(roberta, message)


def test_values_that_are_not_finite(roberta: Path) -> None:
    tensors = load_file(roberta / "model.safetensors")
    tensors["roberta.encoder.layer.0.output.dense.bias"][3] = float("nan")
    save_file(tensors, roberta / "model.safetensors")
    refused(roberta, "encoder.layer.0.output.dense.bias has values that are not finite")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "pytorch_model.bin",
            b"no such format",
            "pytorch_model.bin was not loaded: .*Use the model's safetensors",
        ),
        ("pytorch_model.bin", b"", "pytorch_model.bin is damaged, or not a checkpoint"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": [1]}}', r"\[1\] is not the name of a file"),
        ("model.safetensors", b"\x08\0\0\0\0\0\0\0{}", "model.safetensors: not a safetensors file"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
        ("model.safetensors.index.json", b"{}", "no weight_map found"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "../b"}}', r"'\.\./b' is not the name"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "b"}}', "names the file b, which is not in"),
        ("tf_model.h5", b"", "no weights found; expected one of model.safetensors"),
    ],
)
def test_weight_files(roberta: Path, name: str, content: bytes, message: str) -> None:
    (roberta / "model.safetensors").unlink()
    (roberta / name).write_bytes(content)
    refused(roberta, message)


def test_bin_of_another_kind(roberta: Path) -> None:
    (roberta / "model.safetensors").unlink()
    torch.save([torch.zeros(2)], roberta / "pytorch_model.bin")
    refused(roberta, "expected a state dict .*, not a list")
    torch.save({"state_dict": {"a": torch.zeros(2)}}, roberta / "pytorch_model.bin")
    refused(roberta, "'state_dict' is a dict; expected names with tensors only")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        convert_hf_checkpoint(tmp_path / "absent", tmp_path / "out")
    with pytest.raises(DataError, match=r"no config.json found"):
        convert_hf_checkpoint(tmp_path, tmp_path / "out")
