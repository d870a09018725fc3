"""Any encoder of transformers as a fairseq model: ``--arch hf_encoder --hf-model FOLDER``.

The model is transformers' own class for the task, such as ``DebertaV2ForTokenClassification``, head included.
Only the rows of its vocabulary are in the order of fairseq's dictionary, so that tasks, objectives and
methods find the ids that they know; :func:`vocabulary_rows` is the one table between the two.

A checkpoint contains the encoder's configuration, so it can be read without the folder. Nothing that a folder
holds is run: there is no ``trust_remote_code``, and ``auto_map`` and the like are dropped.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.class_rows import classes_of, head_to_start_from, in_order, names_in
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers import check_same_tokenizer
from fairseq_adv.data.tokenizers.hf_tokenizer import vocabulary_rows
from fairseq_adv.models import transformers_models
from fairseq_adv.perturbation import EncoderParts

PAD, EOS = 1, 2  # in fairseq's dictionaries
_DROPOUTS = ("dropout", "attention_dropout", "pooler_dropout")


@register_model("hf_encoder")
class HFEncoderModel(BaseFairseqModel):
    """An encoder of transformers, which answers to what tasks and objectives ask of fairseq's RoBERTa.

    Args:
        args: the options; ``args.hf_encoder`` is the encoder's description.
        head: transformers' kind of model, without ``For``; ``Model`` is the encoder alone.
        tensors: the pre-trained weights, from :func:`fairseq_adv.models.transformers_models.read`; ``None``:
            a checkpoint's will be loaded.

    Raises:
        DataError: the dictionary, or an option, does not fit the encoder.
    """

    def __init__(
        self, args: Any, dictionary: Any, head: str = "Model", tensors: dict[str, Tensor] | None = None
    ) -> None:
        super().__init__()
        self.args = args
        self.classification_heads: dict[str, int] = {}
        description = transformers_models.described(args.hf_encoder)
        dropout = {name: getattr(args, name) for name in _DROPOUTS}
        self._config = transformers_models.with_fairseqs_ids(
            transformers_models.configuration(description, dropout), len(dictionary)
        )
        _check_dictionary(dictionary, description)
        self._head = head
        self._build(tensors)
        self._tensors = tensors  # a head's own, such as ModernBERT's, are among them
        self._classes: list[str] | None = None
        self._keeps_head = False
        self.head_message = ""  # how the head begins, if it has classes and the folder a head
        # DeBERTa 1's attention fills masked places of half precision with the least number of fp32.
        is_first = self.hf.config.model_type == "deberta"
        self.no_autocast = "transformers' DeBERTa can't be computed in autocast" if is_first else ""
        args.encoder_embed_dim = int(self.hf.config.hidden_size)
        self.longest = transformers_models.longest_row(self.hf)

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Adds the options."""
        add = parser.add_argument
        add("--hf-model", metavar="DIR", help="folder of the encoder in Hugging Face's layout")
        add("--hf-encoder", metavar="JSON", help="the encoder's configuration; read from --hf-model")
        add("--dropout", type=float, metavar="D", help="dropout probability (default: the encoder's own)")
        add("--attention-dropout", type=float, metavar="D", help="dropout probability for attention weights "
            "(default: the encoder's own)")  # fmt: skip
        add("--pooler-dropout", type=float, metavar="D", help="dropout probability in the head "
            "(default: the encoder's own)")  # fmt: skip
        add("--max-positions", type=int, help="maximum number of tokens in a row (default: the encoder's)")
        add("--encoder-layerdrop", type=float, metavar="D", default=0, help="not supported: leave it out")
        add("--checkpoint-activations", action="store_true", help="recompute the layers in the backward "
            "pass instead of keeping what they computed: slower, with less memory")  # fmt: skip

    @classmethod
    def build_model(cls, args: Any, task: FairseqTask) -> HFEncoderModel:
        """A model with pre-trained weights, or without if ``args`` come from a checkpoint.

        Raises:
            DataError: an option is invalid, or the folder can't be used; the message names it.
        """
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, False)
        base_architecture(args)
        if args.encoder_layerdrop:
            raise DataError(
                f"--encoder-layerdrop {args.encoder_layerdrop}: transformers' encoders run all their layers, "
                "as they were pre-trained. Leave it out"
            )
        tensors = None
        masked = isinstance(task, MaskedLMTask) or getattr(task, "predicts_masked_words", False)
        if not args.hf_encoder:
            if not args.hf_model:
                raise DataError("--arch hf_encoder needs --hf-model: the encoder's Hugging Face folder")
            folders = str(getattr(task.cfg, "data", "") or "").split(":")
            check_same_tokenizer([Path(one) for one in folders if one], Path(args.hf_model))
            description, tensors = transformers_models.read(Path(args.hf_model))
            args.hf_encoder = description
            if masked and transformers_models.described(description)["special"]["<mask>"] is None:
                raise DataError(
                    f"{args.hf_model}: its tokenizer has no mask token, which this task needs. Name it in "
                    "tokenizer_config.json, as mask_token"
                )
        head = "MaskedLM" if masked else "Model"
        model = cls(args, task.source_dictionary, head, tensors)
        model._classes, model._keeps_head = classes_of(task), bool(getattr(task.cfg, "keep_head", False))
        if (args.max_positions or 0) > model.longest:
            raise DataError(
                f"--max-positions {args.max_positions}: this encoder has {model.longest} positions. Pass no "
                "more, or leave the option out"
            )
        args.max_positions = args.max_positions or model.longest
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, True)
        return model

    @classmethod
    def from_folder(cls, folder: Path, dictionary: Any, masked_lm: bool) -> HFEncoderModel:
        """The encoder of a folder for evaluation, alone or with its masked-LM head.

        Args:
            dictionary: of the folder's tokenizer, with ``<mask>``.
        """
        description, tensors = transformers_models.read(folder)
        args = Namespace(hf_model=str(folder), hf_encoder=description)
        base_architecture(args)
        model = cls(args, dictionary, "MaskedLM" if masked_lm else "Model", tensors)
        model.eval()
        return model

    def register_classification_head(
        self, name: str, num_classes: int | None = None, scores_choices: bool = False, **unused: Any
    ) -> None:
        """Makes the model one for sequence classification, or for multiple choice, with a new head.

        Raises:
            DataError: transformers has no such model for this kind of encoder.
        """
        self._register(
            name, "MultipleChoice" if scores_choices else "SequenceClassification", int(num_classes or 0)
        )

    def register_token_head(self, name: str, outputs: int, is_span: bool) -> None:
        """Registers a head likewise for outputs at every token: tags, or begin and end of a span."""
        self._register(name, "QuestionAnswering" if is_span else "TokenClassification", outputs)

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None = None, features_only: bool = False,
        return_all_hiddens: bool = False, classification_head_name: str | None = None,
        masked_tokens: Tensor | None = None, **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:  # fmt: skip
        """What fairseq's RoBERTa returns.

        Args:
            src_tokens: (rows, tokens) int64.
            classification_head_name: return the head's outputs: (rows, classes), or (rows, tokens, outputs).
            features_only: return the last layer's states, (rows, tokens, dim).
            masked_tokens: (rows, tokens) bool; return the logits at these positions, (positions, words).

        Raises:
            DataError: in autocast, with an encoder that transformers can't compute so.
        """
        if self.no_autocast and torch.is_autocast_enabled(src_tokens.device.type):
            raise DataError(f"{self.no_autocast}: pass --precision fp32, and no --amp")
        inputs = {"input_ids": src_tokens, "attention_mask": src_tokens.ne(PAD).long()}
        if getattr(self.args, "hf_segments", False):  # of a model that others have trained
            ends = src_tokens.eq(EOS)
            second = ((ends.cumsum(1) - ends.long()) > 0) & src_tokens.ne(PAD)
            inputs["token_type_ids"] = second.long()
        if classification_head_name is not None:
            return transformers_models.head_outputs(self.hf, inputs), {}
        if features_only or not self.has_masked_lm_head:
            return self.hf.base_model(**inputs)[0], {}
        with transformers_models.states_at(self.hf.base_model, masked_tokens):
            logits: Tensor = self.hf(**inputs).logits
        return (logits if masked_tokens is None else logits[0]), {}

    def _apply(self, fn: Any, recurse: bool = True) -> HFEncoderModel:
        """A cast leaves the frequencies of rotary positions in fp32, as transformers does."""
        buffers = [(module._buffers, name) for module in self.modules() for name in module._buffers]
        kept = [(holder, name, holder[name]) for holder, name in buffers if name.endswith("inv_freq")]
        super()._apply(fn, recurse)
        for holder, name, exact in kept:
            if exact is not None and holder[name].dtype != exact.dtype:
                holder[name] = exact.to(holder[name].device)
        return self

    def max_positions(self) -> int:
        """The maximum number of tokens in a row."""
        return int(self.args.max_positions or self.longest)

    def encoder_parts(self) -> EncoderParts:
        """The modules that methods look for.

        Raises:
            ValueError: they are not found; names the model.
        """
        return transformers_models.encoder_parts(self.hf)

    @property
    def has_masked_lm_head(self) -> bool:
        """Whether the model predicts masked words."""
        return self._head == "MaskedLM"

    @property
    def has_trained_masked_lm_head(self) -> bool:
        """Whether the folder that the model was built from has the head."""
        encoder = f"{self.hf.base_model_prefix}."
        head = [name for name in self.hf.state_dict() if not name.startswith(encoder)]
        return self.has_masked_lm_head and any(name in (self._tensors or {}) for name in head)

    def is_of_head(self, name: str) -> bool:
        """Whether a weight is a head's or the pooler's, which another task's checkpoint may lack."""
        encoder = f"hf.{self.hf.base_model_prefix}."
        alone = self._head == "Model"
        return name.startswith("hf.") and not alone and (not name.startswith(encoder) or ".pooler." in name)

    def class_axes(self) -> dict[str, int]:
        """See :func:`fairseq_adv.data.class_rows.class_axes`."""
        return {
            f"hf.{name}": axis
            for name, axis in transformers_models.class_axes(self._config, self._head).items()
        }

    def _register(self, name: str, head: str, outputs: int) -> None:
        self._config.num_labels, self._head = outputs, head
        tensors = dict(self.hf.state_dict()) if self._tensors is None else self._tensors
        if self._tensors is not None and self._classes is not None:
            tensors = self._with_head_by_name(tensors, self._classes)
        self._build(tensors)
        if self.args.pooler_dropout is not None:
            is_new = self._tensors is not None  # and not a checkpoint's, which may be of an older version
            transformers_models.set_head_dropout(self.hf, self.args.pooler_dropout, is_new)
        self._tensors = None
        self.classification_heads = {name: outputs}

    def _with_head_by_name(self, tensors: dict[str, Tensor], classes: list[str]) -> dict[str, Tensor]:
        """A folder's tensors with the rows of its head in the order of these classes, or without them."""
        axes = transformers_models.class_axes(self._config, self._head)
        outputs = [tensors[name].size(axis) for name, axis in axes.items() if name in tensors]
        if not outputs:
            return tensors
        folder = str(self.args.hf_model)
        names = names_in(json_object(Path(folder) / "config.json"))
        head = head_to_start_from(folder, names, outputs[0], classes, self._keeps_head)
        self.head_message = head.message
        others = {name: tensor for name, tensor in tensors.items() if name not in axes}
        return others if head.rows is None else {**others, **in_order(tensors, axes, head.rows)}

    def _build(self, tensors: dict[str, Tensor] | None) -> None:
        self.hf = transformers_models.build(self._config, self._head, tensors, str(self.args.hf_model))
        if self.args.checkpoint_activations:
            if not self.hf.supports_gradient_checkpointing:
                raise DataError(
                    f"--checkpoint-activations: transformers' {type(self.hf).__name__} doesn't support it. "
                    "Leave it out"
                )
            self.hf.gradient_checkpointing_enable({"use_reentrant": False})
        try:
            transformers_models.encoder_parts(self.hf)
        except ValueError as error:
            raise DataError(f"{self.args.hf_model}: {error}. Pass another encoder") from error
        again = self.args.checkpoint_activations  # the backward pass runs layers again, outside a context
        self.first_token_modules = None if again else transformers_models.first_token_modules(self.hf)


def _check_dictionary(dictionary: Any, description: dict[str, Any]) -> None:
    """Raises DataError unless the dictionary's words are the encoder's ids, in the table's order."""
    rows = vocabulary_rows(description["config"]["vocab_size"], description["special"])
    words = [str(row) for row in rows]
    if dictionary.symbols[4 : len(rows) - 1] != words[4:-1] or len(dictionary) != len(rows):
        raise DataError(
            "the data was prepared with another encoder's dictionary: the word ids would be wrong. Prepare "
            "it again, with --encoder and the folder that --hf-model names"
        )


@register_model_architecture("hf_encoder", "hf_encoder")
def base_architecture(args: Any) -> None:
    """What is not given is the encoder's own."""
    for name in ("hf_model", "hf_encoder", "max_positions", *_DROPOUTS):
        setattr(args, name, getattr(args, name, None))
    args.encoder_layerdrop = getattr(args, "encoder_layerdrop", None) or 0  # None: a yaml's
    args.checkpoint_activations = getattr(args, "checkpoint_activations", None) or False
