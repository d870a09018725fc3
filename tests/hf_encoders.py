"""Tiny random encoders of transformers, as Hugging Face folders with a tokenizer of the kind's own sort."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support import VOCABULARY, as_task, build, train_args

WORDS = (*VOCABULARY, *"qa:_?.", "he", "it")  # of the tokenizers of the tests' data
TEXT = [
    "the plot is thin and the jokes are old", "a warm, funny and honest film",
    "dull from the first minute on",
    "an actor who carries every scene", "I would not watch it again", "the best picture of the year (so far)",
    "nothing happens, twice", "sharp writing; great songs", "it drags, it drones, it ends",
]  # fmt: skip
SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 40, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
_WORDPIECE = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # model_type and changes of the sizes, by name
    "bert": ("bert", {}),
    "electra": ("electra", {"embedding_size": 8, "summary_last_dropout": 0.0}),
    "roberta": ("roberta", {"max_position_embeddings": 42, "type_vocab_size": 1}),
    "xlm-roberta": ("xlm-roberta", {"max_position_embeddings": 42, "type_vocab_size": 1}),
    "albert": ("albert", {"embedding_size": 8, "classifier_dropout_prob": 0.0}),
    "deberta": (
        "deberta", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    ),
    "deberta-v3": (
        "deberta-v2",
        {
            "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
            "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
            "type_vocab_size": 0, "max_relative_positions": -1,
        },
    ),
    "modernbert": (
        "modernbert",
        {
            "hidden_dropout_prob": None, "attention_probs_dropout_prob": None,
            "global_attn_every_n_layers": 2, "local_attention": 8,
        },
    ),
}  # fmt: skip

SELDOM: dict[str, tuple[str, dict[str, Any]]] = {  # tested only where they are special
    "mobilebert": (
        "mobilebert",
        {
            "embedding_size": 8, "intra_bottleneck_size": 12, "true_hidden_size": 12,
            "num_feedforward_networks": 1,
        },
    ),
    "xlm": (
        "xlm",
        {
            "intermediate_size": None, "hidden_dropout_prob": None, "attention_probs_dropout_prob": None,
            "dropout": 0.0, "attention_dropout": 0.0, "summary_first_dropout": 0.0,
        },
    ),
    "camembert": ("camembert", {"max_position_embeddings": 42, "type_vocab_size": 1}),
    "distilbert": (
        "distilbert",
        {
            "intermediate_size": None, "hidden_dropout_prob": None, "attention_probs_dropout_prob": None,
            "hidden_dim": 24, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0,
        },
    ),
    "ernie": ("ernie", {}),
    "roformer": ("roformer", {"embedding_size": 16}),
    "mpnet": ("mpnet", {"max_position_embeddings": 42}),
    "convbert": (
        "convbert", {"embedding_size": 16, "head_ratio": 2, "conv_kernel_size": 3, "num_groups": 1},
    ),
}  # fmt: skip


def save_encoder(folder: Path, kind: str, words: Sequence[str] | None = None, **changes: Any) -> Any:
    """Writes the folder of a random encoder with a masked-LM head.

    Args:
        kind: one of :data:`KINDS` or :data:`SELDOM`.
        words: the tokenizer is WordPiece with these words; ``None``: of the kind's own sort.
        changes: of the sizes.

    Returns:
        transformers' model.
    """
    import torch
    from tokenizers import Tokenizer
    from transformers import CONFIG_MAPPING, AutoModelForMaskedLM

    folder.mkdir(parents=True)
    save_tokenizer(folder, kind, words)
    names = json.loads((folder / "tokenizer_config.json").read_text())
    engine = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model_type, own = {**KINDS, **SELDOM}[kind]
    sizes = {key: value for key, value in {**SIZES, **own, **changes}.items() if value is not None}
    ids = {
        f"{of}_token_id": engine.token_to_id(names[f"{of}_token"])
        for of in ("pad", "bos", "eos", "cls", "sep")
    }
    rows = engine.get_vocab_size() + 3  # real models have rows that no token uses
    torch.manual_seed(1)
    model = AutoModelForMaskedLM.from_config(CONFIG_MAPPING[model_type](vocab_size=rows, **{**ids, **sizes}))
    with torch.no_grad():
        for parameter in model.parameters():  # biases, layer norms and the row of padding differ too
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.eval().save_pretrained(folder)
    return model


def save_tokenizer(
    folder: Path, kind: str, words: Sequence[str] | None = None, texts: Sequence[str] = TEXT
) -> None:
    """Writes tokenizer.json and tokenizer_config.json.

    Args:
        words: as in :func:`save_encoder`.
        texts: what it learns from, if there are no words.
    """
    from tokenizers import processors

    as_bert = kind not in ("roberta", "xlm-roberta", "camembert", "mpnet", "deberta", "convbert")
    names = _WORDPIECE if as_bert else _ROBERTA
    engine = _trained(kind, names, texts) if words is None else _given(words, names, as_bert)
    pad, unk, cls, sep, mask = names if as_bert else (names[1], names[3], names[0], names[2], names[4])
    between = sep if as_bert else f"{sep} {sep}"
    engine.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {between} $B {sep}",
        special_tokens=[(one, engine.token_to_id(one)) for one in (cls, sep)],
    )
    engine.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "cls_token": cls, "sep_token": sep, "pad_token": pad,
        "unk_token": unk, "mask_token": mask, "bos_token": cls, "eos_token": sep, "model_max_length": 40,
        "model_input_names": ["input_ids", "attention_mask"],
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _given(words: Sequence[str], names: Sequence[str], as_bert: bool) -> Any:
    """As support.write_encoder's: the words have the same ids in fairseq's dictionary."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate([*names, *words])}
    engine = Tokenizer(models.WordPiece(vocabulary, unk_token=names[1 if as_bert else 3]))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    return engine


