"""A converted ALBERT computes what transformers computes, from text through each side's own tokenizer.

The two differ in the order of float32 operations, and in LayerNorm's epsilon: 1e-12 there, 1e-9 here.
"""

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
from fairseq_adv.models.albert import AlbertModel

transformers = pytest.importorskip("transformers", reason="compares with transformers' own models")

CLOSE = 1e-5


def load(out: Path) -> Any:
    """As a user loads it."""
    return AlbertModel.from_pretrained(str(out), bpe_albert_model=str(out / "spiece.model")).eval()


def rows_of(folder: Path, hub: Any) -> torch.Tensor:
    """The row in the source of each fairseq index, by the pieces' names alone."""
    tokenizer = transformers.AlbertTokenizer.from_pretrained(folder)
    names = {"<s>": "[CLS]", "</s>": "[SEP]", "<mask>": "[MASK]"}
    symbols = [names.get(symbol, symbol) for symbol in hub.task.source_dictionary.symbols]
    rows = tokenizer.convert_tokens_to_ids(symbols)
    assert sorted(rows) == list(range(len(tokenizer)))
    return torch.tensor(rows)


def batches(folder: Path, hub: Any) -> tuple[Any, torch.Tensor]:
    """The sentences as each side makes them of text, and padded: theirs and ours."""
    theirs = transformers.AlbertTokenizer.from_pretrained(folder)(
        hf_models.SENTENCES, padding=True, return_tensors="pt"
    )
    ours = torch.ones_like(theirs["input_ids"])
    for row, sentence in zip(ours, hf_models.SENTENCES):
        ids = hub.encode(sentence)
        row[: len(ids)] = ids
    assert torch.equal(rows_of(folder, hub)[ours], theirs["input_ids"])
    return theirs, ours


@pytest.mark.parametrize(("activation", "tied"), [("gelu_new", True), ("gelu", False)])
def test_hidden_states_and_masked_lm_logits(tmp_path: Path, activation: str, tied: bool) -> None:
    folder, out = tmp_path / "hf", tmp_path / "out"
    model = hf_models.save_albert(folder, hidden_act=activation, tie_word_embeddings=tied)
    assert convert_hf_checkpoint(folder, out) and not convert_hf_checkpoint(folder, out)
    hub = load(out)
    theirs, ours = batches(folder, hub)
    mask = theirs["attention_mask"]
    with torch.no_grad():
        expected = model(**theirs, output_hidden_states=True)
        found = hub.extract_features(ours, return_all_hiddens=True)
        logits = hub.model(ours)[0]
    # Theirs begin with the embeddings as they enter the first layer, and so do ours.
    assert len(found) == len(expected.hidden_states) == 4
    assert max(hf_models.differences(expected.hidden_states, found, mask)) < CLOSE
    columns = rows_of(folder, hub)
    assert max(hf_models.differences([expected.logits[..., columns]], [logits], mask)) < CLOSE
    flags = (out / "model_args.txt").read_text().split()
    assert flags[:2] == ["--arch", "albert_base"] and flags[flags.index("--encoder-input-dim") + 1] == "10"
    assert ("--untie-weights-roberta" in flags) == (not tied)


def test_relu_through_fairseqs_fused_layers(tmp_path: Path) -> None:
    """In evaluation, over nested tensors, of which fairseq cannot return all states."""
    model = hf_models.save_albert(tmp_path / "hf", head=False, hidden_act="relu")
    convert_hf_checkpoint(tmp_path / "hf", tmp_path / "out")
    hub = load(tmp_path / "out")
    theirs, ours = batches(tmp_path / "hf", hub)
    with torch.no_grad():
        pair = [model(**theirs).last_hidden_state], [hub.extract_features(ours)]
    assert max(hf_models.differences(*pair, theirs["attention_mask"])) < CLOSE


