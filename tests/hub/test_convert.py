"""What a conversion writes, and that fairseq trains from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import hf_models
import numpy as np
import pytest
import support
import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.hub.convert import convert_hf_checkpoint


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    """Without a masked-LM head."""
    hf_models.save_roberta(tmp_path / "hf", head=False)
    return tmp_path / "hf"


def model_state(out: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(out / "model.pt", weights_only=True)["model"]
    return state


# ---- the files


def test_files_and_flags(roberta: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert convert_hf_checkpoint(roberta, out)
    names = "model.pt dict.txt encoder.json vocab.bpe model.yaml model_args.txt conversion.json manifest.json"
    assert {path.name for path in out.iterdir()} == {*names.split()}
    flags = (out / "model_args.txt").read_text()
    assert flags == (
        "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 24 --encoder-ffn-embed-dim 40 "
        "--encoder-attention-heads 3 --max-positions 158 --activation-fn gelu\n"
    )
    assert (out / "model.yaml").read_text() == (
        "# @package _group_\n_name: roberta_base\nencoder_layers: 2\nencoder_embed_dim: 24\n"
        "encoder_ffn_embed_dim: 40\nencoder_attention_heads: 3\nmax_positions: 158\nactivation_fn: gelu\n"
        "untie_weights_roberta: false\n"
    )
    about = json.loads((out / "conversion.json").read_text(encoding="utf-8"))
    source = json.loads((out / "manifest.json").read_text())["made_from"]["source (sha256)"]
    assert set(source) == {"config.json", "vocab.json", "merges.txt", "model.safetensors"}
    assert source["vocab.json"] == sha256_of(roberta / "vocab.json")
    assert set(about["left_out"]) == {"pooler.dense.weight", "pooler.dense.bias"}
    assert "encoder.lm_head" in about["newly_initialised"]
    assert str(tmp_path) not in json.dumps(about)


def test_positions_segment_and_size_of_words(roberta: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    convert_hf_checkpoint(roberta, tmp_path / "out")
    source, model = load_file(roberta / "model.safetensors"), model_state(tmp_path / "out")
    positions = model["encoder.sentence_encoder.embed_positions.weight"]
    assert positions.shape == (160, 24) and not positions[:2].any()
    real = source["embeddings.position_embeddings.weight"][2:]
    assert torch.equal(positions[2:], real + source["embeddings.token_type_embeddings.weight"][0])
    words = model["encoder.sentence_encoder.embed_tokens.weight"]
    theirs = source["embeddings.word_embeddings.weight"]
    assert torch.equal(words[:4], theirs[:4]) and torch.equal(words[-1], theirs[-1])


def test_checkpoint_is_plain_data(roberta: Path, tmp_path: Path) -> None:
    """torch alone loads it, with nothing allow-listed: in a process that has never imported fairseq."""
    convert_hf_checkpoint(roberta, tmp_path / "out")
    program = (
        "import sys, torch\n"
        f"state = torch.load({str(tmp_path / 'out' / 'model.pt')!r}, weights_only=True)\n"
        "assert 'fairseq' not in sys.modules\n"
        "print(state['cfg']['model']['_name'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "roberta_base\n", done.stderr


@pytest.mark.parametrize("kind", ["bin", "sharded safetensors", "sharded bin", "half", "gamma", "prefixed"])
def test_other_weight_files_give_the_same(roberta: Path, tmp_path: Path, kind: str) -> None:
    from safetensors.torch import load_file, save_file

    convert_hf_checkpoint(roberta, tmp_path / "expected")
    whole = load_file(roberta / "model.safetensors")
    (roberta / "model.safetensors").unlink()
    if kind == "bin":
        torch.save(whole, roberta / "pytorch_model.bin")
    elif kind.startswith("sharded"):
        suffix = "safetensors" if kind.endswith("safetensors") else "bin"
        index: dict[str, str] = {}
        for number, part in enumerate(np.array_split(sorted(whole), 3)):
            name = f"part-{number}.{suffix}"
            shard = {str(key): whole[str(key)] for key in part}
            save_file(shard, roberta / name) if suffix == "safetensors" else torch.save(shard, roberta / name)
            index.update(dict.fromkeys(shard, name))
        stem = "model.safetensors" if suffix == "safetensors" else "pytorch_model.bin"
        (roberta / f"{stem}.index.json").write_text(json.dumps({"weight_map": index}))
    elif kind == "half":
        save_file({name: tensor.half() for name, tensor in whole.items()}, roberta / "model.safetensors")
    elif kind == "gamma":
        renamed = {n.replace("LayerNorm.weight", "LayerNorm.gamma"): t for n, t in whole.items()}
        renamed = {n.replace("LayerNorm.bias", "LayerNorm.beta"): t for n, t in renamed.items()}
        save_file(renamed, roberta / "model.safetensors")
    else:
        save_file(
            {f"roberta.{name}": tensor for name, tensor in whole.items()}, roberta / "model.safetensors"
        )
    convert_hf_checkpoint(roberta, tmp_path / "found")
    expected, found = model_state(tmp_path / "expected"), model_state(tmp_path / "found")
    assert set(expected) == set(found)
    for name in expected:
        assert found[name].dtype == torch.float32
        exact = kind != "half"
        torch.testing.assert_close(
            found[name], expected[name], rtol=0 if exact else 1e-3, atol=0 if exact else 1e-3
        )


def test_fresh_head_is_fixed_and_leaves_the_random_state(roberta: Path, tmp_path: Path) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    convert_hf_checkpoint(roberta, tmp_path / "one")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(12)
    convert_hf_checkpoint(roberta, tmp_path / "two")
    one, two = model_state(tmp_path / "one"), model_state(tmp_path / "two")
    assert torch.equal(one["encoder.lm_head.dense.weight"], two["encoder.lm_head.dense.weight"])
    # fairseq's own way (init_bert_params): a normal distribution of deviation 0.02, biases zero.
    assert 0.017 < float(one["encoder.lm_head.dense.weight"].std()) < 0.023
    assert not one["encoder.lm_head.bias"].any()
    assert torch.equal(one["encoder.lm_head.weight"], one["encoder.sentence_encoder.embed_tokens.weight"])


# ---- whole or not at all


def test_reuse_and_refusal_of_another_output(roberta: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_hf_checkpoint(roberta, out)
    stamp = (out / "model.pt").stat().st_mtime_ns
    assert not convert_hf_checkpoint(roberta, out)
    assert (out / "model.pt").stat().st_mtime_ns == stamp
    good = (out / "dict.txt").read_text(encoding="utf-8")
    (out / "dict.txt").write_text(good + "more 1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"dict\.txt: missing, or it has changed"):
        convert_hf_checkpoint(roberta, out)
    (out / "dict.txt").write_text(good, encoding="utf-8")
    config = json.loads((roberta / "config.json").read_text())
    (roberta / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.2}))
    with pytest.raises(DataError, match="was made from other files or options"):
        convert_hf_checkpoint(roberta, out)
    assert convert_hf_checkpoint(roberta, out, overwrite=True)


# ---- fairseq


def write_data(folder: Path, dictionary: Path) -> Path:
    """A sentence_prediction data set of random tokens with the converted model's dictionary."""
    support.write_task(folder, train=8, valid=4)
    (folder / "input0" / "dict.txt").write_bytes(dictionary.read_bytes())
    return folder


