"""Builds transformers' models from a folder, or from the configuration in a checkpoint; finds their parts.

transformers is imported when a model is built. Its ``from_pretrained`` never sees a folder: this project's
own reader takes the weights from safetensors files, or from ``.bin`` files that hold nothing but tensors.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.hf_folder import read_config, read_weights
from fairseq_adv.data.tokenizers.hf_tokenizer import check_special, check_words, special_ids, vocabulary_rows
from fairseq_adv.perturbation import EncoderParts
from fairseq_adv.perturbation.host_copies import known_places

logger = logging.getLogger(__name__)
# Keys that name code, are transformers' own, or are how a model is run and not what it computes; and those of
# a former head.
_DROPPED = re.compile(
    r"_.*|auto_map|name_or_path|architectures|(torch_)?dtype|transformers_version|quantization_config|pruned_heads"
    r"|.*(attn|experts|kernels?)_(implementation|config).*|reference_compile|use_cache|gradient_checkpointing"
    r"|output_(attentions|hidden_states|past|scores|router_logits)|return_dict|use_return_dict|id2label|label2id"
    r"|num_labels|problem_type|finetuning_task|task_specific_params|torchscript|chunk_size_feed_forward"
    r"|peft_config|adapters|sparse_prediction|fairseq_adv_.*"
)
_MOST_LAYERS = 1000
_PREFIX = "config:"  # fairseq would replace a text that is a Python literal by its value
_REFUSED = ("mra", "yoso", "esm", "perceiver", "reformer")  # compile kernels, or are not of words
_DROPOUTS = {  # fairseq's option -> transformers' names for it
    "dropout": ("hidden_dropout_prob", "hidden_dropout", "dropout", "embedding_dropout", "mlp_dropout"),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout"),
    "pooler_dropout": (
        "classifier_dropout", "classifier_dropout_prob", "cls_dropout", "pooler_dropout",
        "seq_classif_dropout", "summary_first_dropout", "summary_last_dropout", "qa_dropout",
    ),
}  # fmt: skip
_WITHOUT_LAYERS = ("xlm", "flaubert", "squeezebert")
_OF_BERT = ("bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta")
# Where a layer may go on with the first token alone: the modules after its attention, by the kind of encoder.
_AFTER_ATTENTION = {
    **dict.fromkeys((*_OF_BERT, "deberta", "deberta-v2"), ("attention.output",)),
    "distilbert": ("sa_layer_norm",),
    "mpnet": ("intermediate", "output"),
}
_READ_THE_LAST = ("convbert", "roformer")  # token of a choice, padding or not, by their default
_SPECIAL_IDS = {
    "pad_token_id": 1, "bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2,
}  # fmt: skip


class FirstTokenModules(NamedTuple):
    """A last layer's projection of queries, if it may be cut, and what follows its attention."""

    query: nn.Module | None
    after_attention: list[nn.Module]


def read(folder: Path) -> tuple[str, dict[str, Tensor]]:
    """The description of a folder's encoder, as JSON, and its weights.

    Raises:
        DataError: a file is missing or invalid, or the encoder can't be used.
    """
    where = folder / "config.json"
    config = _plain(read_config(folder), str(where))
    words = config["vocab_size"]
    # "$" is escaped, since fairseq would read "${" as the name of an option.
    description = {"config": config, "special": special_ids(folder)}
    text = _PREFIX + json.dumps(description, sort_keys=True).replace("$", "\\u0024")
    highest = max(number for number in description["special"].values() if number is not None)
    if highest >= words:
        raise DataError(
            f"{where}: vocab_size is {words}, but a special token has the id {highest}. Use the model's own "
            "tokenizer"
        )
    rows = torch.tensor(vocabulary_rows(words, description["special"]))
    tensors = {name: _in_order(tensor, rows, words) for name, tensor in read_weights(folder).items()}
    check_size(description, tensors, str(where))
    return text, tensors


def described(text: Any) -> dict[str, Any]:
    """The description in a checkpoint, which may come from anyone.

    Raises:
        DataError: it is not one.
    """
    try:
        content = json.loads(text[len(_PREFIX) :])
        config, special = content["config"], content["special"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"--hf-encoder is not the configuration of an encoder ({error!s:.100})") from error
    check_special(special, "--hf-encoder")
    return {"config": _plain(config, "--hf-encoder"), "special": special}


