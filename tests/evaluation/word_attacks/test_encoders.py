"""Vectors and words from encoders, against transformers and against trying everything."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hf_encoders import save_encoder
from hf_models import SENTENCES, bert_vocabulary, save_bert, save_roberta
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import BertForMaskedLM

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import WordText
from fairseq_adv.evaluation.word_attacks.encoders import MaskedLMCandidates, SentenceVectors, TextEncoder
from fairseq_adv.hub.convert import convert_hf_checkpoint

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["bert", "roberta", "deberta-v3", "converted"])
def encoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path, Path]:
    """(the model of transformers, its folder, the folder that is read); the last is a converted RoBERTa."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "bert":
        return save_bert(folder / "hf", head=True), folder / "hf", folder / "hf"
    if request.param != "converted":
        model = save_encoder(folder / "hf", request.param, max_position_embeddings=160)
        return model, folder / "hf", folder / "hf"
    model = save_roberta(folder / "hf")
    convert_hf_checkpoint(folder / "hf", folder / "fairseq")
    return model, folder / "hf", folder / "fairseq"


def test_vectors_are_the_means_of_the_last_layer(encoder: tuple[Any, Path, Path]) -> None:
    """Whatever else is in the mini-batch, to 1e-5."""
    model, folder, path = encoder
    vectors = SentenceVectors(TextEncoder(path, CPU))([*SENTENCES, SENTENCES[2]])
    assert np.array_equal(vectors[2], vectors[-1])
    tokenizer = _tokenizer(folder)
    for sentence, vector in zip(SENTENCES, vectors):
        ids = torch.tensor([tokenizer(sentence)])
        with torch.no_grad():
            hidden = model.base_model(ids).last_hidden_state[0]
        assert np.abs(hidden.mean(0).numpy() - vector).max() < 1e-5


def _tokenizer(folder: Path) -> Any:
    if (folder / "tokenizer.json").is_file():
        engine = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: engine.encode(text).ids
    bpe = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    return lambda text: [0, *bpe.encode(text).ids, 2]


@pytest.mark.parametrize("most", [1, 4, 9])
def test_the_most_probable_words_are_found_without_trying_all(
    encoder: tuple[Any, Path, Path], most: int
) -> None:
    """Against all sequences of tokens, for words of one to three."""
    propose = MaskedLMCandidates(encoder[2], CPU)
    begins, continues = propose._begins, propose._continues
    assert begins.sum() > most and continues.sum() > most
    for tokens in (1, 2, 3):
        log_probs = (
            torch.randn(tokens, len(begins), generator=torch.Generator().manual_seed(tokens)) * 2
        ).log_softmax(-1)
        options = []
        for position in range(tokens):
            allowed = (begins if position == 0 else continues).nonzero().flatten().tolist()
            options.append(sorted(allowed, key=lambda i, p=position: -float(log_probs[p, i]))[:12])
        every = sorted(
            itertools.product(*options),
            key=lambda ids: -sum(float(log_probs[p, i]) for p, i in enumerate(ids)),
        )
        expected = ["".join(propose._texts[i] for i in ids) for ids in every[:most]]
        assert propose._proposed(log_probs, most) == expected


def test_each_word_is_asked_for_at_its_own_tokens(encoder: tuple[Any, Path, Path]) -> None:
    """The most probable token at the word's only position, from transformers' logits on the text as it is."""
    model, folder, path = encoder
    text = WordText.of(["the film was fine , and the film ran", "never this"])
    (found,) = MaskedLMCandidates(path, CPU)([(text, 3)])
    assert len(found) == len(text.words)
    assert all(len(words) <= 3 for words in found) and sum(map(len, found)) > len(found)
    if isinstance(model, BertForMaskedLM):
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        for number, originals in enumerate(text.originals):
            encoding = tokenizer.encode(originals)
            with torch.no_grad():
                logits = model(torch.tensor([encoding.ids])).logits[0]
            for index, place in enumerate(text.places):
                inside = [
                    t
                    for t, (b, e) in enumerate(encoding.offsets)
                    if e > b and b >= place.start and e <= place.end
                ]
                if place.text == number and len(inside) == 1:
                    order = logits[inside[0]].argsort(descending=True).tolist()
                    names = [bert_vocabulary()[i] for i in order]
                    expected = [n for n in names if n.isalpha()][:3]
                    assert found[index] == expected, text.words[index]


def test_an_encoder_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    save_bert(tmp_path / "hf")
    save_roberta(tmp_path / "roberta", head=False)
    convert_hf_checkpoint(tmp_path / "roberta", tmp_path / "fairseq")
    for folder in ("hf", "fairseq"):
        assert TextEncoder(tmp_path / folder, CPU)
        with pytest.raises(DataError, match="its masked-LM head was not trained"):
            MaskedLMCandidates(tmp_path / folder, CPU)
    with pytest.raises(DataError, match="no such checkpoint"):
        TextEncoder(tmp_path / "other.pt", CPU)