RESETS = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


@pytest.mark.parametrize("start", ["finetune", "restore with resets", "restore"])
def test_fairseq_train_starts_from_it(roberta: Path, tmp_path: Path, start: str) -> None:
    out = tmp_path / "out"
    convert_hf_checkpoint(roberta, out)
    data = write_data(tmp_path / "data", out / "dict.txt")
    model = str(out / "model.pt")
    loading = ["--finetune-from-model", model] if start == "finetune" else ["--restore-file", model]
    support.fairseq_train(
        str(data), *(out / "model_args.txt").read_text().split(), *loading,
        *(RESETS if start == "restore with resets" else []),
        "--task", "sentence_prediction", "--criterion", "sentence_prediction", "--num-classes", "2",
        "--init-token", "0", "--optimizer", "adam", "--lr", "0.001", "--batch-size", "4", "--max-update", "2",
        "--required-batch-size-multiple", "1", "--num-workers", "0", "--cpu", "--save-dir", str(tmp_path /
        "save"), "--no-epoch-checkpoints", "--dropout", "0", "--attention-dropout", "0",
    )  # fmt: skip
    before, after = model_state(out), support.weights(tmp_path / "save" / "checkpoint_last.pt")
    assert any(name.startswith("classification_heads.") for name in after)
    moved = {
        n: float((after[n] - before[n]).abs().max()) for n in before if not n.startswith("encoder.lm_head")
    }
    # Adam moves a weight by about the learning rate an update, so two updates from these weights stay within
    # 0.0021; a model that started afresh would be about 0.3 away, the deviation of the random weights.
    assert max(moved.values()) < 0.0021
    assert moved["encoder.sentence_encoder.layers.0.fc1.weight"] > 0.0005