def _trained(kind: str, names: Sequence[str], texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    special = list(names)
    if kind in ("bert", "electra", "ernie", "distilbert", "mobilebert"):
        engine = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        engine.normalizer, engine.pre_tokenizer = (
            normalizers.BertNormalizer(),
            pre_tokenizers.BertPreTokenizer(),
        )
        engine.decoder = decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=150, special_tokens=special)
    elif kind in ("roberta", "modernbert", "deberta"):
        engine = Tokenizer(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    else:
        engine = Tokenizer(models.Unigram())
        engine.normalizer, engine.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        engine.decoder = decoders.Metaspace()
        unknown = next(name for name in names if "unk" in name.lower())
        trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token=unknown)
    engine.train_from_iterator([*texts] * 5, trainer)
    return engine


def of_transformers(args: list[str], encoder: Path) -> list[str]:
    """The arguments of :func:`support.train_args` with one of transformers' encoders."""
    args, sizes = list(args), ("layers", "embed-dim", "ffn-embed-dim", "attention-heads")
    for name in ("--arch", *(f"--encoder-{size}" for size in sizes)):
        place = args.index(name)
        del args[place : place + 2]
    return [*args, "--arch", "hf_encoder", "--hf-model", str(encoder)]


def hf_args(
    data: dict[str, Path], encoder: Path, objective: str, method: str, *words: str, save: Path | None = None
) -> list[str]:
    """:func:`support.train_args` with one of transformers' encoders."""
    task, classes, more = as_task(objective)
    # Dropout masks of as many tokens as in the restatement.
    more += ["--whole-last-layer"] if objective in ("windows", "multi_label") else []
    args = train_args(data[objective], save, method, *more, *words, task=task, classes=classes)
    args = of_transformers(args, encoder)
    has_none = task in ("sentence_prediction", "text_classification", "masked_lm", "multi_label")
    return [*args, *([] if has_none else ["--tokenizer-dir", str(encoder)])]


def hf_run(data: dict[str, Path], encoder: Path, objective: str, method: str, *words: str) -> SimpleNamespace:
    """A run of a method on an objective."""
    return build(hf_args(data, encoder, objective, method, *words))
