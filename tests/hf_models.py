"""Small random encoders in Hugging Face's layout, and how to compare them with fairseq's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

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


def bert_vocabulary() -> list[str]:
    """A WordPiece vocabulary: specials, letters and some words."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789.,;:?'-")
    words = ["the", "film", "##ing", "and", "was", "##s", "this", "never", "##er"]
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words]
    return list(dict.fromkeys([*tokens, *("##" + letter for letter in letters)]))


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
    """Writes a random BERT (config, model.safetensors, tokenizer.json) and returns it in eval mode."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForMaskedLM, BertModel

    tokens = {token: row for row, token in enumerate(bert_vocabulary())}
    options = BertConfig(**sizes(len(tokens), type_vocab_size=2, **config))
    model = BertForMaskedLM(options) if head else BertModel(options)
    randomise(model)
    model.eval().save_pretrained(folder)
    BertWordPieceTokenizer(tokens).save(str(folder / "tokenizer.json"))
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    config_file = folder / "tokenizer_config.json"
    config_file.write_text(json.dumps({**names, "tokenizer_class": "PreTrainedTokenizerFast"}))
    return model


def save_roberta(folder: Path, head: bool = True, **config: Any) -> Any:
    """Writes a random RoBERTa with a byte-level BPE trained on the sentences; returns it in eval mode."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM, RobertaModel

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
    options = RobertaConfig(**sizes(len(tokens), **{**special, **config}))
    model = RobertaForMaskedLM(options) if head else RobertaModel(options)
    randomise(model)
    model.eval().save_pretrained(folder)
    return model


def differences(theirs: Any, ours: Any, mask: torch.Tensor) -> list[float]:
    """Largest difference over real (not padding) tokens for each pair of tensors (batch, length, width)."""
    assert len(theirs) == len(ours)
    real = mask.bool()
    return [float((a[real] - b[real]).detach().abs().max()) for a, b in zip(theirs, ours)]
