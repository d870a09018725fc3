"""A Hugging Face folder of a ``…ForSequenceClassification`` as the checkpoint of a model trained here.

So what opens checkpoints to measure them or to predict opens it too. Nothing that the folder holds is run:
see :mod:`fairseq_adv.models.transformers_models`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.class_rows import names_in
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.hf_folder import read_config
from fairseq_adv.data.tables.labelled_rows import check_class_name
from fairseq_adv.data.tables.several_labels import check_label_name
from fairseq_adv.data.tokenizers import SECOND_BEGINS
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer, vocabulary_rows
from fairseq_adv.hub.convert import checkpoint_state
from fairseq_adv.models import transformers_models

_HEAD = "SequenceClassification"
_SEVERAL = "multi_label_classification"  # its problem_type
# Tokenizers that make no token_type_ids from transformers 5 on, unless their settings say so.
_WITHOUT_SEGMENTS = (
    "AlbertTokenizer", "BigBirdTokenizer", "HerbertTokenizer", "RemBertTokenizer", "PreTrainedTokenizerFast",
    "TokenizersBackend",
)  # fmt: skip


def checkpoint_of(folder: Path) -> dict[str, Any]:
    """What a checkpoint of this model would hold, with a plain configuration. Probabilities are those at
    temperature 1; each of several labels holds from .5 on.

    Raises:
        DataError: it is not the folder of an encoder with a trained head for classes, or can't be used; the
            message names the file.
    """
    settings = read_config(folder)
    names, several = _classes(folder, settings), settings.get("problem_type") == _SEVERAL
    text, tensors = transformers_models.read(folder)
    description, tokenizer = transformers_models.described(text), HFTokenizer(folder)
    words = len(vocabulary_rows(description["config"]["vocab_size"], description["special"]))
    config = transformers_models.with_fairseqs_ids(transformers_models.configuration(description, {}), words)
    config.num_labels = len(names)
    model = transformers_models.build(config, _HEAD, tensors, str(folder), whole=True)
    takes_them = "token_type_ids" in inspect.signature(model.forward).parameters
    has_segments = takes_them and getattr(config, "type_vocab_size", 0) > 1 and tokenizer.has_segments()
    has_segments = has_segments and _is_given_segments(folder, settings)
    longest = min(transformers_models.longest_row(model), _longest_of_tokenizer(folder))
    options = {
        "_name": "hf_encoder", "arch": "hf_encoder", "hf_encoder": text, "hf_segments": has_segments,
        "max_positions": longest,
    }  # fmt: skip
    task = ["--task", "multi_label" if several else "text_classification", "--init-token", "0"]
    task += ["--num-classes", str(len(names))]
    task += ["--shorten-method", "truncate", "--max-positions", str(longest)]
    if tokenizer.options["separators"] != 1:
        task += ["--separator-token", "0" if tokenizer.options.get(SECOND_BEGINS) else "2"]
    weights = {f"hf.{name}": tensor for name, tensor in model.state_dict().items()}
    state = checkpoint_state(weights, options, [str(folder), *task, "--criterion", "standard"])
    state["cfg"]["task"]["class_names"] = names
    return state


def _classes(folder: Path, config: dict[str, Any]) -> list[str]:
    """The classes, in the order of the head's rows."""
    where, kinds = folder / "config.json", config.get("architectures")
    if isinstance(kinds, list) and kinds and not str(kinds[0]).endswith(f"For{_HEAD}"):
        raise DataError(
            f"{where}: the folder of a {kinds[0]!s:.60}, which has no trained head for classes of texts. "
            f"Pass that of a …For{_HEAD}"
        )
    names = names_in(config) or [f"LABEL_{number}" for number in range(2)]
    problem_type = config.get("problem_type")
    if problem_type == "regression" or (len(names) < 2 and problem_type != _SEVERAL):
        raise DataError(f"{where}: the model predicts numbers, not classes. Pass one with classes")
    if len(set(names)) < len(names):
        raise DataError(f"{where}: id2label has a class twice ({', '.join(names):.200}). Rename one there")
    check = check_label_name if problem_type == _SEVERAL else check_class_name
    return [check(name, str(where)) for name in names]


def _is_given_segments(folder: Path, config: dict[str, Any]) -> bool:
    """Whether transformers' tokenizer makes ``token_type_ids``; without them a model takes zeros."""
    settings = _tokenizer_config(folder)
    if isinstance(names := settings.get("model_input_names"), list):
        return "token_type_ids" in names
    version = str(config.get("transformers_version")).partition(".")[0]
    return not (
        version.isdecimal() and int(version) >= 5 and settings.get("tokenizer_class") in _WITHOUT_SEGMENTS
    )


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    settings = json_object(file) if file.is_file() else {}
    if settings.get("truncation_side", "right") != "right":
        raise DataError(f"{file}: truncation_side is not right, and only the end of a text is cut here")
    return settings


def _longest_of_tokenizer(folder: Path) -> int:
    """The most tokens of a row, as tokenizer_config.json has it; a text that is longer is cut."""
    most = _tokenizer_config(folder).get("model_max_length")
    # transformers writes 1e30 for none.
    return most if type(most) is int and 0 < most < 1 << 31 else 1 << 31
