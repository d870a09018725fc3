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
from fairseq.models.roberta import RobertaModel

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv.hub.vocabulary import wordpiece_vocabulary


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    hf_models.save_bert(tmp_path / "hf")
    return tmp_path / "hf"


def model_state(out: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(out / "model.pt", weights_only=True)["model"]
    return state


# ---- the files


def test_files_and_flags(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert convert_hf_checkpoint(bert, out)
    names = {
        "model.pt",
        "dict.txt",
        "vocab.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.yaml",
        "model_args.txt",
        "conversion.json",
    }
    assert {path.name for path in out.iterdir()} == names
    flags = (out / "model_args.txt").read_text()
    assert flags == (
        "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 24 --encoder-ffn-embed-dim 40 "
        "--encoder-attention-heads 3 --max-positions 160 --activation-fn gelu\n"
    )
    about = json.loads((out / "conversion.json").read_text(encoding="utf-8"))
    assert set(about["source_sha256"]) == {"config.json", "vocab.txt", "model.safetensors"}
    assert about["source_sha256"]["vocab.txt"] == sha256_of(bert / "vocab.txt")
    assert set(about["left_out"]) == {"pooler.dense.weight", "pooler.dense.bias"}
    assert "encoder.lm_head" in about["newly_initialised"]
    assert str(tmp_path) not in json.dumps(about)


def test_hydras_file_says_what_the_flags_say(bert: Path, tmp_path: Path) -> None:
    convert_hf_checkpoint(bert, tmp_path / "out")
    text = (tmp_path / "out" / "model.yaml").read_text()
    assert text == (
        "# @package _group_\n_name: roberta_base\nencoder_layers: 2\nencoder_embed_dim: 24\n"
        "encoder_ffn_embed_dim: 40\nencoder_attention_heads: 3\nmax_positions: 160\nactivation_fn: gelu\n"
        "untie_weights_roberta: false\n"
    )


def test_an_encoder_that_was_converted_before_hydras_file_came_is_up_to_date(
    bert: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    convert_hf_checkpoint(bert, out)
    about = json.loads((out / "conversion.json").read_text(encoding="utf-8"))
    del about["sha256"]["model.yaml"]
    (out / "conversion.json").write_text(json.dumps(about), encoding="utf-8")
    (out / "model.yaml").unlink()
    assert not convert_hf_checkpoint(bert, out)


def test_positions_segment_and_size_of_words(bert: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    convert_hf_checkpoint(bert, tmp_path / "out")
    source, model = load_file(bert / "model.safetensors"), model_state(tmp_path / "out")
    positions = model["encoder.sentence_encoder.embed_positions.weight"]
    assert positions.shape == (162, 24)
    assert not positions[:2].any()
    expected = (
        source["embeddings.position_embeddings.weight"] + source["embeddings.token_type_embeddings.weight"][0]
    )
    assert torch.equal(positions[2:], expected)
    words = model["encoder.sentence_encoder.embed_tokens.weight"]
    tokens = hf_models.bert_vocabulary()
    theirs = source["embeddings.word_embeddings.weight"]
    for index, token in enumerate(("[CLS]", "[PAD]", "[SEP]", "[UNK]")):
        assert torch.equal(words[index], theirs[tokens.index(token)])
    assert torch.equal(words[-1], theirs[tokens.index("[MASK]")])


def test_checkpoint_is_plain_data(bert: Path, tmp_path: Path) -> None:
    """torch alone loads it, with nothing allow-listed: in a process that has never imported fairseq."""
    convert_hf_checkpoint(bert, tmp_path / "out")
    program = (
        "import sys, torch\n"
        f"state = torch.load({str(tmp_path / 'out' / 'model.pt')!r}, weights_only=True)\n"
        "assert 'fairseq' not in sys.modules\n"
        "print(state['cfg']['model']['_name'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "roberta_base\n", done.stderr


@pytest.mark.parametrize("kind", ["bin", "sharded safetensors", "sharded bin", "half", "gamma", "prefixed"])
def test_other_weight_files_give_the_same(bert: Path, tmp_path: Path, kind: str) -> None:
    from safetensors.torch import load_file, save_file

    convert_hf_checkpoint(bert, tmp_path / "expected")
    whole = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    if kind == "bin":
        torch.save(whole, bert / "pytorch_model.bin")
    elif kind.startswith("sharded"):
        suffix = "safetensors" if kind.endswith("safetensors") else "bin"
        index: dict[str, str] = {}
        for number, part in enumerate(np.array_split(sorted(whole), 3)):
            name = f"part-{number}.{suffix}"
            shard = {str(key): whole[str(key)] for key in part}
            save_file(shard, bert / name) if suffix == "safetensors" else torch.save(shard, bert / name)
            index.update(dict.fromkeys(shard, name))
        stem = "model.safetensors" if suffix == "safetensors" else "pytorch_model.bin"
        (bert / f"{stem}.index.json").write_text(json.dumps({"weight_map": index}))
    elif kind == "half":
        save_file({name: tensor.half() for name, tensor in whole.items()}, bert / "model.safetensors")
    elif kind == "gamma":
        renamed = {n.replace("LayerNorm.weight", "LayerNorm.gamma"): t for n, t in whole.items()}
        renamed = {n.replace("LayerNorm.bias", "LayerNorm.beta"): t for n, t in renamed.items()}
        save_file(renamed, bert / "model.safetensors")
    else:
        save_file({f"bert.{name}": tensor for name, tensor in whole.items()}, bert / "model.safetensors")
    convert_hf_checkpoint(bert, tmp_path / "found")
    expected, found = model_state(tmp_path / "expected"), model_state(tmp_path / "found")
    assert set(expected) == set(found)
    for name in expected:
        assert found[name].dtype == torch.float32
        exact = kind != "half"
        torch.testing.assert_close(
            found[name], expected[name], rtol=0 if exact else 1e-3, atol=0 if exact else 1e-3
        )


def test_fresh_head_is_fixed_and_leaves_the_random_state(bert: Path, tmp_path: Path) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    convert_hf_checkpoint(bert, tmp_path / "one")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(12)
    convert_hf_checkpoint(bert, tmp_path / "two")
    one, two = model_state(tmp_path / "one"), model_state(tmp_path / "two")
    assert torch.equal(one["encoder.lm_head.dense.weight"], two["encoder.lm_head.dense.weight"])
    # fairseq's own way (init_bert_params): a normal distribution of deviation 0.02, biases zero.
    assert 0.017 < float(one["encoder.lm_head.dense.weight"].std()) < 0.023
    assert not one["encoder.lm_head.bias"].any()
    assert torch.equal(one["encoder.lm_head.weight"], one["encoder.sentence_encoder.embed_tokens.weight"])


# ---- whole or not at all


def test_reuse_and_refusal_of_another_output(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_hf_checkpoint(bert, out)
    stamp = (out / "model.pt").stat().st_mtime_ns
    assert not convert_hf_checkpoint(bert, out)
    assert (out / "model.pt").stat().st_mtime_ns == stamp
    with (out / "dict.txt").open("a", encoding="utf-8") as stream:
        stream.write("more 1\n")
    with pytest.raises(DataError, match="not a complete, current conversion"):
        convert_hf_checkpoint(bert, out)


def test_changed_source_is_noticed(bert: Path, tmp_path: Path) -> None:
    convert_hf_checkpoint(bert, tmp_path / "out")
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.2}))
    with pytest.raises(DataError, match="Remove it, or pass another"):
        convert_hf_checkpoint(bert, tmp_path / "out")


def test_failure_leaves_nothing(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    (tmp_path / "place").mkdir()
    with pytest.raises(OSError, match="No space"):
        convert_hf_checkpoint(bert, tmp_path / "place" / "out")
    assert not list((tmp_path / "place").iterdir())


# ---- fairseq


def test_from_pretrained_reads_text(bert: Path, tmp_path: Path) -> None:
    from tokenizers import BertWordPieceTokenizer

    import fairseq_adv.data.tokenizers.registered_bpe  # noqa: F401  (registers the tokeniser)

    out = tmp_path / "out"
    convert_hf_checkpoint(bert, out)
    hub = RobertaModel.from_pretrained(
        str(out), "model.pt", bpe="wordpiece", bpe_wordpiece_vocab=str(out / "vocab.txt")
    )
    tokenizer = BertWordPieceTokenizer(str(bert / "vocab.txt"))
    rows = wordpiece_vocabulary(bert).rows
    for sentence in hf_models.SENTENCES:
        assert [rows[i] for i in hub.encode(sentence)] == tokenizer.encode(sentence).ids
    assert hub.task.source_dictionary.index("<mask>") == len(rows) - 1


def write_data(folder: Path, dictionary: Path) -> Path:
    """A sentence_prediction data set of random tokens with the converted model's dictionary."""
    support.write_task(folder, train=8, valid=4)
    (folder / "input0" / "dict.txt").write_bytes(dictionary.read_bytes())
    return folder


RESETS = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


@pytest.mark.parametrize("start", ["finetune", "restore with resets", "restore"])
def test_fairseq_train_starts_from_it(bert: Path, tmp_path: Path, start: str) -> None:
    out = tmp_path / "out"
    convert_hf_checkpoint(bert, out)
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
