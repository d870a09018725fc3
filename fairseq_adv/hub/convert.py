"""Converts a RoBERTa's Hugging Face folder to a fairseq checkpoint, its dictionary and tokenizer files."""

from __future__ import annotations

import logging
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from fairseq_adv.data.class_rows import CONVERTED_HEAD, CONVERTED_NAMES, names_in, shown
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.hf_folder import read_config, read_weights, source_hashes
from fairseq_adv.data.tokenizers import FAIRSEQ_FIRST
from fairseq_adv.data.workspace import finished, workspace
from fairseq_adv.hub.model_config import (
    EPSILON,
    Sizes,
    fairseq_flags,
    fairseq_model_config,
    hydra_model,
    sizes_of,
)
from fairseq_adv.hub.tensors import Converted, to_fairseq
from fairseq_adv.hub.vocabulary import Vocabulary, byte_level_vocabulary, write_json

logger = logging.getLogger(__name__)

# Incremented whenever the same folder would be converted differently, so that old results are not reused.
FORMAT = 2
_HEAD_SEED = 1


def convert_hf_checkpoint(folder: Path, out: Path, overwrite: bool = False) -> bool:
    """Converts the model folder ``folder`` into ``out``.

    Writes ``model.pt``, ``dict.txt``, the tokenizer's files, ``model_args.txt`` (one line of
    ``fairseq-train`` options), ``model.yaml`` (the same for hydra) and ``conversion.json``, atomically. An
    ``out`` that already contains this conversion of these files is kept.

    Args:
        overwrite: replace a conversion of other files.

    Returns:
        True if ``out`` was written, False if it was up to date.

    Raises:
        DataError: the folder can't be converted, or ``out`` contains something else.
    """
    folder, out = folder.resolve(), out.resolve()
    config = read_config(folder)
    if config.get("model_type") != "roberta":
        raise DataError(
            f"{folder / 'config.json'}: model_type is {config.get('model_type')!r:.40}, and only a RoBERTa "
            f"can be converted. Train it as it is: pass --encoder {folder} to fairseq-adv prepare and train"
        )
    sizes = sizes_of(config, folder / "config.json")
    made_from = {"format": FORMAT, "source (sha256)": source_hashes(folder)}
    if finished(out, made_from, overwrite):
        return False
    with tqdm(total=4, desc="convert", unit="step") as bar:
        bar.set_postfix_str("vocabulary")
        try:
            vocabulary = byte_level_vocabulary(folder)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{folder}: the tokenizer's files are not in transformers' format: {repr(error)[:90]}"
            ) from error
        _check_rows(vocabulary, sizes, folder)
        bar.update()
        bar.set_postfix_str("weights")
        weights = read_weights(folder)
        bar.update()
        bar.set_postfix_str("rename")
        converted = to_fairseq(weights, folder, sizes, vocabulary.rows)
        model_config = fairseq_model_config(config, sizes)
        if converted.has_head and config["hidden_act"] != "gelu":
            raise DataError(
                f"{folder / 'config.json'}: hidden_act is {config['hidden_act']!r}, but the masked-LM head "
                "of transformers' RoBERTa always uses gelu, and fairseq's the encoder's activation. Train "
                f"the folder as it is: --encoder {folder}"
            )
        if not converted.has_head:
            _add_fresh_head(converted, sizes, model_config["activation_fn"])
        bar.update()
        bar.set_postfix_str("write")
        flags = fairseq_flags(model_config)
        about = _describe(config, converted, vocabulary, flags)
        with workspace(out, made_from, digests=True) as scratch:
            _write(scratch, converted, vocabulary, model_config, flags, about, names_in(config))
        bar.update()
    _log_summary(about)
    return True


def _check_rows(vocabulary: Vocabulary, sizes: Sizes, folder: Path) -> None:
    if len(vocabulary.rows) != sizes.vocabulary:
        raise DataError(
            f"{folder}: the tokenizer has {len(vocabulary.rows)} tokens but config.json has vocab_size "
            f"{sizes.vocabulary}. Use the model's own tokenizer; every row needs a token"
        )
    pad_row = vocabulary.rows[FAIRSEQ_FIRST.index("<pad>")]
    if pad_row != sizes.first_position - 1:
        raise DataError(
            f"{folder}: the padding token is row {pad_row} in the vocabulary, but pad_token_id in "
            f"config.json is {sizes.first_position - 1}. They must agree, since positions are counted from it"
        )