def _plain(given: Any, where: str) -> dict[str, Any]:
    """A config.json without what names code or says how the model is run."""
    if not isinstance(given, dict):
        raise DataError(f"{where}: not a configuration")
    config = {str(key): value for key, value in given.items() if not _DROPPED.fullmatch(str(key))}
    if config.get("is_encoder_decoder") or config.get("is_decoder") or config.get("add_cross_attention"):
        raise DataError(f"{where}: a decoder. Pass the folder of an encoder")
    check_words(config.get("vocab_size"), where)
    for key, value in config.items():
        if re.search("layer|group|block|depth|networks", key) and type(value) is int and value > _MOST_LAYERS:
            raise DataError(f"{where}: {key} is {value}, more than {_MOST_LAYERS}")
    return config


def _in_order(tensor: Tensor, rows: Tensor, words: int) -> Tensor:
    """A vocabulary's weights in the order of the dictionary; those of a token without a row (-1) are 0."""
    if words not in tensor.shape:
        return tensor
    axis = tensor.shape.index(words)  # 1 in a part of MobileBERT's masked-LM head
    chosen = tensor.index_select(axis, rows.clamp(min=0))
    return chosen.index_fill(axis, (rows < 0).nonzero()[:, 0], 0)


def configuration(description: dict[str, Any], options: Mapping[str, Any]) -> Any:
    """transformers' configuration, with fairseq's dropout options.

    Args:
        description: from :func:`read`.
        options: ``dropout``, ``attention_dropout`` and ``pooler_dropout``; ``None`` keeps the encoder's own.

    Raises:
        DataError: transformers doesn't know the model, or it has no such dropout.
    """
    config = _config(description)
    for option, names in _DROPOUTS.items():
        value, known = options.get(option), [name for name in names if hasattr(config, name)]
        if value is None:
            continue
        if not known and option == "pooler_dropout":
            continue  # of the head, which may have one: see set_head_dropout
        if not known:
            flag = option.replace("_", "-")
            raise DataError(f"--{flag} {value}: a {config.model_type} has no such dropout. Leave it out")
        if option == "pooler_dropout" and config.model_type in ("deberta", "deberta-v2"):
            known.append("cls_dropout")  # before its classifier; without a value it is the layers' own
        for name in known:
            setattr(config, name, value)
    return config


def set_head_dropout(model: Any, probability: float, refuses: bool) -> None:
    """Sets the dropout of a head: which of the configuration's it reads depends on the kind of head.

    Raises:
        DataError: if ``refuses``: the head has none.
    """
    of_encoder = set(model.base_model.modules())
    found = [one for one in model.modules() if isinstance(one, nn.Dropout) and one not in of_encoder]
    for one in found:
        one.p = probability
    if refuses and probability and not found:
        raise DataError(
            f"--pooler-dropout {probability}: the head of transformers' {type(model).__name__} has no "
            "dropout. Leave it out"
        )


def with_fairseqs_ids(config: Any, words: int) -> Any:
    """Changes it for a dictionary of this many words, with fairseq's ids of the special tokens."""
    config.vocab_size = words
    for name, value in _SPECIAL_IDS.items():
        if getattr(config, name, None) is not None or name == "pad_token_id":
            setattr(config, name, value)
    return config


