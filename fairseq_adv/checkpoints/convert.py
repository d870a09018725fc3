"""Turns a Hugging Face model folder into a folder that fairseq trains from and ``RobertaModel.from_pretrained`` loads."""

from __future__ import annotations

import argparse
import json
import logging
import platform
import shlex
from pathlib import Path
from typing import Any, Callable

import torch
from tqdm import tqdm

from fairseq_adv.checkpoints.errors import ConversionError
from fairseq_adv.checkpoints.files import sha256_of, whole_folder
from fairseq_adv.checkpoints.hf_folder import read_config, read_hf_folder, source_hashes
from fairseq_adv.checkpoints.key_map import BERT, Converted, Family, Sizes, convert_tensors
from fairseq_adv.checkpoints.model_config import fairseq_flags, fairseq_model_config, sizes_of
from fairseq_adv.checkpoints.vocabulary import FAIRSEQ_MASK, Vocabulary, wordpiece_vocabulary, write_json

logger = logging.getLogger(__name__)

# Raised whenever the same folder would be converted differently, so that old results are not reused.
FORMAT = 1
HEAD_SEED = 1

_FAMILIES: dict[str, tuple[Family, Callable[[Path], Vocabulary]]] = {
    "bert": (BERT, wordpiece_vocabulary),
}


def convert_hf_checkpoint(folder: Path, out: Path) -> bool:
    """Converts the model folder ``folder`` into ``out``.

    Writes ``model.pt``, ``dict.txt``, the tokeniser's files, ``model_args.txt`` (one line of ``fairseq-train`` flags) and
    ``conversion.json``; all or nothing. An ``out`` that already holds this conversion of these files is kept.

    Returns:
        True if ``out`` was written, False if it was up to date.

    Raises:
        ConversionError: the folder cannot be converted, or ``out`` holds something else.
    """
    config = read_config(folder)
    family, read_vocabulary = _family_of(config, folder)
    sizes = sizes_of(config, folder / "config.json", family)
    if _is_done(folder, out):
        return False
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConversionError(
            f"{out}: exists and is not a complete, current conversion of {folder}; remove it or name another folder"
        )
    with tqdm(total=4, desc="convert", unit="step") as bar:
        bar.set_postfix_str("vocabulary")
        vocabulary = read_vocabulary(folder)
        _check_rows(vocabulary, sizes, folder)
        bar.update()
        bar.set_postfix_str("weights")
        source = read_hf_folder(folder, config)
        bar.update()
        bar.set_postfix_str("rename")
        converted = convert_tensors(source.tensors, family, sizes, vocabulary.rows)
        model_config = fairseq_model_config(config, sizes, converted.untied)
        if not converted.has_head:
            _add_fresh_head(converted, sizes, model_config["activation_fn"])
        bar.update()
        bar.set_postfix_str("write")
        flags = fairseq_flags(model_config)
        about = _describe(config, source.sha256, converted, vocabulary, flags)
        with whole_folder(out) as scratch:
            _write(scratch, converted, vocabulary, model_config, flags, about)
        bar.update()
    _tell(about)
    return True


def _family_of(config: dict[str, Any], folder: Path) -> tuple[Family, Callable[[Path], Vocabulary]]:
    kind = config.get("model_type")
    if kind not in _FAMILIES:
        raise ConversionError(
            f"{folder / 'config.json'}: model_type is {kind!r}; this converter knows {', '.join(sorted(_FAMILIES))}"
        )
    return _FAMILIES[kind]


def _check_rows(vocabulary: Vocabulary, sizes: Sizes, folder: Path) -> None:
    if len(vocabulary.rows) != sizes.vocabulary:
        raise ConversionError(
            f"{folder}: the tokeniser has {len(vocabulary.rows)} tokens but config.json has vocab_size "
            f"{sizes.vocabulary}; a model and its own tokeniser belong together, and every row needs a token"
        )