def test_classification_logits(tmp_path: Path) -> None:
    """The pooler and the classifier are those of a new head, which gets the source's weights here."""
    folder, out = tmp_path / "hf", tmp_path / "out"
    hf_models.save_albert(folder, head=False)
    model = transformers.AlbertForSequenceClassification.from_pretrained(folder, num_labels=3).eval()
    hf_models.randomise(model)
    model.save_pretrained(folder)
    convert_hf_checkpoint(folder, out)
    left_out = json.loads((out / "conversion.json").read_text())["left_out"]
    assert {name.split(".")[0] for name in left_out} == {"pooler", "classifier"}
    hub = load(out)
    hub.register_classification_head("three", num_classes=3)
    head = hub.model.classification_heads["three"].eval()
    for ours, theirs in ((head.dense, model.albert.pooler), (head.out_proj, model.classifier)):
        ours.load_state_dict(theirs.state_dict())
    theirs, ours = batches(folder, hub)
    with torch.no_grad():
        expected = model(**theirs).logits
        found = hub.model(ours, classification_head_name="three")[0]
    assert float((expected - found).abs().max()) < CLOSE
    assert float((expected[0] - expected[1]).abs().max()) > 0.01


def test_gradients(tmp_path: Path) -> None:
    """Of the shared layer, which sum those of its places, and of the factorised embeddings."""
    folder, out = tmp_path / "hf", tmp_path / "out"
    model = hf_models.save_albert(folder, head=False)
    convert_hf_checkpoint(folder, out)
    hub = load(out)
    theirs, ours = batches(folder, hub)
    real = theirs["attention_mask"].bool()
    model(**theirs).last_hidden_state[real].pow(2).sum().backward()
    hub.extract_features(ours)[real].pow(2).sum().backward()
    encoder = hub.model.encoder.sentence_encoder
    layer = model.encoder.albert_layer_groups[0].albert_layers[0]
    columns = rows_of(folder, hub)
    pairs = [
        (layer.ffn.weight.grad, encoder.layers[0].fc1.weight.grad),
        (layer.attention.query.weight.grad, encoder.layers[0].self_attn.q_proj.weight.grad),
        (model.encoder.embedding_hidden_mapping_in.weight.grad, encoder.input_projection.weight.grad),
        (model.embeddings.word_embeddings.weight.grad[columns][2:], encoder.embed_tokens.weight.grad[2:]),
    ]
    for expected, found in pairs:
        assert (found - expected).norm() < 1e-4 * expected.norm()


def test_an_encoder_without_a_head_gets_a_new_one(tmp_path: Path) -> None:
    hf_models.save_albert(tmp_path / "hf", head=False)
    convert_hf_checkpoint(tmp_path / "hf", tmp_path / "out")
    about = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert list(about["newly_initialised"]) == ["encoder.lm_head"] and about["bpe"] == "albert"
    hub = load(tmp_path / "out")
    assert hub.model.encoder.lm_head.dense.weight.shape == (10, 24)
    assert hub.model(hub.encode("It was cold.")[None])[0].isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_groups": 2}, "config.json: num_hidden_groups is 2; only an ALBERT whose layers"),
        ({"inner_group_num": 2}, "config.json: inner_group_num is 2; only an ALBERT whose layers"),
        ({"embedding_size": 11}, r"word_embeddings.weight has the shape \(\d+, 10\).*needs \(\d+, 11\)"),
        ({"embedding_size": None}, "embedding_size is None, expected a whole number from 1"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = tmp_path / "hf"
    hf_models.save_albert(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    refused(folder, message)


def refused(folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message):
        convert_hf_checkpoint(folder, folder.parent / "out")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_refused_tensors_and_vocabularies(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    hf_models.save_albert(folder)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    second = {n.replace("groups.0", "groups.1"): t.clone() for n, t in tensors.items() if "groups.0" in n}
    save_file({**tensors, **second}, weights)
    refused(folder, r"unknown: encoder.albert_layer_groups.1.albert_layers.0")
    del tensors["albert.encoder.embedding_hidden_mapping_in.weight"]
    save_file(tensors, weights)
    refused(folder, r"missing: encoder.embedding_hidden_mapping_in.weight \(24, 10\)")
    (folder / "spiece.model").write_bytes(b"no model")
    refused(folder, r"spiece.model: not a SentencePiece model")
    (folder / "spiece.model").unlink()
    refused(folder, r"spiece.model: no such file. It must be the encoder's SentencePiece model")