def check_size(description: dict[str, Any], tensors: Mapping[str, Tensor], where: str) -> None:
    """Raises DataError if the configuration asks for a model much larger than the weights at hand, one that
    takes no attention mask, or one with another size of the vocabulary's, by which tensors are found.

    Args:
        description: from :func:`read`.
    """
    numbers, words = sum(map(Tensor.numel, tensors.values())), description["config"]["vocab_size"]
    try:
        models = _two_sizes(_config(description, where), "MaskedLM", "vocab_size")
    except DataError:
        raise
    except (
        RuntimeError, TypeError, KeyError, AttributeError, ArithmeticError, ValueError, AssertionError,
        ImportError,
    ) as error:  # fmt: skip
        raise DataError(f"{where}: transformers can't build the model ({_short(error)})") from error
    sizes = {words, len(vocabulary_rows(words, description["special"]))}
    for (name, tensor), other in zip(models[0].named_parameters(), models[1].parameters()):
        if any(side in sizes for side, another in zip(tensor.shape, other.shape) if side == another):
            raise DataError(
                f"{where}: {name} has a size of the vocabulary's ({words}), so the words' rows can't be told "
                "apart. Pass an encoder with another vocab_size"
            )
    model = models[0].base_model
    if "attention_mask" not in inspect.signature(model.forward).parameters:  # FNet
        raise DataError(
            f"{where}: {type(model).__name__} takes no attention mask, so the padding of a row would change "
            "its answer. Pass another encoder"
        )
    if getattr(model.config, "default_language", "") is None:  # XMOD's layers differ by language
        raise DataError(
            f"{where}: no default_language. Set it there to one of {', '.join(model.config.languages)}"
        )
    counted_from = {table.padding_idx for table in _position_tables(model)} - {None}
    pad = description["special"]["<pad>"]
    if counted_from and counted_from | {pad} != {1}:
        raise DataError(
            f"{where}: positions are counted from padding token {min(counted_from)}, and the tokenizer's is "
            f"{pad}. Only 1 is supported. Use the model's own tokenizer"
        )
    needed = sum(one.numel() for one in (*model.parameters(), *model.buffers()))
    if needed > 2 * numbers + 1_000_000:
        raise DataError(
            f"{where}: the configuration needs {needed:,} numbers, but the weights have {numbers:,}. "
            "Download it again"
        )


def _two_sizes(config: Any, head: str, size: str) -> list[Any]:
    """Two models without weights; in the second this size of the configuration is one larger."""
    models = []
    for more in (0, 1):
        other = copy.deepcopy(config)
        setattr(other, size, getattr(config, size) + more)
        with torch.device("meta"):
            models.append(_class_of(other, head)(other))
    return models


def build(config: Any, head: str, tensors: dict[str, Tensor] | None, where: str, whole: bool = False) -> Any:
    """A model in fp32, with these weights if there are any; a head that they lack, or have
    for other outputs, is new, unless the model must be whole.

    Raises:
        DataError: transformers has no such model, or weights of the encoder are missing or of another shape.
    """
    config = copy.deepcopy(config)
    if head == "MultipleChoice" and config.model_type == "longformer":
        raise DataError(
            f"{where}: transformers' Longformer reads no choices without three separators. "
            "Pass another encoder"
        )
    if head == "MultipleChoice" and config.model_type in _READ_THE_LAST:
        config.summary_type = "first"
    if config.model_type == "big_bird":
        # Its sparse attention would give way to full attention at the first short mini-batch, for good.
        config.attention_type = "original_full"
    model_class = _class_of(config, head)
    if tensors is None:
        return model_class._from_config(config, **_precision(torch.float32))
    try:
        with _quiet():
            model, info = model_class.from_pretrained(
                None, config=config, state_dict=dict(tensors), output_loading_info=True,
                # The encoder has been loaded alone before, so that only a former head's may differ.
                ignore_mismatched_sizes=head not in ("Model", "MaskedLM"), **_precision(torch.float32),
            )  # fmt: skip
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where}: transformers can't load the weights ({_short(error)})") from error
    prefix = "" if head == "Model" else f"{model_class.base_model_prefix}."
    missing = sorted(
        name for name in info["missing_keys"] if whole or (name.startswith(prefix) and "pooler." not in name)
    )
    if whole and info["mismatched_keys"]:
        raise DataError(
            f"{where}: the weights of the head are not those of {config.num_labels} classes, as many as "
            "config.json names. Correct its id2label"
        )
    base = f"{model_class.base_model_prefix}."
    of_encoder = base if any(name.startswith(base) for name in tensors) else ""
    unknown = [
        name for name in sorted(info["unexpected_keys"])
        if name.startswith(of_encoder) and name.endswith((".weight", ".bias")) and "pooler." not in name
    ]  # fmt: skip
    if unknown:
        raise DataError(
            f"{where}: transformers would leave out {unknown[0]} of the {config.model_type}, and so compute "
            "another model. Pass another encoder"
        )
    if missing:
        raise DataError(
            f"{where}: the weights lack {missing[0]} of the {config.model_type}. Download them again"
        )
    if head == "MaskedLM" and info["missing_keys"]:
        logger.warning("%s: has no masked-LM head; a new one starts from random weights", where)
    return model