def _describe(
    config: dict[str, Any],
    converted: Converted,
    vocabulary: Vocabulary,
    flags: list[str],
) -> dict[str, Any]:
    import fairseq

    eps = config.get("layer_norm_eps", 1e-12)
    notes = [
        "segment embedding: row 0 is added to every position, so both texts of a pair get segment A's row"
    ]
    if eps != EPSILON:
        notes.append(f"LayerNorm epsilon: {eps} in the source, {EPSILON} in fairseq, where it is fixed")
    if converted.classifier:
        outputs, names = len(converted.classifier["out_proj.bias"]), names_in(config)
        notes.append(
            f"head with {outputs} rows ({shown(names) if names else 'without names'}): a training with these "
            "classes takes it over"
        )
    return {
        "source_name": config.get("_name_or_path"),
        "model_type": config["model_type"],
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "fairseq": fairseq.__version__,
        },
        "model_args": shlex.join(flags),
        "bpe": "gpt2",
        "tokenizer": vocabulary.about,
        "left_out": converted.left_out,
        "newly_initialised": (
            {}
            if converted.has_head
            else {"encoder.lm_head": f"no masked-LM head in the source; seed {_HEAD_SEED}"}
        ),
        "notes": notes,
    }


def _write(
    scratch: Path,
    converted: Converted,
    vocabulary: Vocabulary,
    model_config: dict[str, Any],
    flags: list[str],
    about: dict[str, Any],
    classes: list[str],
) -> None:
    for name, content in vocabulary.files.items():
        (scratch / name).write_bytes(content)
    (scratch / "dict.txt").write_bytes(vocabulary.dict_txt().encode("utf-8"))
    (scratch / "model_args.txt").write_bytes((shlex.join(flags) + "\n").encode("utf-8"))
    (scratch / "model.yaml").write_bytes(hydra_model(model_config).encode("utf-8"))
    with open(scratch / "model.pt", "wb") as file:  # given a path, torch would hide why it can't write
        words = [".", "--task", "masked_lm", "--criterion", "masked_lm"]
        words += ["--tokens-per-sample", str(model_config["max_positions"])]
        # fairseq's hub replaces the data folder "." with the checkpoint's own folder, which has dict.txt.
        state = checkpoint_state(converted.model, model_config, words)
        if converted.classifier:  # for training/first_head.py
            head = {CONVERTED_HEAD + name: tensor for name, tensor in converted.classifier.items()}
            state["model"] = {**state["model"], **head}
            state["extra_state"][CONVERTED_NAMES] = classes
        torch.save(state, file)
    (scratch / "conversion.json").write_bytes(write_json(about))


def _log_summary(about: dict[str, Any]) -> None:
    for name, why in about["left_out"].items():
        logger.info("left out: %s (%s)", name, why)
    for name, why in about["newly_initialised"].items():
        logger.warning("newly initialised: %s (%s)", name, why)
    for note in about["notes"]:
        logger.info("note: %s", note)


# ---- with fairseq


def checkpoint_state(
    model: dict[str, torch.Tensor], model_config: dict[str, Any], words: Sequence[str]
) -> dict[str, Any]:
    """What fairseq's trainer and ``load_model_ensemble_and_task`` read from a checkpoint.

    Args:
        words: data, task and criterion, as options of fairseq-train.

    It consists only of tensors, strings, numbers, lists and dicts, so ``torch.load(weights_only=True)``
    accepts it without allow-listed classes. There is no optimizer state: training starts with a new one.
    """
    return {
        "args": None,
        "cfg": {**_default_config(model_config, words), "model": dict(model_config)},
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


def _default_config(model_config: dict[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """fairseq's configuration of a run with these options, as plain values."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    words = [*given, "--arch", str(model_config["arch"]), "--distributed-world-size", "1"]
    parser = options.get_training_parser()
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=words))
    # The model's part is a Namespace with all command-line options; the caller replaces it.
    config.model = None
    values = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    assert isinstance(values, dict)  # config is a mapping; the check is for the type checker
    return {str(key): value for key, value in values.items()}


def _add_fresh_head(converted: Converted, sizes: Sizes, activation: str) -> None:
    """Initialises the masked-LM head as fairseq does for a new model.

    The seed is fixed, and the caller's random state is untouched.
    """
    from fairseq.models.roberta.model import RobertaLMHead
    from fairseq.modules.transformer_sentence_encoder import init_bert_params

    words = converted.model["encoder.sentence_encoder.embed_tokens.weight"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_HEAD_SEED)
        head = RobertaLMHead(sizes.width, sizes.vocabulary, activation, weight=torch.nn.Parameter(words))
        head.apply(init_bert_params)
    for name, tensor in head.state_dict().items():
        converted.model[f"encoder.lm_head.{name}"] = (
            words if name == "weight" and sizes.tied else tensor.clone()
        )
