"""A converted RoBERTa computes what transformers computes with the source, on sentences of different lengths.

Only the order of float32 operations differs: 5e-5 is asked for, of values of up to 10.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hf_models
import pytest
import torch
from fairseq.models.roberta import RobertaModel

from fairseq_adv.hub.convert import convert_hf_checkpoint

ROUNDING = 5e-5


def load(out: Path) -> Any:
    """As a user loads it."""
    return RobertaModel.from_pretrained(str(out), "model.pt", bpe=None).eval()


@pytest.mark.parametrize("tied", [True, False])
def test_roberta_from_text_to_logits(tmp_path: Path, tied: bool) -> None:
    """RoBERTa's epsilon is fairseq's, so stock modules agree; text goes through each side's own tokeniser."""
    from tokenizers import ByteLevelBPETokenizer

    model = hf_models.save_roberta(tmp_path / "hf", tie_word_embeddings=tied)
    if not tied:  # then the matrix has a bias of its own
        bias = model.lm_head.decoder.bias
        model.lm_head.decoder.bias = torch.nn.Parameter(torch.randn_like(bias))
        model.save_pretrained(tmp_path / "hf")
    out = tmp_path / "out"
    convert_hf_checkpoint(tmp_path / "hf", out)
    files = {"gpt2_encoder_json": str(out / "encoder.json"), "gpt2_vocab_bpe": str(out / "vocab.bpe")}
    hub = RobertaModel.from_pretrained(str(out), "model.pt", bpe="gpt2", **files).eval()
    flags = (out / "model_args.txt").read_text().split()
    assert ("--untie-weights-roberta" in flags) == (not tied)
    columns = source_rows(tmp_path / "hf", out)
    assert sorted(columns) == list(range(len(hub.task.source_dictionary)))
    tokenizer = ByteLevelBPETokenizer(
        str(tmp_path / "hf" / "vocab.json"), str(tmp_path / "hf" / "merges.txt")
    )
    for sentence in hf_models.SENTENCES:
        ids = torch.tensor([[0, *tokenizer.encode(sentence).ids, 2]])
        words = hub.encode(sentence)
        assert torch.tensor(columns)[words].tolist() == ids[0].tolist()
        with torch.no_grad():
            theirs = model(ids, output_hidden_states=True)
            ours = hub.extract_features(words, return_all_hiddens=True)
            logits = hub.model(words[None])[0]
        whole = torch.ones_like(ids)
        assert max(hf_models.differences(theirs.hidden_states, ours, whole)) < ROUNDING
        assert max(hf_models.differences([theirs.logits[..., columns]], [logits], whole)) < 2 * ROUNDING


def test_roberta_batch_with_padding(tmp_path: Path) -> None:
    model = hf_models.save_roberta(tmp_path / "hf")
    convert_hf_checkpoint(tmp_path / "hf", tmp_path / "out")
    hub = load(tmp_path / "out")
    generator = torch.Generator().manual_seed(0)
    ours = torch.randint(4, len(hub.task.source_dictionary), (4, 150), generator=generator)
    for row, length in enumerate((150, 3, 70, 149)):
        ours[row, length:] = 1
    mask = ours.ne(1).long()
    rows = torch.tensor(source_rows(tmp_path / "hf", tmp_path / "out"))
    with torch.no_grad():
        theirs = model(rows[ours], attention_mask=mask, output_hidden_states=True).hidden_states
        found = hub.extract_features(ours, return_all_hiddens=True)
    assert max(hf_models.differences(theirs, found, mask)) < ROUNDING


def source_rows(folder: Path, out: Path) -> list[int]:
    """Row in the source of each fairseq index, by name."""
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    by_number = {str(n): token for token, n in json.loads((out / "encoder.json").read_text()).items()}
    lines = (out / "dict.txt").read_text(encoding="utf-8").splitlines()
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(line.split(" ")[0] for line in lines), "<mask>"]
    return [vocabulary[by_number.get(symbol, symbol)] for symbol in symbols]
