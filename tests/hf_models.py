"""Small random encoders in Hugging Face's layout, and how to compare them with fairseq's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from fairseq.data import Dictionary

SENTENCES = [
    "No.",
    "The soup was cold.",
    "I have watched this film three times, and it still makes me cry at the end.",
    "Is that really what twelve dollars buys you in this town?",
    "Her brother, who never reads, finished the whole book in one night.",
    "They did not refund us.",
    "A slow start, a clumsy middle, and then forty minutes of the best acting I have seen in years.",
    "The café on the corner opens at 7:30 a.m. on weekdays.",
    "Nobody told the drivers that the bridge was closed, so the queue grew until it reached the motorway.",
    "It's fine, I suppose.",
]

BERT_SPECIALS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}


def bert_vocabulary() -> list[str]:
    """A WordPiece vocabulary: specials scattered, letters, words, and tokens that are hard for dict.txt."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789.,;:?'-é")
    odd = ["\u2028", "\u00a0", "a b", "", "#fairseq:overwrite", "中", "##ñ", "\u200b", "1"]
    words = ["the", "film", "##ing", "and", "was", "##s", "this", "never", "##er"]
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words, *odd]
    tokens += ["##" + letter for letter in letters]
    return list(dict.fromkeys(tokens))


def sizes(vocabulary: int, **other: Any) -> dict[str, Any]:
    """Config options of a small encoder; all sizes differ, so that none can be swapped unnoticed."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 160,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **other,
    }


def randomise(model: torch.nn.Module) -> None:
    """Gives every tensor (biases, layer norms, segment rows, padding row) values that matter."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.3
            centre = 1.0 if "LayerNorm.weight" in name or "layer_norm.weight" in name else 0.0
            parameter.copy_(centre + noise)


def save_bert(folder: Path, head: bool = False, **config: Any) -> Any:
    """Writes a random BERT (config, model.safetensors, vocab.txt) and returns it in eval mode."""
    from transformers import BertConfig, BertForMaskedLM, BertModel

    tokens = bert_vocabulary()
    options = BertConfig(**sizes(len(tokens), type_vocab_size=2, **config))
    model = BertForMaskedLM(options) if head else BertModel(options)
    randomise(model)
    model.eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return model


def save_roberta(folder: Path, **config: Any) -> Any:
    """Writes a random RoBERTa with a byte-level BPE trained on the sentences; returns it in eval mode."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM

    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator(SENTENCES, vocab_size=330, min_frequency=1, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    trainer.save_model(str(folder))
    # RoBERTa's order: specials, tokens (here reversed: any order is possible), fillers, the mask.
    made = list(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(made), "<|endoftext|>", "madeupword0000", "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}), encoding="utf-8")
    special = {
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    }
    model = RobertaForMaskedLM(RobertaConfig(**sizes(len(tokens), **special, **config)))
    randomise(model)
    model.eval().save_pretrained(folder)
    return model


def save_albert(folder: Path, head: bool = True, **config: Any) -> Any:
    """Writes a random ALBERT with a SentencePiece model trained on the sentences; returns it in eval mode."""
    from glue_samples import small_spiece
    from transformers import AlbertConfig, AlbertForMaskedLM, AlbertModel

    small_spiece(folder, [*SENTENCES * 3, "exactly the next text"], 120)
    (folder / "dict.txt").unlink()  # a converted encoder's
    tokens = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model")).get_piece_size()
    more = {"embedding_size": 10, "num_hidden_layers": 3, "pad_token_id": 0, "type_vocab_size": 2}
    options = AlbertConfig(**{**sizes(tokens), **more, **config})
    model = AlbertForMaskedLM(options) if head else AlbertModel(options)
    randomise(model)
    model.eval().save_pretrained(folder)
    return model


def bert_batch(vocab: Path) -> tuple[torch.Tensor, torch.Tensor, list[list[str]]]:
    """The sentences as one padded batch: source ids and mask, both (sentences, longest), and the tokens."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocab))
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    rows = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([row.ids for row in rows])
    return ids, torch.tensor([row.attention_mask for row in rows]), [row.tokens for row in rows]


def fairseq_ids(dictionary: Dictionary, tokens: list[list[str]], specials: dict[str, str]) -> torch.Tensor:
    """The tokens' ids in fairseq's dictionary; a token that it lacks is an error of the test."""
    words = [[specials.get(token, token) for token in row] for row in tokens]
    assert all(word in dictionary for row in words for word in row)
    return torch.tensor([[dictionary.index(word) for word in row] for row in words])


def set_epsilon(model: torch.nn.Module, epsilon: float) -> None:
    """Gives every LayerNorm of ``model`` another epsilon."""
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = epsilon


def differences(theirs: Any, ours: Any, mask: torch.Tensor) -> list[float]:
    """Largest difference over real (not padding) tokens for each pair of tensors (batch, length, width)."""
    assert len(theirs) == len(ours)
    real = mask.bool()
    return [float((a[real] - b[real]).detach().abs().max()) for a, b in zip(theirs, ours)]
