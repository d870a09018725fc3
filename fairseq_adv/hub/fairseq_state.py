"""Builds the contents of a fairseq checkpoint file, and tests a converted model with fairseq itself."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_adv.hub.families import Family, Sizes
from fairseq_adv.hub.tensors import Converted
from fairseq_adv.hub.vocabulary import FAIRSEQ_MASK, Vocabulary
from fairseq_adv.models.albert import AlbertLMHead

HEAD_SEED = 1


def checkpoint_state(model: dict[str, torch.Tensor], model_config: dict[str, Any]) -> dict[str, Any]:
    """Returns what fairseq's trainer and ``load_model_ensemble_and_task`` read from a checkpoint.

    It consists only of tensors, strings, numbers, lists and dicts, so ``torch.load(weights_only=True)``
    accepts it without allow-listed classes. There is no optimizer state: training starts with a new one.
    """
    return {
        "args": None,
        "cfg": {**_default_config(model_config), "model": dict(model_config)},
        "model": model,
        # fairseq 0.12.2 reads the last entry; nothing in it is used without an optimizer state.
        "optimizer_history": [
            {"criterion_name": "none", "optimizer_name": "none", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "last_optimizer_state": None,
        "task_state": {},
        "extra_state": {
            "train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True}
        },
    }


def _default_config(model_config: dict[str, Any]) -> dict[str, Any]:
    """Returns fairseq's configuration of a masked_lm run with no options given, as plain values."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    # fairseq's hub replaces the data folder "." with the checkpoint's own folder, which has dict.txt.
    words = [".", "--task", "masked_lm", "--criterion", "masked_lm", "--arch", str(model_config["arch"])]
    words += ["--tokens-per-sample", str(model_config["max_positions"]), "--distributed-world-size", "1"]
    parser = options.get_training_parser()
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=words))
    # The model's part is a Namespace with all command-line options; the caller replaces it.
    config.model = None
    plain = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    assert isinstance(plain, dict)  # config is a mapping; the check is for the type checker
    return {str(key): value for key, value in plain.items()}


def add_fresh_head(converted: Converted, family: Family, sizes: Sizes, activation: str) -> None:
    """Initialises the masked-LM head as fairseq does for a new model.

    The seed is fixed, and the caller's random state is untouched.
    """
    from fairseq.models.roberta.model import RobertaLMHead
    from fairseq.modules.transformer_sentence_encoder import init_bert_params

    words = converted.model["encoder.sentence_encoder.embed_tokens.weight"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(HEAD_SEED)
        new = partial(AlbertLMHead, sizes.width) if family.shared else RobertaLMHead
        head = new(sizes.input_width, sizes.vocabulary, activation, weight=torch.nn.Parameter(words))
        head.apply(init_bert_params)
    for name, tensor in head.state_dict().items():
        converted.model[f"encoder.lm_head.{name}"] = (
            words if name == "weight" and sizes.tied else tensor.clone()
        )


def check_with_fairseq(
    dict_txt: Path, model: dict[str, torch.Tensor], vocabulary: Vocabulary, model_config: dict[str, Any]
) -> None:
    """Reads the dictionary and loads the weights (strictly) with fairseq itself.

    Raises:
        RuntimeError: fairseq reads something different, which is a bug in the converter.
    """
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_MODEL_REGISTRY

    dictionary = Dictionary.load(str(dict_txt))
    dictionary.add_symbol(FAIRSEQ_MASK)
    if tuple(dictionary.symbols[4:-1]) != vocabulary.symbols or len(dictionary) != len(vocabulary.rows):
        raise RuntimeError("fairseq reads the written dict.txt differently; please report this vocabulary")

    class _Task:
        source_dictionary = dictionary

    with torch.random.fork_rng(devices=[]):
        model_class = ARCH_MODEL_REGISTRY[model_config["arch"]]
        built = model_class.build_model(argparse.Namespace(**model_config), _Task())
    built.load_state_dict(dict(model), strict=True)