def class_axes(config: Any, head: str) -> dict[str, int]:
    """The axis of the classes in each tensor that has one, by its name.

    Args:
        config: with ``num_labels``.
        head: as for :func:`build`.
    """
    one, other = (model.state_dict() for model in _two_sizes(config, head, "num_labels"))
    return {
        name: axis
        for name, tensor in one.items()
        for axis, size in enumerate(tensor.shape)
        if size != other[name].shape[axis]
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers neither warns of a new head nor shows a progress bar."""
    from transformers.utils import logging

    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _precision(dtype: torch.dtype) -> dict[str, Any]:
    import transformers

    return {"dtype" if int(transformers.__version__.split(".")[0]) > 4 else "torch_dtype": dtype}


def _config(description: dict[str, Any], where: str = "--hf-encoder") -> Any:
    """transformers' configuration of a description."""
    try:
        from transformers import CONFIG_MAPPING
        from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as encoders
    except ImportError as error:
        raise DataError(
            f"--arch hf_encoder needs transformers ({error}): pip install 'fairseq_adv[hf]'"
        ) from error
    model_type = description["config"].get("model_type")
    if model_type is None:  # in folders of 2019
        raise DataError(f'{where}: no model_type. Add "model_type": "bert", or what it is')
    if not isinstance(model_type, str) or model_type not in encoders or model_type in _REFUSED:
        raise DataError(
            f"{where}: model_type is {model_type!r:.40}, not a text encoder in the installed transformers. "
            "Pass another encoder, or upgrade transformers"
        )
    if getattr(CONFIG_MAPPING[model_type], "sub_configs", None):  # each of any kind; some ask huggingface.co
        raise DataError(
            f"{where}: model_type is {model_type!r}, which contains other models. Pass an encoder of text"
        )
    try:
        return CONFIG_MAPPING[model_type].from_dict(dict(description["config"]))
    except Exception as error:  # transformers' own checks raise many kinds
        raise DataError(f"{where}: not a configuration of a {model_type} ({_short(error)})") from error


def _short(error: Exception) -> str:
    """What a library says, on one line."""
    return " ".join(str(error).split())[:200]


def _class_of(config: Any, head: str) -> Any:
    import transformers

    auto = getattr(transformers, "AutoModel" if head == "Model" else f"AutoModelFor{head}")
    try:
        model_class = auto._model_mapping[type(config)]
    except KeyError as error:
        raise DataError(f"transformers has no {auto.__name__} for a {config.model_type}") from error
    except (ImportError, OSError) as error:
        raise DataError(
            f"transformers can't import its {config.model_type}: {error!s:.200}. If it names torchaudio, run "
            "pip uninstall torchaudio: nothing here needs it"
        ) from error
    return model_class[0] if isinstance(model_class, tuple) else model_class


def save(model: Any, folder: Path) -> None:
    """Writes config.json and model.safetensors."""
    with _quiet():
        model.save_pretrained(folder)
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # safetensors makes it private


def longest_row(model: Any) -> int:
    """The most tokens that the encoder takes: its tables of positions, without rows that are never used."""
    most = int(getattr(model.config, "max_position_embeddings", 0) or 512)
    for table in _position_tables(model):
        unused = 0 if table.padding_idx is None else table.padding_idx + 1  # or counted from the next row
        most = min(most, len(table.weight) - unused)
    return most


def _position_tables(model: Any) -> list[Any]:
    """Finds the tables of words' positions, not LayoutLM's places on a page, nor LUKE's of entities."""
    return [
        table
        for name, table in model.base_model.named_modules()
        if re.fullmatch(r"(embeddings\.)?position_embeddings", name) and hasattr(table, "padding_idx")
    ]


def head_outputs(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """(rows, classes), or (rows, tokens, outputs); begin and end of a span are two outputs."""
    if type(model).__name__.endswith("ForMultipleChoice"):  # each row is the only choice of its question
        inputs = {name: tensor.unsqueeze(1) for name, tensor in inputs.items()}
    output = model(**inputs)
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    logits: Tensor = output.logits
    return logits


@contextmanager
def states_at(encoder: nn.Module, chosen: Tensor | None) -> Iterator[None]:
    """In this context the encoder returns its states at some positions alone, as one row.

    Args:
        encoder: without a head.
        chosen: (rows, tokens) bool; ``None`` changes nothing.
    """

    def choose(module: nn.Module, inputs: Any, output: Any) -> Any:
        if chosen is not None:
            places: Any = known_places(chosen) or chosen  # a GPU waits to count a mask's entries
            output["last_hidden_state"] = output["last_hidden_state"][places].unsqueeze(0)
        return output

    with encoder.register_forward_hook(choose):
        yield


def first_token_modules(model: Any) -> FirstTokenModules | None:
    """What :func:`at_first_token` needs of a model; ``None`` if its last layer can't be cut: it also runs
    earlier, is of another kind, or the head reads more than the first token.
    """
    config, layers = model.config, _layers(model.base_model)
    names = _AFTER_ATTENTION.get(config.model_type)
    reads_first = type(model).__name__.endswith(("ForSequenceClassification", "ForMultipleChoice"))
    if names is None or not reads_first or getattr(config, "summary_type", "first") != "first":
        return None
    query = layers[-1].get_submodule("attention.self.query") if config.model_type in _OF_BERT else None
    return FirstTokenModules(query, [layers[-1].get_submodule(name) for name in names])


@contextmanager
def at_first_token(modules: FirstTokenModules) -> Iterator[None]:
    """In this context the last layer computes the first token's state alone, and returns (rows, 1, dim)."""

    def first(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(one[:, :1] if isinstance(one, Tensor) else one for one in inputs)

    def ask_once(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tokens.append(inputs[0].size(1))
        return first(module, inputs)

    def ask_as_often(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output.expand(-1, tokens.pop(), -1)  # the attention's code wants as many queries as keys

    tokens: list[int] = []
    with ExitStack() as hooks:
        for module in modules.after_attention:
            hooks.enter_context(module.register_forward_pre_hook(first))
        if modules.query is not None:
            hooks.enter_context(modules.query.register_forward_pre_hook(ask_once))
            hooks.enter_context(modules.query.register_forward_hook(ask_as_often))
        yield


def encoder_parts(model: Any) -> EncoderParts:
    """The modules that methods look for.

    Raises:
        ValueError: there are no word embeddings, or no layers; names the model.
    """
    encoder = model.base_model
    try:
        embedding = encoder.get_input_embeddings()
    except NotImplementedError:
        embedding = None
    if not isinstance(embedding, nn.Embedding):
        raise ValueError(f"{type(encoder).__name__} has no word embeddings that can be perturbed")
    norm, width = _norm_after(encoder, embedding), int(encoder.config.hidden_size)
    return EncoderParts(encoder, embedding, _layers(encoder), norm, width)


def _layers(encoder: Any) -> list[nn.Module]:
    """The layers in the order in which they run; one that runs again (ALBERT) is there again.

    Empty if no module is a layer (XLM), or none can be watched (SqueezeBERT).
    """
    if encoder.config.model_type in _WITHOUT_LAYERS:
        return []
    runs, lists = encoder.config.num_hidden_layers, {}
    for name, module in encoder.named_modules():
        if isinstance(module, nn.ModuleList):
            lists[name.split(".")[-1]] = module
    groups = lists.get("albert_layer_groups")
    if groups is not None:
        return [layer for run in range(runs) for layer in groups[run * len(groups) // runs].albert_layers]
    for module in lists.values():
        if len(module) == runs:
            return list(module)
    raise ValueError(f"{type(encoder).__name__} has no list of its {runs} layers")


def _norm_after(encoder: nn.Module, embedding: nn.Embedding) -> nn.Module | None:
    """The layer norm beside the word embeddings, if it normalises what they return."""
    width = (embedding.embedding_dim,)
    for module in encoder.modules():
        children = list(module.children())
        if any(child is embedding for child in children):
            norms = [one for one in children if isinstance(one, nn.LayerNorm)]
            if any(isinstance(one, nn.Linear) for one in children):  # RoCBert's, between the two
                return None
            return next((norm for norm in norms if tuple(norm.normalized_shape) == width), None)
    return None