def _add_fresh_head(converted: Converted, sizes: Sizes, activation: str) -> None:
    """Initialises the masked-LM head as fairseq does for a new model, with a fixed seed and no effect on the caller's RNG."""
    from fairseq.models.roberta.model import RobertaLMHead
    from fairseq.modules.transformer_sentence_encoder import init_bert_params

    words = converted.model["encoder.sentence_encoder.embed_tokens.weight"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(HEAD_SEED)
        head = RobertaLMHead(sizes.width, sizes.vocabulary, activation, weight=torch.nn.Parameter(words))
        head.apply(init_bert_params)
    for name, tensor in head.state_dict().items():
        converted.model[f"encoder.lm_head.{name}"] = words if name == "weight" else tensor.clone()


def _describe(
    config: dict[str, Any], sha256: dict[str, str], converted: Converted, vocabulary: Vocabulary, flags: list[str]
) -> dict[str, Any]:
    import fairseq

    eps = config.get("layer_norm_eps", 1e-12)
    notes = ["segment embedding: row 0 is added to every position, so both sentences of a pair get segment A's row"]
    if eps != 1e-5:
        notes.append(f"LayerNorm epsilon: {eps} in the source, 1e-5 in fairseq, where it is fixed")
    return {
        "format": FORMAT,
        "source_name": config.get("_name_or_path"),
        "model_type": config["model_type"],
        "source_sha256": sha256,
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "fairseq": fairseq.__version__,
        },
        "model_args": shlex.join(flags),
        "bpe": vocabulary.bpe,
        "tokenizer": vocabulary.about,
        "left_out": converted.left_out,
        "newly_initialised": (
            {} if converted.has_head else {"encoder.lm_head": f"no masked-LM head in the source; seed {HEAD_SEED}"}
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
) -> None:
    for name, content in vocabulary.files.items():
        (scratch / name).write_bytes(content)
    (scratch / "dict.txt").write_text(vocabulary.dict_txt(), encoding="utf-8", newline="\n")
    (scratch / "model_args.txt").write_text(shlex.join(flags) + "\n", encoding="utf-8")
    _check_with_fairseq(scratch / "dict.txt", converted, vocabulary, model_config)
    torch.save(checkpoint_state(converted.model, model_config), str(scratch / "model.pt"))
    sha256 = {path.name: sha256_of(path) for path in sorted(scratch.iterdir())}
    (scratch / "conversion.json").write_bytes(write_json({**about, "sha256": sha256}))


def checkpoint_state(model: dict[str, torch.Tensor], model_config: dict[str, Any]) -> dict[str, Any]:
    """Returns what fairseq's trainer and ``load_model_ensemble_and_task`` read from a checkpoint.

    It is made of tensors, strings, numbers, lists and dicts alone, so ``torch.load(weights_only=True)`` takes it with no
    class allow-listed. There is no optimizer state: training starts its own.
    """
    task = {"_name": "masked_lm", "data": ".", "tokens_per_sample": model_config["max_positions"]}
    return {
        "args": None,
        "cfg": {
            "_name": None,
            "common": {"_name": None, "seed": 1},
            "model": dict(model_config),
            "task": task,
            "criterion": {"_name": "masked_lm"},
            "bpe": None,
            "tokenizer": None,
        },
        "model": model,
        "optimizer_history": [
            {"criterion_name": "none", "optimizer_name": "none", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "last_optimizer_state": None,
        "task_state": {},
        "extra_state": {"train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True}},
    }


def _check_with_fairseq(
    dict_txt: Path, converted: Converted, vocabulary: Vocabulary, model_config: dict[str, Any]
) -> None:
    """Reads the dictionary and loads the weights with fairseq itself before anything takes its final name."""
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaModel

    dictionary = Dictionary.load(str(dict_txt))
    dictionary.add_symbol(FAIRSEQ_MASK)
    if tuple(dictionary.symbols[4:-1]) != vocabulary.symbols or len(dictionary) != len(vocabulary.rows):
        raise RuntimeError("fairseq reads the written dict.txt differently; please report this vocabulary")

    class _Task:
        source_dictionary = dictionary

    with torch.random.fork_rng(devices=[]):
        model = RobertaModel.build_model(argparse.Namespace(**model_config), _Task())
    model.load_state_dict(dict(converted.model), strict=True)


def _is_done(folder: Path, out: Path) -> bool:
    """Whether ``out`` is a conversion of exactly these source files, complete and unchanged."""
    try:
        about = json.loads((out / "conversion.json").read_text(encoding="utf-8"))
        written = about["sha256"]
        return (
            bool(about["format"] == FORMAT)
            and about["source_sha256"] == source_hashes(folder)
            and all(sha256_of(out / name) == value for name, value in written.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _tell(about: dict[str, Any]) -> None:
    for name, why in about["left_out"].items():
        logger.info("left out: %s (%s)", name, why)
    for name, why in about["newly_initialised"].items():
        logger.warning("newly initialised: %s (%s)", name, why)
    for note in about["notes"]:
        logger.info("note: %s", note)
